//! Valid and hostile URLs and redirects.

use super::*;

#[test]
fn addresses_are_taken_apart() {
    let address = Address::parse("https://Registry.example/v2/?x=1#f").unwrap();
    assert_eq!((address.secure, &*address.host, address.port), (true, "Registry.example", 443));
    assert_eq!(address.path, "/v2/?x=1");
    assert_eq!(address.to_string(), "https://Registry.example/v2/");
    let address = Address::parse("http://[::1]:5000").unwrap();
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
        assert!(Address::parse(wrong).is_err(), "{wrong:?}");
    }
}

#[test]
fn redirects_are_followed_from_where_they_came() {
    let from = Address::parse("https://a.example:444/v2/x/blobs/d?q=1").unwrap();
    for (location, expected) in [
        ("https://b.example/y", "https://b.example/y"),
        ("/y", "https://a.example:444/y"),
        ("//c.example/y", "https://c.example/y"),
        ("y", "https://a.example:444/v2/x/blobs/y"),
        ("http-like", "https://a.example:444/v2/x/blobs/http-like"),
    ] {
        assert_eq!(from.follow(location).unwrap().to_string(), expected, "{location}");
    }
    assert!(from.same_origin(&Address::parse("https://A.example:444/z").unwrap()));
    assert!(!from.same_origin(&Address::parse("https://a.example/z").unwrap()));
    assert!(!from.same_origin(&Address::parse("http://a.example:444/z").unwrap()));
}

#[test]
fn this_machine_is_known_by_its_names() {
    for (host, expected) in [
        ("localhost", true),
        ("127.0.0.1", true),
        ("127.9.9.9", true),
        ("::1", true),
        ("[::1]", true),
        ("localhost.example", false),
        ("10.0.0.1", false),
    ] {
        assert_eq!(is_this_machine(host), expected, "{host}");
    }
}
