//! Valid and hostile URLs and redirects.

use super::*;

#[test]
fn addresses_are_parsed() {
    let address = HttpUrl::parse("https://Registry.example/v2/?x=1#f").unwrap();
    assert_eq!((address.secure, &*address.host, address.port), (true, "Registry.example", 443));
    assert_eq!(address.path, "/v2/?x=1");
    assert_eq!(address.to_string(), "https://Registry.example/v2/");
    let address = HttpUrl::parse("http://[::1]:5000").unwrap();
    assert_eq!((&*address.host, address.port, &*address.path), ("::1", 5000, "/"));
    assert_eq!(address.authority(), "[::1]:5000");
    for wrong in [
        "",
        "ftp://x",
        "https://",
        "https://:80",
        "https://a:b",
        "https://a:99999",
        "https://user:secret@host/",
        "https://a b/",
        "https://a/\r\nx: y",
        "https://[::1",
    ] {
        assert!(HttpUrl::parse(wrong).is_err(), "{wrong:?}");
    }
}

#[test]
fn redirects_are_resolved_against_their_origin() {
    let from = HttpUrl::parse("https://a.example:444/v2/x/blobs/d?q=1").unwrap();
    for (location, expected) in [
        ("https://b.example/y", "https://b.example/y"),
        ("/y", "https://a.example:444/y"),
        ("//c.example/y", "https://c.example/y"),
        ("y", "https://a.example:444/v2/x/blobs/y"),
        ("http-like", "https://a.example:444/v2/x/blobs/http-like"),
    ] {
        assert_eq!(from.follow(location).unwrap().to_string(), expected, "{location}");
    }
    assert!(from.same_origin(&HttpUrl::parse("https://A.example:444/z").unwrap()));
    assert!(!from.same_origin(&HttpUrl::parse("https://a.example/z").unwrap()));
    assert!(!from.same_origin(&HttpUrl::parse("http://a.example:444/z").unwrap()));
}

#[test]
fn loopback_hosts_are_recognised() {
    for (host, expected) in [
        ("localhost", true),
        ("127.0.0.1", true),
        ("127.9.9.9", true),
        ("::1", true),
        ("[::1]", true),
        ("localhost.example", false),
        ("10.0.0.1", false),
    ] {
        assert_eq!(is_loopback_host(host), expected, "{host}");
    }
}
