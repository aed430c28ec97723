//! Each rule with a planted violation.

use super::*;

#[test]
fn planted_breaches_are_found() {
    let machine = ["/home/a/".to_owned()];
    let long = format!("//! Long.\n{}", "// line\n".repeat(LONGEST_FILE));
    let planted = [
        ("crates/x/src/lib.rs", "fn f() {}".to_owned(), "does not begin with //!"),
        ("crates/x/src/lib.rs", long, "600 is the most"),
        ("README.md", "see /home/a/bin".to_owned(), "machine's path"),
        ("crates/x/src/lib.rs", "//! X.\n#![allow(unsafe_code)]".to_owned(), "not on the list"),
    ];
    for (path, text, complaint) in planted {
        let found = breaches_of(path, &text, &machine);
        assert!(found.iter().any(|b| b.contains(complaint)), "{path}: {found:?}");
    }
    assert!(breaches_of("crates/x/src/lib.rs", "//! X.\nfn f() {}", &machine).is_empty());
}
