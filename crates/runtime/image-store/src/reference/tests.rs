//! A table of valid names and their normal form, a table of invalid names, and two properties.

use proptest::prelude::*;

use super::ImageReference;

const HEX: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

#[test]
fn short_names_expand_to_full_references() {
    let by_digest = format!("busybox@sha256:{HEX}");
    let by_digest_whole = format!("docker.io/library/busybox@sha256:{HEX}");
    let both = format!("quay.io/a/b:v1@sha256:{HEX}");
    let rows: &[(&str, &str)] = &[
        ("busybox", "docker.io/library/busybox:latest"),
        ("busybox:1.37", "docker.io/library/busybox:1.37"),
        ("library/busybox", "docker.io/library/busybox:latest"),
        ("someone/thing", "docker.io/someone/thing:latest"),
        ("docker.io/busybox", "docker.io/library/busybox:latest"),
        ("index.docker.io/busybox", "docker.io/library/busybox:latest"),
        ("docker.io/a/b/c:x", "docker.io/a/b/c:x"),
        ("registry.k8s.io/pause:3.10.2", "registry.k8s.io/pause:3.10.2"),
        ("localhost/a", "localhost/a:latest"),
        ("localhost:5000/a", "localhost:5000/a:latest"),
        ("localhost:5000/a:b", "localhost:5000/a:b"),
        ("127.0.0.1:80/a/b", "127.0.0.1:80/a/b:latest"),
        ("[::1]:5000/a", "[::1]:5000/a:latest"),
        ("[2001:db8::1]/a", "[2001:db8::1]/a:latest"),
        ("Host/a", "Host/a:latest"),
        ("a-b/c--d/e__f/g.h_i", "docker.io/a-b/c--d/e__f/g.h_i:latest"),
        ("busybox:_Tag.1-x", "docker.io/library/busybox:_Tag.1-x"),
        (&by_digest, &by_digest_whole),
        (&both, &both),
    ];
    for (typed, whole) in rows {
        let reference = ImageReference::parse(typed).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(reference.to_string(), *whole, "{typed}");
        assert_eq!(ImageReference::parse(whole).unwrap(), reference, "{whole} again");
    }
}

#[test]
fn other_texts_are_refused_with_the_reason() {
    let long_tag = format!("a:{}", "t".repeat(129));
    let long_name = format!("example.com/{}", "n".repeat(244));
    let id = HEX.to_owned();
    let short_digest = format!("a@sha256:{}", &HEX[1..]);
    let rows: &[(&str, &str)] = &[
        ("", "empty"),
        (":tag", "no repository"),
        ("@", "no sha256"),
        ("a:", "tag is empty"),
        ("a:-x", "tag starts"),
        ("a:b c", "tag has"),
        ("a:b:c", "tag has"),
        ("a:é", "tag starts"),
        (&long_tag, "128"),
        (&long_name, "255"),
        (&id, "image id"),
        (&short_digest, "no sha256"),
        ("a@sha512:00", "no sha256"),
        ("/a", "empty part"),
        ("a/", "empty part"),
        ("a//b", "empty part"),
        ("docker.io/", "empty part"),
        ("a/B", "lower-case"),
        ("a/b c", "something else"),
        ("../a", "host name"),
        ("a/../b", "joined"),
        ("a/.b", "joined"),
        ("a/b.", "joined"),
        ("a/b..c", "joined"),
        ("a/b___c", "joined"),
        ("a/b._c", "joined"),
        ("-a.b/c", "host name"),
        ("a..b/c", "host name"),
        ("a.b:x/c", "port"),
        ("a.b:/c", "port"),
        ("a.b:123456/c", "port"),
        ("[::1/c", "host name"),
        ("[]/c:x", "something else"),
        ("[:]x/c", "host name"),
        ("a\u{0}", "something else"),
    ];
    for (typed, reason) in rows {
        match ImageReference::parse(typed) {
            Ok(taken) => panic!("{typed:?} was taken as {taken}"),
            Err(error) => {
                assert!(error.reason.contains(reason), "{typed:?}: {error}, expected {reason}");
            }
        }
    }
}

#[test]
fn the_parts_of_a_name() {
    let reference = ImageReference::parse(&format!("quay.io/a/b:v1@sha256:{HEX}")).unwrap();
    assert_eq!(reference.registry(), "quay.io");
    assert_eq!(reference.repository(), "a/b");
    assert_eq!(reference.tag(), Some("v1"));
    assert_eq!(reference.tagged().as_deref(), Some("quay.io/a/b:v1"));
    let digest = *reference.digest().unwrap();
    assert_eq!(reference.at_digest(&digest), format!("quay.io/a/b@sha256:{HEX}"));
}

proptest! {
    /// Parsing never panics, and a parsed name prints as a text that parses to the same name.
    #[test]
    fn accepted_names_parse_back_to_themselves(text in "[a-zA-Z0-9.:/@_\\[\\]-]{0,40}") {
        if let Ok(reference) = ImageReference::parse(&text) {
            prop_assert_eq!(ImageReference::parse(&reference.to_string()), Ok(reference));
        }
    }

    #[test]
    fn arbitrary_text_does_not_panic(text in "\\PC*") {
        let _ = ImageReference::parse(&text);
    }
}
