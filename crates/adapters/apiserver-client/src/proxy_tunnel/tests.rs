//! The bytes of a `CONNECT` and of responses to it.

use super::*;

#[test]
fn a_connect_request_names_the_target_and_the_credentials() {
    let proxy = |text: &str| ProxyAddress::parse(text).expect("a proxy");
    let request = connect_request(&proxy("http://p"), "[fd00::1]:6443").expect("a request");
    assert_eq!(request, b"CONNECT [fd00::1]:6443 HTTP/1.1\r\nHost: [fd00::1]:6443\r\n\r\n");
    let request = connect_request(&proxy("http://me:pass@p"), "api:1").expect("a request");
    let expected = b"CONNECT api:1 HTTP/1.1\r\nHost: api:1\r\n\
                     Proxy-Authorization: Basic bWU6cGFzcw==\r\n\r\n";
    assert_eq!(request, expected);
    for target in ["a b:1", "a\r\nEvil: x:1", "ä:1"] {
        assert!(connect_request(&proxy("http://p"), target).is_err(), "{target:?}");
    }
}

#[test]
fn responses_to_connect_are_judged() {
    const OPEN: Option<Result<(), &str>> = Some(Ok(()));
    let long = format!("HTTP/1.1 200 OK\r\nX: {}", "x".repeat(MAX_HEAD_BYTES));
    let long_and_whole = format!("{long}\r\n\r\n");
    let chatty = format!("HTTP/1.1 403 {}\r\n\r\n", "x".repeat(5000));
    let table = [
        ("", None),
        ("HT", None),
        ("HTTP/1.1 200 OK\r\n", None),
        ("HTTP/1.1 200 OK\r\nVia: p\r\n\r", None),
        ("HTTP/1.1 200 OK\r\n\r\n", OPEN),
        ("HTTP/1.0 200 Connection established\r\nVia: p\r\n\r\n", OPEN),
        ("HTTP/1.1 204\r\n\r\n", OPEN),
        ("HTTP/1.1 200 OK\r\n\r\nearly", Some(Err("before the first request"))),
        ("HTTP/1.1 407 Who\r\nProxy-Authenticate: Basic\r\n\r\n", Some(Err("credentials (407)"))),
        ("HTTP/1.1 502 Bad Gateway\r\n\r\n<html>", Some(Err("refused CONNECT: 502 Bad Gateway"))),
        ("HTTP/1.1 403 no\u{1b}[1m\r\n\r\n", Some(Err("403 no [1m"))),
        ("HTTP/1.1 100 Continue\r\n\r\n", Some(Err("100 Continue"))),
        ("HTTP/1.1 302 Found\r\nLocation: /\r\n\r\n", Some(Err("302 Found"))),
        ("HTTP/1.1 2000 OK\r\n\r\n", Some(Err("not HTTP"))),
        ("HTTP/1.1 yes\r\n\r\n", Some(Err("not HTTP"))),
        ("HTTP/1.1\r\n\r\n", Some(Err("not HTTP"))),
        ("HTTP/2 200\r\n\r\n", Some(Err("not HTTP"))),
        ("SSH-2.0-x", Some(Err("not HTTP"))),
        ("\u{16}\u{3}\u{1}", Some(Err("not HTTP"))),
        (long.as_str(), Some(Err("longer than 16384"))),
        (long_and_whole.as_str(), Some(Err("longer than 16384"))),
        (chatty.as_str(), Some(Err("refused CONNECT: 403 xxx"))),
    ];
    for (received, expected) in table {
        let found = connect_outcome(received.as_bytes());
        match (&found, expected) {
            (None, None) | (Some(Ok(())), Some(Ok(()))) => {}
            (Some(Err(message)), Some(Err(part))) => {
                assert!(message.contains(part) && message.len() < 200, "{message}");
            }
            _ => panic!("{received:.60}: {found:?}, expected {expected:?}"),
        }
    }
}
