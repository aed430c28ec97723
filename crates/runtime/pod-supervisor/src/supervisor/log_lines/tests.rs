//! Lines, parts and timestamps; splitting the input differently does not change the lines.

use super::*;

#[derive(Default)]
struct WrittenLines(Vec<u8>);

impl LineSink for WrittenLines {
    fn write(&mut self, lines: &[u8]) {
        assert!(lines.ends_with(b"\n"), "only whole lines are written");
        self.0.extend_from_slice(lines);
    }
}

/// Like the thread: unused bytes are kept for the next read.
fn lines_of(reads: &[&[u8]], longest: usize) -> Vec<String> {
    let mut buffer = LogLineBuffer::new(longest);
    let capacity = buffer.lines.capacity();
    let mut written = WrittenLines::default();
    let mut timestamp = LogTimestamp::new();
    timestamp.set(1_136_214_245, 7);
    let mut pending: Vec<u8> = Vec::new();
    for (number, read) in reads.iter().enumerate() {
        pending.extend_from_slice(read);
        let end = number + 1 == reads.len();
        let head = LineHead { stream: OutputStream::Output, timestamp: &timestamp };
        let used = buffer.take(&pending, end, head, &mut written);
        pending.drain(..used);
    }
    assert!(pending.is_empty(), "everything was used");
    assert_eq!(buffer.lines.capacity(), capacity, "the buffer never grows");
    let text = String::from_utf8(written.0).expect("text");
    let head = "2006-01-02T15:04:05.000000007Z stdout ";
    text.lines().map(|line| line.strip_prefix(head).expect("a head").to_owned()).collect()
}

#[test]
fn lines_are_tagged_full_and_parts_partial() {
    let long = "x".repeat(150);
    for (input, wanted) in [
        ("a\nb\n".to_owned(), vec!["F a".to_owned(), "F b".to_owned()]),
        ("\n\n".to_owned(), vec!["F ".to_owned(), "F ".to_owned()]),
        ("no newline".to_owned(), vec!["P no newline".to_owned()]),
        (
            format!("{long}\n"),
            vec![
                format!("P {}", "x".repeat(64)),
                format!("P {}", "x".repeat(64)),
                format!("F {}", "x".repeat(22)),
            ],
        ),
        (
            format!("{}\nz\n", "x".repeat(64)),
            vec![format!("F {}", "x".repeat(64)), "F z".to_owned()],
        ),
        ("x".repeat(65), vec![format!("P {}", "x".repeat(64)), "P x".to_owned()]),
        (
            format!("{}\n", "x".repeat(128)),
            vec![format!("P {}", "x".repeat(64)), format!("F {}", "x".repeat(64))],
        ),
    ] {
        assert_eq!(lines_of(&[input.as_bytes()], 64), wanted, "{input:?}");
        // However it is split.
        for cut in 0..input.len() {
            let (left, right) = input.as_bytes().split_at(cut);
            assert_eq!(lines_of(&[left, right], 64), wanted, "{input:?} cut at {cut}");
        }
    }
}

#[test]
fn a_burst_of_tiny_lines_fits() {
    let input = "\n".repeat(20_000);
    assert_eq!(lines_of(&[input.as_bytes()], 16 * 1024).len(), 20_000);
}

#[test]
fn newlines_are_found_wherever_they_are() {
    for length in 0..40 {
        for at in 0..length {
            let mut bytes = vec![0x8a; length];
            bytes[at] = b'\n';
            assert_eq!(find_newline(&bytes), Some(at), "{length} {at}");
        }
        assert_eq!(find_newline(&vec![0x0b; length]), None, "{length}");
    }
}

#[test]
fn stamps_know_the_calendar() {
    for (seconds, wanted) in [
        (0, "1970-01-01T00:00:00.000000005Z"),
        (951_782_399, "2000-02-28T23:59:59.000000005Z"),
        (951_782_400, "2000-02-29T00:00:00.000000005Z"),
        (4_107_542_400, "2100-03-01T00:00:00.000000005Z"),
        (1_798_761_599, "2026-12-31T23:59:59.000000005Z"),
    ] {
        let mut timestamp = LogTimestamp::new();
        timestamp.set(seconds, 5);
        assert_eq!(std::str::from_utf8(&timestamp.text).expect("text"), wanted);
    }
}
