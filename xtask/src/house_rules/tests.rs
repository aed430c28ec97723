//! Each rule with a planted violation.

use super::*;

#[test]
fn planted_breaches_are_found() {
    let machine = ["/home/a/".to_owned()];
    let long = format!("//! Long.\n{}", "// line\n".repeat(MAX_FILE_LINES));
    let planted = [
        ("crates/x/src/lib.rs", "fn f() {}".to_owned(), "does not begin with //!"),
        ("crates/x/src/lib.rs", long, "600 is the limit"),
        ("README.md", "see /home/a/bin".to_owned(), "a path of this machine"),
        ("crates/x/src/lib.rs", "//! X.\n#![allow(unsafe_code)]".to_owned(), "not on the list"),
    ];
    for (path, text, complaint) in planted {
        let found = breaches_of(path, &text, &machine);
        assert!(found.iter().any(|b| b.contains(complaint)), "{path}: {found:?}");
    }
    assert!(breaches_of("crates/x/src/lib.rs", "//! X.\nfn f() {}", &machine).is_empty());
}

#[test]
fn identifiers_and_comments_are_found_and_literals_are_not() {
    use lexer::{SourceToken, tokens};
    let source = r##"fn a<'told>(r#type: &'told str) { b"told"; 'x'; '\''; "to\"ld"; r#"told " x"#; 1u8; }
// said `x`
/* a /* b */ c */ c"told"; b'\\' ok"##;
    let found = tokens(source);
    let names: Vec<&str> = found
        .iter()
        .filter_map(|token| match token {
            SourceToken::Identifier(name) => Some(*name),
            _ => None,
        })
        .collect();
    assert_eq!(names, ["fn", "a", "type", "str", "ok"]);
    let comments: Vec<&str> = found
        .iter()
        .filter_map(|token| match token {
            SourceToken::Comment(text) => Some(*text),
            _ => None,
        })
        .collect();
    assert_eq!(comments, ["// said `x`", "/* a /* b */ c */"]);
    for end in ["\"", "'", "'\\", "r#\"", "/*", "b'", "'é"] {
        assert!(!tokens(&format!("fn f {end}")).is_empty(), "{end}: the source ends early");
    }
}

#[test]
fn retired_words_are_found_in_identifiers() {
    let cases = [
        ("what_was_told", Some("told")),
        ("PATIENCE", Some("patience")),
        ("SourceTelling", Some("telling")),
        ("HTTPNews2", Some("news")),
        ("is_given_up", Some("given_up")),
        ("Place", Some("Place")),
        ("in_place", None),
        ("whose_pod", Some("whose")),
        ("a_pod_whose_container_ended_is_ready", None),
        ("settle", None),
        ("foretold", None),
        ("keyword", None),
    ];
    for (identifier, word) in cases {
        let found = words::retired_in_identifier(identifier);
        assert_eq!(found.as_deref(), word, "{identifier}");
    }
}

#[test]
fn retired_words_are_counted_in_comments() {
    let cases = [
        ("// Whoever asks gets nobody's word.", 2),
        ("/// `told` and `Wish::new` are code", 0),
        ("//! The caller says which, and tells it.", 0),
        ("// What is said, what tells of it.", 2),
        ("// is  said", 0),
        ("// Gave up: let go in a moment.", 3),
        ("// the word of the API; the words", 1),
        ("// ends with a lone ` backtick, told", 1),
    ];
    for (comment, count) in cases {
        assert_eq!(words::retired_in_comment(comment), count, "{comment}");
    }
}

#[test]
fn types_are_those_that_a_file_defines() {
    let source = "pub struct A; enum B {} trait C { type Item; } type D = u8; impl C for A { type \
                  Item = D; } fn f() { struct E; } // struct F\n macro_rules! m { () => { struct $g; } }";
    let found = type_names::defined_types(&lexer::tokens(source));
    assert_eq!(found.into_iter().collect::<Vec<_>>(), ["A", "B", "C", "D", "E"]);
}

fn counts(files: &[(&str, &str)]) -> RuleCounts {
    let mut counts = RuleCounts::default();
    for (path, text) in files {
        counts.add(path, text);
    }
    counts.finish()
}

#[test]
fn counts_may_only_fall() {
    let before = counts(&[
        ("crates/wire/a/src/lib.rs", "struct X; fn told() { told() } // whoever"),
        ("crates/wire/b/src/lib.rs", "struct X; struct Own;"),
        ("docs/told.md", "told"),
    ]);
    let record = RuleCounts::parse(&before.to_text()).expect("its own text");
    assert_eq!(record, before);
    assert_eq!(before.breaches(&record), Vec::<String>::new());
    let planted = [
        (
            "fn told() { told(); told() } // whoever",
            "`told` (told is a retired word) in 3 places, 2 allowed",
        ),
        (
            "fn told() { heard() } // whoever",
            "`heard` (heard is a retired word) in 1 places, 0 allowed",
        ),
        ("fn told() { told() } // whoever, nobody", "a: 2 retired words in comments, 1 allowed"),
        (
            "fn told() { told() } struct Own; // whoever",
            "type Own: defined in a, b; one name is one thing, new in a, b",
        ),
        ("fn told() {} // whoever", "numbers have fallen"),
        ("fn told() { told() }", "numbers have fallen"),
        ("fn told() { told() } struct Y; // whoever", "numbers have fallen"),
    ];
    for (text, complaint) in planted {
        let after = counts(&[
            ("crates/wire/a/src/lib.rs", text),
            ("crates/wire/b/src/lib.rs", "struct X; struct Own;"),
        ]);
        let found = after.breaches(&record);
        assert!(found.iter().any(|breach| breach.contains(complaint)), "{text}: {found:?}");
    }
}

#[test]
fn types_of_wire_mirrors_are_not_counted() {
    let mirror = type_names::WIRE_MIRRORS[0];
    let found = counts(&[(mirror, "struct X;"), ("crates/wire/b/src/lib.rs", "struct X;")]);
    assert_eq!(found, RuleCounts::default());
}

#[test]
fn recording_lowers_numbers_and_never_raises_them() -> Result<()> {
    let root = tempfile::tempdir()?;
    std::fs::create_dir(root.path().join("xtask"))?;
    let path = "crates/wire/a/src/lib.rs";
    let text = || std::fs::read_to_string(root.path().join(ratchet::RECORD));
    ratchet::record(root.path(), &counts(&[(path, "told told heard")]))?;
    assert!(text()?.contains("identifier a told 2\n"));
    ratchet::record(root.path(), &counts(&[(path, "told news news")]))?;
    let recorded = text()?;
    assert!(recorded.contains("identifier a told 1\n"), "{recorded}");
    assert!(!recorded.contains("heard") && !recorded.contains("news"), "{recorded}");
    Ok(())
}
