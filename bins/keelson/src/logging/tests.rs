//! Lines compared exactly, on a fixed clock.

use super::record::LogSeverity;
use super::*;
use jiff::tz::{Offset, TimeZone};
use std::sync::{Arc, Mutex};
use std::time::{Duration, UNIX_EPOCH};
use tracing::{debug, error, info, info_span, trace, warn};

#[derive(Clone, Default)]
struct Captured(Arc<Mutex<Vec<(LogSeverity, String)>>>);

impl LineSink for Captured {
    fn write(&self, severity: LogSeverity, line: String) {
        self.0.lock().unwrap().push((severity, line));
    }
}

fn verbosity(level: u64, files: &[(&str, u64)]) -> Verbosity {
    let files = files
        .iter()
        .map(|(pattern, level)| FilePattern { pattern: (*pattern).to_owned(), level: *level });
    Verbosity { level, files: files.collect() }
}

/// What `events` write. The time is 2023-11-15 22:53:01.123456 UTC, two hours later here.
fn captured(format: LogFormat, verbosity: Verbosity, events: impl FnOnce()) -> String {
    let captured = Captured::default();
    let context = LogContext {
        process: 1234,
        clock: Box::new(|| UNIX_EPOCH + Duration::from_nanos(1_700_088_781_123_456_789)),
        time_zone: TimeZone::fixed(Offset::constant(1)),
    };
    let form = Arc::new(LineForm::new(format, context));
    let layer = LogLayer::new(verbosity, form, Box::new(captured.clone()));
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), events);
    let lines = captured.0.lock().unwrap();
    lines.iter().map(|(_, line)| line.as_str()).collect()
}

fn text(events: impl FnOnce()) -> String {
    captured(LogFormat::Text, Verbosity::default(), events)
}

fn json(events: impl FnOnce()) -> String {
    captured(LogFormat::Json, Verbosity::default(), events)
}

#[test]
fn text_lines_are_klogs() {
    let line = line!() + 3;
    let written = text(|| {
        let bytes: &[u8] = &[1];
        info!(pod = "kube-system/dns", attempts = 3, ready = false, took = ?bytes, "Pod \"started\"");
        warn!(err = "no such file", "Falling back");
        error!(path = "/a", err = "denied", "Failed");
        error!(fatal = true, "Giving up");
    });
    let expected = format!(
        "I1115 23:53:01.123456    1234 tests.rs:{}] \"Pod \\\"started\\\"\" \
         pod=\"kube-system/dns\" attempts=3 ready=false took=\"[1]\"\n\
         W1115 23:53:01.123456    1234 tests.rs:{}] \"Falling back\" err=\"no such file\"\n\
         E1115 23:53:01.123456    1234 tests.rs:{}] \"Failed\" err=\"denied\" path=\"/a\"\n\
         F1115 23:53:01.123456    1234 tests.rs:{}] \"Giving up\"\n",
        line,
        line + 1,
        line + 2,
        line + 3
    );
    assert_eq!(written, expected);
}

#[test]
fn text_quotes_as_go_does_and_indents_values_of_several_lines() {
    let message =
        "tab\t bell\u{7} esc\u{1b} del\u{7f} nbsp\u{a0} é e\u{301} 漢 \u{e000} \u{10ffff}\\";
    let written = text(|| info!(several = "one\ntwo\n", after = "x\ny", "{message}"));
    let (_, rest) = written.split_once("] ").unwrap();
    let expected = "\"tab\\t bell\\a esc\\x1b del\\x7f nbsp\\u00a0 é e\u{301} 漢 \\ue000 \
                    \\U0010ffff\\\\\" several=<\n\tone\n\ttwo\n > after=<\n\tx\n\ty\n >\n";
    assert_eq!(rest, expected);
}

#[test]
fn json_lines_are_component_bases() {
    let line = line!() + 2;
    let written = json(|| {
        info!(pod = "a\n\"b\"", attempts = 3, share = 0.5, ready = true, "Started");
        warn!(err = "gone", count = 1_u64, "Falling back");
        error!(path = "/a", err = "denied", "Failed");
    });
    let prefix = "{\"ts\":1700088781123.4568,\"caller\":\"keelson/tests.rs";
    let expected = format!(
        "{prefix}:{}\",\"msg\":\"Started\",\"v\":0,\"pod\":\"a\\n\\\"b\\\"\",\"attempts\":3,\
         \"share\":0.5,\"ready\":true}}\n\
         {prefix}:{}\",\"msg\":\"Falling back\",\"v\":0,\"count\":1,\"err\":\"gone\"}}\n\
         {prefix}:{}\",\"msg\":\"Failed\",\"path\":\"/a\",\"err\":\"denied\"}}\n",
        line,
        line + 1,
        line + 2
    );
    assert_eq!(written, expected);
}

fn one_event_per_verbosity() {
    info!("zero");
    info!(v = 2, "two");
    debug!("four");
    trace!("six");
    info!(v = 10, "ten");
}

fn messages(level: u64, files: &[(&str, u64)]) -> Vec<String> {
    captured(LogFormat::Text, verbosity(level, files), one_event_per_verbosity)
        .lines()
        .map(|line| line.split('"').nth(1).unwrap().to_owned())
        .collect()
}

#[test]
fn verbosity_opens_step_by_step() {
    assert_eq!(messages(0, &[]), ["zero"]);
    assert_eq!(messages(2, &[]), ["zero", "two"]);
    assert_eq!(messages(5, &[]), ["zero", "two", "four"]);
    assert_eq!(messages(6, &[]), ["zero", "two", "four", "six"]);
    assert_eq!(messages(10, &[]), ["zero", "two", "four", "six", "ten"]);
}

#[test]
fn vmodule_raises_the_verbosity_of_a_file_but_never_lowers_it() {
    assert_eq!(messages(0, &[("tests", 4)]), ["zero", "two", "four"]);
    assert_eq!(messages(0, &[("t*s", 2), ("tests", 10)]), ["zero", "two"]);
    assert_eq!(messages(0, &[("test", 10), ("other*", 10)]), ["zero"]);
    assert_eq!(messages(4, &[("tests", 0)]), ["zero", "two", "four"]);
}

#[test]
fn a_lower_verbosity_shows_in_json() {
    let written = captured(LogFormat::Json, verbosity(10, &[]), || info!(v = 7, "seven"));
    assert!(written.contains("\"msg\":\"seven\",\"v\":7}"), "{written}");
}

#[test]
fn values_of_spans_come_first_and_the_inner_of_two_equal_names_wins() {
    let written = text(|| {
        info_span!("task", task = "watch", try_number = 1).in_scope(|| {
            info_span!("inner", try_number = 2).in_scope(|| info!(own = true, "Inside"));
        });
    });
    let (_, rest) = written.split_once("] ").unwrap();
    assert_eq!(rest, "\"Inside\" task=\"watch\" tryNumber=2 own=true\n");
}

#[test]
fn secrets_are_masked_by_name_and_by_form() {
    let written = text(|| {
        info_span!("span", apiKey = "s3cr3t").in_scope(|| {
            info!(
                token = "s3cr3t",
                bootstrap_token = "s3cr3t",
                password = 5,
                Authorization = "Basic s3cr3t",
                private_key = "s3cr3t",
                secret_name = "db",
                header = "Authorization: Bearer s3cr3ts3cr3t, x",
                url = "https://me:s3cr3t@host/path?x=a@b",
                err = "401 for https://me:s3cr3t@host",
                flag = "--manifest-url=\"https://host/path?token=s3cr3t#s3cr3t\" --v=2",
                plain = "https://host/path#s3cr3t",
                "sent Bearer s3cr3ts3cr3t"
            );
        });
    });
    assert!(!written.contains("s3cr3t"), "{written}");
    assert!(written.contains("secretName=\"db\""), "{written}");
    assert!(written.contains("header=\"Authorization: Bearer <masked>, x\""), "{written}");
    assert!(written.contains("url=\"https://<masked>@host/path?<masked>\""), "{written}");
    assert!(written.contains("https://host/path?<masked>\\\" --v=2"), "{written}");
    assert!(written.contains("plain=\"https://host/path#<masked>\""), "{written}");
    assert!(written.contains("password=\"<masked>\""), "{written}");
}

#[test]
fn harmless_names_and_texts_stay() {
    for name in ["task", "tokenizer", "secretName", "token_file", "keys", "monkey", "key"] {
        assert!(!secrets::is_secret_name(name), "{name}");
    }
    for name in ["token", "authToken", "X-Auth-Token", "client_secret", "apiKey", "key_data"] {
        assert!(secrets::is_secret_name(name), "{name}");
    }
    for harmless in ["Basic auth is off", "unix:///run/a@b.sock", "", "a://b", "Bearer x"] {
        assert_eq!(secrets::mask_text(harmless), harmless);
    }
}

#[test]
fn patterns_match_as_gos_do() {
    for (pattern, name, expected) in [
        ("watch", "watch", true),
        ("watch", "watchdog", false),
        ("watch*", "watchdog", true),
        ("*", "", true),
        ("*dog", "watchdog", true),
        ("w?tch", "watch", true),
        ("w?tch", "wtch", false),
        ("[a-c]x", "bx", true),
        ("[^a-c]x", "bx", false),
        ("[^a-c]x", "dx", true),
        ("[]x", "]x", false),
        ("[a", "a", false),
        ("a\\*", "a*", true),
        ("a\\*", "ab", false),
        ("a\\", "a", false),
        ("a*b*c", "aXbYbZc", true),
        ("*", "a/b", false),
    ] {
        assert_eq!(glob::matches(pattern, name), expected, "{pattern} on {name}");
    }
}

#[test]
fn a_panic_is_a_line_of_the_log_with_place_and_task() {
    let line = line!() + 4;
    let before = std::panic::take_hook();
    report_panics();
    let written = text(|| {
        let panicked = std::panic::catch_unwind(|| panic!("boom {}", 1));
        assert!(panicked.is_err());
    });
    std::panic::set_hook(before);
    let (head, rest) = written.split_once("] ").unwrap();
    assert!(head.starts_with('E'), "{written}");
    let expected = "\"Observed a panic\" task=\"none\" panic=\"boom 1\" \
                    location=\"bins/keelson/src/logging/tests.rs:";
    assert!(rest.starts_with(&format!("{expected}{line}:")), "{written}");
}
