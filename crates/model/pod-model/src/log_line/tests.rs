//! Lines as runtimes write them, and lines that are none.

use super::*;

const TIME: &str = "2026-01-02T03:04:05.123456789Z";

fn read(rest: &str) -> Option<(LogStream, bool, String)> {
    let line = format!("{TIME} {rest}");
    let parsed = parse(line.as_bytes())?;
    assert_eq!(parsed.time, TIME);
    Some((parsed.stream, parsed.is_partial, String::from_utf8_lossy(parsed.text).into_owned()))
}

#[test]
fn lines_of_a_runtime_are_read() {
    use LogStream::{Stderr, Stdout};
    for (rest, expected) in [
        ("stdout F hello world", (Stdout, false, "hello world")),
        ("stderr F oh no", (Stderr, false, "oh no")),
        ("stdout P half a ", (Stdout, true, "half a ")),
        ("stdout F ", (Stdout, false, "")),
        ("stdout F", (Stdout, false, "")),
        ("stdout F  two spaces", (Stdout, false, " two spaces")),
        ("stdout P:later tags", (Stdout, true, "tags")),
    ] {
        let (stream, is_partial, text) = expected;
        assert_eq!(read(rest), Some((stream, is_partial, text.to_owned())), "{rest:?}");
    }
}

#[test]
fn other_text_is_no_line() {
    for rest in ["stdout", "stdin F x", "stdout X x", "", "F stdout x", "stdout FP x"] {
        assert_eq!(read(rest), None, "{rest:?}");
    }
    for line in ["", "hello", "not-a-time stdout F x", "{\"log\":\"x\"}", "   "] {
        assert_eq!(parse(line.as_bytes()), None, "{line:?}");
    }
    assert_eq!(parse(b"\xff\xfe stdout F x"), None);
}
