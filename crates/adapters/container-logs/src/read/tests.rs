//! Reads logs that are rotated, compressed or split into partial lines, next to other files.

use super::*;
use std::io::Write;

fn line(second: u32, stream: &str, tag: &str, text: &str) -> String {
    format!("2026-01-02T03:04:{second:02}.000000001Z {stream} {tag} {text}\n")
}

/// A directory with one container's log in three files, and files that do not belong to it.
fn log_dir() -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    let write = |name: &str, text: &str| {
        std::fs::write(dir.path().join(name), text).expect("a file");
    };
    let mut compressed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    compressed.write_all(line(1, "stdout", "F", "one").as_bytes()).expect("compressed");
    compressed.write_all(line(2, "stderr", "F", "two").as_bytes()).expect("compressed");
    let compressed = compressed.finish().expect("compressed");
    std::fs::write(dir.path().join("0.log.20260102-030000.gz"), compressed).expect("a file");
    write("0.log.20260102-030001", &line(3, "stdout", "F", "three"));
    let end = line(4, "stdout", "P", "fo") + &line(4, "stdout", "F", "ur") + "garbage\n";
    write("0.log", &(end + &line(5, "stderr", "F", "five")));
    write("0.log.20260102-030001.tmp", "not a log\n");
    write("1.log", &line(6, "stdout", "F", "of another"));
    dir
}

fn read(selection: &LogSelection) -> String {
    let dir = log_dir();
    let mut text = String::new();
    read_logs(&dir.path().join("0.log"), selection, &mut |entry| {
        text.push_str(&String::from_utf8_lossy(&entry.text));
        if !entry.is_partial {
            text.push(' ');
        }
        ControlFlow::Continue(())
    })
    .expect("logs");
    text
}

#[test]
fn rotated_files_come_first_and_other_files_are_ignored() {
    assert_eq!(read(&LogSelection::default()), "one two three four five ");
}

#[test]
fn tail_counts_a_split_line_as_one() {
    for (tail, expected) in [
        (0, ""),
        (1, "five "),
        (2, "four five "),
        (3, "three four five "),
        (4, "two three four five "),
        (5, "one two three four five "),
        (99, "one two three four five "),
    ] {
        let selection = LogSelection { tail: Some(tail), ..LogSelection::default() };
        assert_eq!(read(&selection), expected, "tail {tail}");
    }
}

#[test]
fn entries_are_selected_by_time_and_stream() {
    let since = ApiTime::parse("2026-01-02T03:04:03Z");
    assert_eq!(read(&LogSelection { since, ..LogSelection::default() }), "three four five ");
    let stream = Some(LogStream::Stderr);
    assert_eq!(read(&LogSelection { stream, ..LogSelection::default() }), "two five ");
    assert_eq!(read(&LogSelection { stream, since, tail: Some(1) }), "five ");
}

#[test]
fn an_overlong_line_is_dropped_and_later_lines_are_read() {
    let mut lines = LineBuffer::default();
    for _ in 0..100 {
        lines.push(&[b'x'; 4096]);
        assert_eq!(lines.next_line(), None);
        assert!(lines.bytes.len() <= MAX_LINE_BYTES + 4096);
    }
    lines.push(b"end\nnext\n");
    assert_eq!(lines.next_line().as_deref(), Some(&b"next"[..]));
    assert_eq!(lines.next_line(), None);
}

#[test]
fn a_missing_or_irregular_file_is_an_error_with_the_path() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("0.log");
    let error = |path: &Path| {
        read_logs(path, &LogSelection::default(), &mut |_| ControlFlow::Continue(()))
            .expect_err("no log")
            .to_string()
    };
    assert!(error(&path).contains("0.log"));
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &path,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .expect("a FIFO");
    assert!(error(&path).contains("not a regular file"));
}
