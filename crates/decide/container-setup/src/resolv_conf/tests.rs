//! Resolver files, good and odd.

use super::*;
use crate::testing::texts;

#[test]
fn files_are_read() {
    type ResolvConfRow<'a> = (&'a str, &'a [&'a str], &'a [&'a str], &'a [&'a str]);
    let rows: [ResolvConfRow<'_>; 20] = [
        ("", &[], &[], &[]),
        (" ", &[], &[], &[]),
        ("nameserver 1.2.3.4", &["1.2.3.4"], &[], &[]),
        ("nameserver\t1.2.3.4", &["1.2.3.4"], &[], &[]),
        ("nameserver \t 1.2.3.4 ignored", &["1.2.3.4"], &[], &[]),
        ("nameserver 1.2.3.4\nnameserver 5.6.7.8", &["1.2.3.4", "5.6.7.8"], &[], &[]),
        ("\n\nnameserver 1.2.3.4\r\n\n", &["1.2.3.4"], &[], &[]),
        ("nameserver 1.2.3.4 #comment", &["1.2.3.4"], &[], &[]),
        ("#nameserver 1.2.3.4\n # nameserver 5.6.7.8", &[], &[], &[]),
        ("nameserverX 1.2.3.4", &[], &[], &[]),
        ("search ", &[], &[], &[]),
        ("search .", &[], &[], &[]),
        ("search foo", &[], &["foo"], &[]),
        ("search foo bar bat.com.", &[], &["foo", "bar", "bat.com"], &[]),
        ("search foo\nsearch bar", &[], &["bar"], &[]),
        ("search foo\nsearch", &[], &[], &[]),
        ("options ", &[], &[], &[]),
        ("options ndots:5 attempts:2", &[], &[], &["ndots:5", "attempts:2"]),
        ("options ndots:1 rotate\noptions ndots:3", &[], &[], &["ndots:3", "rotate"]),
        ("options a a:1 a:2 a:3", &[], &[], &["a:3"]),
    ];
    for (content, servers, searches, options) in rows {
        let expected = ResolvConf {
            servers: texts(servers),
            searches: texts(searches),
            options: texts(options),
        };
        assert_eq!(parse(content.as_bytes()), Ok(expected), "{content:?}");
    }
    let lossy = parse(b"nameserver \xff\n").expect("read all the same");
    assert_eq!(lossy.servers, ["\u{fffd}"]);
}

#[test]
fn a_server_without_an_address_is_refused() {
    for content in
        ["nameserver", "nameserver \nnameserver 1.2.3.4", "nameserver 1.1.1.1\nnameserver"]
    {
        let error = parse(content.as_bytes()).expect_err(content).to_string();
        assert_eq!(
            error,
            "Encountered error while parsing resolv conf file. Error: nameserver list is empty "
        );
    }
}
