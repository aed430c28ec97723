//! Logs in parts: all of it, the last lines, and as they grow through a rotation.

use super::*;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::time::Duration;
use tokio::time::timeout;

fn line(number: usize) -> String {
    format!("2026-01-02T03:04:05.{number:09}Z stdout F line {number}\n")
}

fn append(path: &Path, text: &str) {
    let file = OpenOptions::new().create(true).append(true).open(path);
    file.expect("a log").write_all(text.as_bytes()).expect("written");
}

async fn all(log: &mut dyn OpenContainerLog) -> Vec<String> {
    let mut texts = Vec::new();
    loop {
        let part = timeout(Duration::from_secs(10), log.read()).await.expect("in time");
        let part = part.expect("lines");
        assert!(part.len() <= PART_LINES);
        if part.is_empty() {
            return texts;
        }
        texts.extend(part.into_iter().map(|line| String::from_utf8_lossy(&line.text).into_owned()));
    }
}

fn texts(numbers: std::ops::Range<usize>) -> Vec<String> {
    numbers.map(|number| format!("line {number}")).collect()
}

#[tokio::test]
async fn a_log_of_many_parts_is_whole_and_in_order() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("0.log");
    let lines = |numbers: std::ops::Range<usize>| numbers.map(line).collect::<String>();
    append(&dir.path().join("0.log.20260102-030400"), &lines(0..2000));
    append(&path, &lines(2000..5000));
    let logs = HostContainerLogs::default();
    for (tail, expected) in [
        (None, texts(0..5000)),
        (Some(0), texts(0..0)),
        (Some(3), texts(4997..5000)),
        (Some(3500), texts(1500..5000)),
        (Some(u64::MAX), texts(0..5000)),
    ] {
        for follow in [false, true] {
            let selection = ContainerLogSelection { tail, since: None, follow };
            let mut log = logs.open(path.to_str().expect("text"), selection).await.expect("opens");
            assert_eq!(all(&mut *log).await, expected, "tail {tail:?}, follow {follow}");
        }
    }
    let since = ports::ApiTime::parse("2026-01-02T03:04:05.000004998Z");
    let selection = ContainerLogSelection { since, ..ContainerLogSelection::default() };
    let mut log = logs.open(path.to_str().expect("text"), selection).await.expect("opens");
    assert_eq!(all(&mut *log).await, texts(4998..5000));
}

#[tokio::test]
async fn a_followed_log_wakes_its_reader_and_goes_on_in_the_next_file() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("0.log");
    append(&path, &line(0));
    let selection = ContainerLogSelection { follow: true, ..ContainerLogSelection::default() };
    let logs = HostContainerLogs::default();
    let mut log = logs.open(path.to_str().expect("text"), selection).await.expect("opens");
    assert_eq!(all(&mut *log).await, texts(0..1));
    append(&path, &line(1));
    timeout(Duration::from_secs(10), log.changed()).await.expect("wakes").expect("watched");
    assert_eq!(all(&mut *log).await, texts(1..2));
    append(&path, &(2..2000).map(line).collect::<String>());
    std::fs::rename(&path, dir.path().join("0.log.20260102-030400")).expect("rotated");
    append(&path, &(2000..2003).map(line).collect::<String>());
    assert_eq!(all(&mut *log).await, texts(2..2003));
}

#[tokio::test]
async fn a_missing_log_is_an_error_with_its_path() {
    let logs = HostContainerLogs::default();
    for follow in [false, true] {
        let selection = ContainerLogSelection { follow, ..ContainerLogSelection::default() };
        let Err(error) = logs.open("/no/such/0.log", selection).await else { panic!("it opens") };
        assert!(error.to_string().contains("/no/such/0.log"), "{error}");
    }
}
