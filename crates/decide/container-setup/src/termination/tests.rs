//! Messages from files and from logs, with their caps.

use super::*;
use crate::testing::{first, one, pod};
use ports::runtime_objects::Mount;

fn exited(policy: &str, exit_code: i32) -> ContainerRecord {
    let note = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    ContainerRecord {
        state: ContainerState::Exited,
        exit_code,
        log_path: "/log/0.log".into(),
        annotations: [
            note(identity::TERMINATION_MESSAGE_PATH, "/dev/termination-log"),
            note(identity::TERMINATION_MESSAGE_POLICY, policy),
        ]
        .into(),
        mounts: vec![Mount {
            container_path: "/dev/termination-log".into(),
            host_path: "/pods/m".into(),
            ..Default::default()
        }],
        ..Default::default()
    }
}

const FALLBACK: &str = "FallbackToLogsOnError";

#[test]
fn termination_sources_follow_the_policy() {
    let cannot_run = ContainerRecord { reason: "ContainerCannotRun".into(), ..exited(FALLBACK, 1) };
    let running = ContainerRecord { state: ContainerState::Running, ..exited(FALLBACK, 1) };
    let elsewhere = ContainerRecord { mounts: vec![Mount::default()], ..exited("File", 1) };
    let mut placeless = exited("File", 1);
    placeless.annotations.insert(identity::TERMINATION_MESSAGE_PATH.into(), String::new());
    placeless.mounts[0].container_path = "/".into();
    let mut relative = exited("File", 1);
    relative
        .annotations
        .insert(identity::TERMINATION_MESSAGE_PATH.into(), "dev/termination-log".into());
    for (record, file, log) in [
        (exited("File", 1), true, false),
        (exited(FALLBACK, 1), true, true),
        (exited(FALLBACK, 0), true, false),
        (cannot_run, true, false),
        (running, false, false),
        (elsewhere, false, false),
        (placeless, false, false),
        (relative, true, false),
    ] {
        let expected = TerminationSources {
            file: file.then(|| "/pods/m".to_owned()),
            log: log.then(|| "/log/0.log".to_owned()),
        };
        assert_eq!(sources(&record), expected, "{record:?}");
    }
}

#[test]
fn the_termination_message_comes_from_the_file_or_the_log() {
    let log = || Some(Ok((b"2026-01-02T03:04:05.000000000Z stderr F boom\n".to_vec(), true)));
    let file = |text: &str| Some(Ok(text.as_bytes().to_vec()));
    let wrong = || Some(Err("no such device".to_owned()));
    for (readings, expected) in [
        (TerminationReadings::default(), ""),
        (TerminationReadings { file: file("bye"), log: None }, "bye"),
        (TerminationReadings { file: file("bye"), log: log() }, "bye"),
        (TerminationReadings { file: file(""), log: log() }, "boom\n"),
        (TerminationReadings { file: None, log: log() }, "boom\n"),
        (TerminationReadings { file: file(""), log: None }, ""),
        (
            TerminationReadings { file: wrong(), log: log() },
            "Error on reading termination log /pods/m: no such device",
        ),
        (
            TerminationReadings { file: None, log: Some(Err("gone".into())) },
            "Error on reading termination message from logs: gone",
        ),
    ] {
        // The runtime's message is added by the caller from the record; here it would be
        // duplicated.
        let record = ContainerRecord { message: "oom".into(), ..exited(FALLBACK, 1) };
        assert_eq!(
            read_termination_message(&sources(&record), &readings),
            expected,
            "{readings:?}"
        );
    }
    let long = TerminationReadings { file: file(&format!("x{}", "y".repeat(FILE_CAP))), log: None };
    assert_eq!(read_termination_message(&sources(&exited("File", 1)), &long), "y".repeat(FILE_CAP));
}

fn line(tag: &str, text: &str) -> String {
    format!("2026-01-02T03:04:05.000000000Z stdout {tag} {text}\n")
}

#[test]
fn ends_of_logs() {
    for (log, is_whole, expected) in [
        (String::new(), true, String::new()),
        (line("F", "a"), true, "a\n".to_owned()),
        (line("F", "a") + &line("F", "b"), true, "a\nb\n".to_owned()),
        (line("P", "a") + &line("F", "b"), true, "ab\n".to_owned()),
        (line("F", "a") + &line("P", "b"), true, "a\nb".to_owned()),
        (line("F", ""), true, "\n".to_owned()),
        (line("F", "a").trim_end().to_owned(), true, "a\n".to_owned()),
        ("garbage\n".to_owned() + &line("F", "a"), true, "a\n".to_owned()),
        ("rest of a line\n".to_owned() + &line("F", "a"), false, "rest of a line\na\n".to_owned()),
        (line("F", "a") + "garbage\n" + &line("F", "b"), false, "a\nb\n".to_owned()),
    ] {
        assert_eq!(end_of_log(log.as_bytes(), is_whole), expected, "{log:?}");
    }
}

#[test]
fn ends_of_logs_are_capped_by_lines_and_bytes() {
    let many: String = (0..100).map(|number| line("F", &number.to_string())).collect();
    let expected: String = (20..100).map(|number| format!("{number}\n")).collect();
    assert_eq!(end_of_log(many.as_bytes(), true), expected);
    let long: String = (0..10).map(|_| line("F", &"x".repeat(300))).collect();
    let end = end_of_log(long.as_bytes(), true);
    assert_eq!(end.len(), LOG_CAP);
    assert!(end.ends_with("x\n"));
    assert_eq!(end_of_log(&[b'\xff'; 3], false), "\u{fffd}\u{fffd}\u{fffd}\n");
}

#[test]
fn the_tail_that_is_read_holds_all_that_counts() {
    assert_eq!((FILE_CAP, LOG_CAP), (4096, 2048), "as upstream");
    assert_eq!(LOG_TAIL, 12 << 10, "and not much more");
    // Whatever the lines' lengths, the end of the whole log is the end of its tail.
    for length in [0, 1, 10, 24, 25, 26, 100, 2047, 2048, 5000, 20_000] {
        let log: String = (0..300).map(|_| line("F", &"z".repeat(length))).collect();
        let tail = &log.as_bytes()[log.len().saturating_sub(LOG_TAIL)..];
        let is_whole = tail.len() == log.len();
        assert_eq!(end_of_log(tail, is_whole), end_of_log(log.as_bytes(), true), "{length}");
    }
}

#[test]
fn containers_of_a_pod_share_a_cap() {
    for (count, cap) in [(1, 12_288), (2, 6144), (5, 2457)] {
        let containers: Vec<String> =
            (0..count).map(|it| format!("{{name: c{it}, image: i}}")).collect();
        let pod = pod(&format!("{{containers: [{}]}}", containers.join(", ")));
        assert_eq!(cap_of_pod(&pod), cap);
    }
    let all = pod(
        "{initContainers: [{name: i, image: i}], containers: [{name: c, image: i}], ephemeralContainers: [{name: e, image: i}]}",
    );
    assert_eq!(cap_of_pod(&all), 4096);
    assert_eq!(cap_of_pod(&pod("{containers: []}")), 12_288);
    for (text, cap, expected) in [("abc", 3, "abc"), ("abc", 2, "ab"), ("aé", 2, "a"), ("", 0, "")]
    {
        assert_eq!(capped(text.to_owned(), cap), expected);
    }
}

#[test]
fn the_place_in_the_container() {
    for (container, expected) in [
        ("", None),
        ("terminationMessagePath: /dev/log", Some("/dev/log")),
        ("terminationMessagePath: log", Some("/log")),
    ] {
        assert_eq!(container_path(first(&one(container))).as_deref(), expected, "{container}");
    }
}
