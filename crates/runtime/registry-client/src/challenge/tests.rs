//! Headers of known registries, and odd ones.

use super::*;

fn parse_one(header: &str) -> Option<Challenge> {
    best(&[header.to_owned()])
}

fn bearer(realm: &str, service: Option<&str>, scope: Option<&str>) -> Option<Challenge> {
    let text = |text: &str| text.to_owned();
    Some(Challenge::Bearer {
        realm: text(realm),
        service: service.map(text),
        scope: scope.map(text),
    })
}

#[test]
fn tokens_are_preferred_and_commas_in_quotes_kept() {
    let header = r#"Bearer realm="https://auth.example/token",service="registry",scope="repository:a/b:pull,push""#;
    let expected =
        bearer("https://auth.example/token", Some("registry"), Some("repository:a/b:pull,push"));
    assert_eq!(parse_one(header), expected);
    let both = format!(r#"Basic realm="x", {header}"#);
    assert_eq!(parse_one(&both), expected);
    assert_eq!(best(&["Basic realm=x".to_owned(), header.to_owned()]), expected);
    assert_eq!(parse_one("bearer realm=https://a/t"), bearer("https://a/t", None, None));
    assert_eq!(parse_one(r#"Bearer realm="a\"b""#), bearer("a\"b", None, None));
}

#[test]
fn a_header_without_a_usable_challenge_gives_none() {
    assert_eq!(parse_one("Basic"), Some(Challenge::Basic));
    assert_eq!(parse_one(r#"Basic realm="Registry Realm""#), Some(Challenge::Basic));
    for header in ["", "Negotiate", "Bearer", "Bearer service=x", ",,,", "\"", "=", "a=b"] {
        assert_eq!(parse_one(header), None, "{header:?}");
    }
}
