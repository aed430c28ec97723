//! Against hashes that the reference's own function gave.

use super::*;

#[test]
fn hashes_are_those_of_the_reference() {
    for (name, image, hash) in [
        ("test_container", "foo/image:v1", "8e45cbd0"),
        ("web", "nginx", "9690f4d"),
        ("app", "a<b>&c", "89bb441"),
        ("a", "x<y>&\u{2028}", "c1baf07c"),
        ("x\"y", "\u{e9}", "16207704"),
    ] {
        let container =
            Container { name: name.into(), image: image.into(), ..Container::default() };
        assert_eq!(container_hash_text(&container), hash, "{name} {image}");
    }
}

#[test]
fn only_name_and_image_change_the_hash() {
    let plain = Container { name: "a".into(), image: "b".into(), ..Container::default() };
    let other = Container { command: vec!["sh".into()], stdin: true, ..plain.clone() };
    assert_eq!(container_hash(&plain), container_hash(&other));
    assert_ne!(
        container_hash(&plain),
        container_hash(&Container { image: "c".into(), ..plain.clone() })
    );
}
