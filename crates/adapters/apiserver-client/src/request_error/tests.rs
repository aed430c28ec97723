//! Error responses and what they mean, table-driven.

use super::*;

fn classified(code: u16, body: &str, retry: Option<u64>) -> String {
    let error =
        ApiStatus::parse(body.as_bytes()).into_error("GET x", code, retry.map(Duration::from_secs));
    let text = format!("{error:?}");
    text.split([' ', '{']).next().unwrap_or_default().to_owned()
}

#[test]
fn status_codes_and_reasons_map_to_errors() {
    let exists = r#"{"kind":"Status","reason":"AlreadyExists","message":"m"}"#;
    let conflict = r#"{"kind":"Status","reason":"Conflict","message":"m"}"#;
    for (code, body, expected) in [
        (404, "", "NotFound"),
        (409, exists, "AlreadyExists"),
        (409, conflict, "Conflict"),
        (409, "<html>", "Conflict"),
        (410, "", "Expired"),
        (401, "", "Unauthenticated"),
        (403, "", "Refused"),
        (422, "", "Refused"),
        (400, "", "Refused"),
        (302, "", "Refused"),
        (429, "", "Throttled"),
        (500, "", "ServerError"),
        (503, "", "ServerError"),
        (599, "", "ServerError"),
    ] {
        assert_eq!(classified(code, body, None), expected, "{code} {body}");
    }
}

#[test]
fn the_pause_is_the_headers_or_the_bodys_or_a_second() {
    let body = r#"{"kind":"Status","details":{"retryAfterSeconds":7}}"#;
    let long = r#"{"kind":"Status","details":{"retryAfterSeconds":18446744073709551615}}"#;
    for (body, header, expected) in [
        (body, Some(3), 3),
        (body, None, 7),
        ("", None, 1),
        ("", Some(0), 0),
        ("", Some(60), 60),
        ("", Some(61), 60),
        ("", Some(u64::MAX), 60),
        (long, None, 60),
    ] {
        let error = ApiStatus::parse(body.as_bytes()).into_error(
            "GET x",
            429,
            header.map(Duration::from_secs),
        );
        let expected = Duration::from_secs(expected);
        let request = "GET x".to_owned();
        assert_eq!(error, ClusterApiError::Throttled { request, retry_after: expected });
    }
}

#[test]
fn only_numbers_of_seconds_are_taken_from_the_header() {
    for (text, expected) in [
        (Some("5"), Some(5)),
        (Some(" 5 "), Some(5)),
        (Some("-5"), None),
        (Some("Wed, 21 Oct 2026 07:28:00 GMT"), None),
        (Some("99999999999999999999999"), None),
        (None, None),
    ] {
        let found = retry_after(text.map(str::as_bytes));
        assert_eq!(found, expected.map(Duration::from_secs), "{text:?}");
    }
}

#[test]
fn foreign_text_is_truncated_to_one_line() {
    let page = format!("<html>\n\u{1b}[31m{}", "x".repeat(10_000));
    let error = ApiStatus::parse(page.as_bytes()).into_error("GET x", 502, None).to_string();
    assert!(error.len() < 500 && !error.contains(['\n', '\u{1b}']), "{error}");
    assert!(error.contains("<html>"), "{error}");
    let _ = ApiStatus::parse(b"\xff\xfe{").into_error("GET x", 500, None);
}
