//! Files of docker's client, and which login an image gets.

use super::*;

fn logins(places: &[&str]) -> RegistryLogins {
    let auths: Map<String, Value> = places
        .iter()
        .map(|place| ((*place).to_owned(), serde_json::json!({"username": place})))
        .collect();
    RegistryLogins::parse(&serde_json::json!({ "auths": auths }).to_string()).unwrap()
}

fn names(places: &[&str], image: &str) -> Vec<String> {
    logins(places).matching(image).into_iter().map(|login| login.username).collect()
}

#[test]
fn entries_are_read_plain_and_encoded() {
    let text = r#"{"auths": {
        "a.example": {"auth": "bWU6c2U6Y3JldA=="},
        "b.example": {"auth": "bWU6c2U6Y3JldA"},
        "c.example": {"username": "me", "password": "se:cret", "email": "x@y"},
        "d.example": {"auth": "bWU6c2U6Y3JldA==", "username": "other"},
        "e.example": {"auth": " bWU6c2U6\r\nY3JldB==\n"}
    }, "credsStore": "x"}"#;
    let logins = RegistryLogins::parse(text).unwrap();
    assert!(!logins.is_empty());
    for image in ["a.example/i", "b.example/i", "c.example/i", "d.example/i", "e.example/i"] {
        let found = logins.matching(image);
        let [login] = found.as_slice() else { panic!("{image}: {found:?}") };
        assert_eq!((&*login.username, &*login.password), ("me", "se:cret"), "{image}");
    }
    let old = RegistryLogins::parse_old(r#"{"a.example": {"auth": "bWU6c2U6Y3JldA=="}}"#).unwrap();
    assert_eq!(old.matching("a.example/i").len(), 1);
    for nothing in ["{}", r#"{"auths": null}"#, r#"{"auths": {}}"#] {
        assert!(RegistryLogins::parse(nothing).unwrap().is_empty(), "{nothing}");
    }
}

#[test]
fn unreadable_logins_are_refused_without_leaking_content() {
    for bad in [
        "secret",
        "[]",
        r#"{"auths": "secret"}"#,
        r#"{"auths": {"a": "secret"}}"#,
        r#"{"auths": {"a": {"auth": "secret!"}}}"#,
        r#"{"auths": {"a": {"auth": "c2VjcmV0"}}}"#,
        r#"{"auths": {"a": {"auth": "c2VjcmV0==="}}}"#,
        r#"{"auths": {"a": {"auth": "bWU6c2U6Y3JldA="}}}"#,
        r#"{"auths": {"a": {"auth": 5, "password": "secret"}}}"#,
    ] {
        let why = RegistryLogins::parse(bad).unwrap_err().to_string();
        assert!(!why.contains("secret") && !why.contains("c2Vj"), "{bad}: {why}");
    }
    let shown =
        format!("{:?}", RegistryLogins::parse(r#"{"auths": {"a": {"password": "secret"}}}"#));
    assert!(shown.contains("\"a\"") && !shown.contains("secret"), "{shown}");
}

#[test]
fn an_image_gets_the_login_of_its_registry() {
    let one = |place: &str, image: &str| !names(&[place], image).is_empty();
    for (place, image, expected) in [
        ("r.example", "r.example/i:1", true),
        ("https://r.example", "r.example/i", true),
        ("http://r.example/", "r.example/i", true),
        ("https://r.example/v2/", "r.example/i", true),
        ("https://r.example/v1/team", "r.example/team/i", true),
        ("r.example/team", "r.example/team/i", true),
        ("r.example/team", "r.example/other/i", false),
        ("r.example:5000", "r.example:5000/i", true),
        ("r.example:5000", "r.example/i", false),
        ("r.example", "r.example:5000/i", false),
        ("*.example", "r.example/i", true),
        ("*.example", "a.r.example/i", false),
        ("r*y.example", "registry.example/i", true),
        ("r*y.example", "register.example/i", false),
        ("*a*b.example", "xaybb.example/i", true),
        ("*a*b.example", "xb.example/i", false),
        ("*ab*b.example", "xab.example/i", false),
        ("r.example", "s.example/i", false),
        ("index.docker.io", "busybox", true),
        ("https://index.docker.io/v1/", "library/busybox:1", true),
        ("index.docker.io", "docker.io/library/busybox", true),
        ("index.docker.io", "r.example/busybox", false),
        ("index.docker.io", "localhost:5000/busybox", false),
        ("docker.io", "busybox", true),
        ("docker.io/library", "docker.io/busybox", true),
        ("docker.io/library", "index.docker.io/busybox", true),
        ("docker.io/library", "index.docker.io/other/busybox", false),
        ("docker.io/library/busybox", "busybox@sha256:0", true),
        ("docker.io/other", "busybox", false),
        ("index.docker.io", "localhost/busybox", false),
        ("localhost", "localhost/busybox", true),
    ] {
        assert_eq!(one(place, image), expected, "{place} for {image}");
    }
}

#[test]
fn the_most_exact_comes_first() {
    let places = ["r.example", "r.example/team", "r.example/team/part", "*.example"];
    let expected = ["r.example/team/part", "r.example/team", "r.example", "*.example"];
    assert_eq!(names(&places, "r.example/team/part/i"), expected);
    assert_eq!(names(&["index.docker.io", "docker.io"], "docker.io/i"), ["docker.io"]);
}

#[test]
fn several_logins_of_one_place_are_tried_in_turn() {
    let login = |name: &str| RegistryLogin { username: name.to_owned(), ..Default::default() };
    let mut all = logins(&["r.example", "*.example"]);
    let mut more = RegistryLogins::default();
    more.add("https://r.example/v2/", login("second"));
    more.add("r.example/team", login("team"));
    all.extend(more);
    let found: Vec<String> =
        all.matching("r.example/team/i").into_iter().map(|login| login.username).collect();
    assert_eq!(found, ["team", "r.example", "second", "*.example"]);
    assert_eq!(all.matching("s.example/i").len(), 1);
}
