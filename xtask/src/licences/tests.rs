//! Each rule with a planted violation, and the project as it is.

use super::*;

fn facts(name: &str, licence: Option<&str>, source: Option<&str>) -> PackageFacts {
    PackageFacts {
        name: name.into(),
        version: "1.0.0".into(),
        licence: licence.map(Into::into),
        source: source.map(Into::into),
        shipped: true,
    }
}

#[test]
fn planted_breaches_are_found() {
    let planted = [
        (facts("ring", Some("MIT"), Some(CRATES_IO)), "banned"),
        (facts("a", Some("GPL-3.0-only"), Some(CRATES_IO)), "not allowed"),
        (facts("a", Some("MIT AND AGPL-3.0-only"), Some(CRATES_IO)), "not allowed"),
        (facts("a", None, Some(CRATES_IO)), "names no licence"),
        (facts("a", Some("as you like"), Some(CRATES_IO)), "cannot be read"),
        (facts("a", Some("MIT"), Some("git+https://example.org/a#1")), "only crates.io"),
        (facts("a", Some("MIT"), Some("registry+https://example.org/index")), "only crates.io"),
    ];
    for (package, complaint) in planted {
        let found = breaches_of(&package);
        assert!(found.iter().any(|b| b.contains(complaint)), "{package:?}: {found:?}");
    }
}

#[test]
fn a_choice_of_licences_needs_one_that_is_allowed() {
    assert!(breaches_of(&facts("a", Some("GPL-2.0-only OR MIT"), Some(CRATES_IO))).is_empty());
    assert!(breaches_of(&facts("a", Some("MIT/Apache-2.0"), Some(CRATES_IO))).is_empty());
    assert!(breaches_of(&facts("a", Some("Apache-2.0 WITH LLVM-exception"), None)).is_empty());
}

#[test]
fn shipped_code_may_have_fewer_licences_than_tools() {
    let tool = PackageFacts { shipped: false, ..facts("a", Some("NCSA"), Some(CRATES_IO)) };
    assert!(breaches_of(&tool).is_empty());
    assert_eq!(breaches_of(&PackageFacts { shipped: true, ..tool }).len(), 1);
}

#[test]
fn this_workspace_keeps_the_rules() {
    let metadata = crate::workspace::metadata().expect("cargo metadata");
    let built = crate::workspace::built_packages().expect("cargo tree");
    assert!(built.len() > 100, "only {} packages were seen", built.len());
    assert_eq!(breaches(&metadata, &built), Vec::<String>::new());
}
