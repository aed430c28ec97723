//! URLs, the targets of redirects, and request paths.

use super::*;

#[test]
fn urls_are_parsed_into_their_parts() {
    let rows = [
        ("http://a", "http://a/", 80, None),
        ("https://a.b/x?y=1#z", "https://a.b/x?y=1", 443, None),
        ("HTTP://a:8080/x y", "http://a:8080/x%20y", 8080, None),
        ("http://[::1]:80/", "http://[::1]:80/", 80, None),
        ("http://[::1]", "http://[::1]/", 80, None),
        ("http://u:p@a/", "http://a/", 80, Some("u:p")),
        ("http://a?q", "http://a/?q", 80, None),
        ("http://a:/", "http://a/", 80, None),
        ("http://a/ü", "http://a/%C3%BC", 80, None),
    ];
    for (given, url, port, user) in rows {
        let target = RequestTarget::parse(given).unwrap();
        assert_eq!((target.url().as_str(), target.port()), (url, port), "{given}");
        assert_eq!(target.user.as_deref(), user, "{given}");
    }
    for bad in ["", "a/b", "ftp://a/", "http://", "http:///x", "http://a:99999/", "http://::1/"] {
        assert!(RequestTarget::parse(bad).is_err(), "{bad}");
    }
}

#[test]
fn a_redacted_url_has_no_user_and_no_query() {
    let target = RequestTarget::parse("https://user:pass@a/x?token=s").unwrap();
    assert_eq!(target.redacted_url(), "https://a/x");
}

#[test]
fn redirects_resolve_as_in_rfc_3986() {
    let base = RequestTarget::parse("http://a:8080/b/c/d?q").unwrap();
    let rows = [
        ("http://x/y", "http://x/y"),
        ("https://x", "https://x/"),
        ("//x/y", "http://x/y"),
        ("/y", "http://a:8080/y"),
        ("y", "http://a:8080/b/c/y"),
        ("./y/.", "http://a:8080/b/c/y/"),
        ("../y", "http://a:8080/b/y"),
        ("../../../../y", "http://a:8080/y"),
        ("?z", "http://a:8080/b/c/d?z"),
        ("", "http://a:8080/b/c/d?q"),
        ("#f", "http://a:8080/b/c/d?q"),
        ("..", "http://a:8080/b/"),
        ("y:z", ""),
        ("javascript:x", ""),
        ("file:///etc/passwd", ""),
    ];
    for (location, url) in rows {
        let joined = base.join(location).map(|target| target.url()).unwrap_or_default();
        assert_eq!(joined, url, "{location}");
    }
}

#[test]
fn a_path_is_not_normalized_and_only_unsafe_bytes_are_escaped() {
    let rows = [
        ("", "/"),
        ("/healthz?x=1&y", "/healthz?x=1&y"),
        ("healthz", "/healthz"),
        ("/a/../b", "/a/../b"),
        ("/a b%20c%zz", "/a%20b%20c%25zz"),
        ("/%+5%-1%%41%4", "/%25+5%25-1%25%41%254"),
        ("/\u{e9}%\u{e9}|{a}\u{7f}~!'()*", "/%C3%A9%25%C3%A9%7C%7Ba%7D%7F~!'()*"),
        ("//other/x", "/x"),
        ("//other", "/"),
        ("/x#y", "/x"),
        ("?q", "/?q"),
    ];
    for (given, path) in rows {
        assert_eq!(RequestTarget::from_parts(false, "h", 1, given).path, path, "{given}");
    }
    assert_eq!(RequestTarget::from_parts(true, "::1", 443, "/").url(), "https://[::1]:443/");
}
