//! Reading documents: scalars, positions, aliases, duplicate keys, limits, and garbage bytes.

use proptest::prelude::*;
use serde_json::{Value as Json, json};

use super::*;

fn file() -> Origin {
    Origin::File { path: "config.yaml".into(), line: 0, column: 0 }
}

fn read(text: &str) -> Document {
    match parse(text.as_bytes(), &file()) {
        Ok(document) => document,
        Err(diagnostic) => panic!("{text:?}: {diagnostic}"),
    }
}

fn refused(bytes: impl AsRef<[u8]>) -> String {
    match parse(bytes.as_ref(), &file()) {
        Ok(document) => panic!("accepted as {:?}", document.root.to_json()),
        Err(diagnostic) => diagnostic.to_string(),
    }
}

fn json_of(text: &str) -> Json {
    read(text).root.to_json()
}

#[test]
fn yaml_scalars_resolve_as_in_kubernetes() {
    for (word, meaning) in [
        ("yes", json!(true)),
        ("On", json!(true)),
        ("y", json!(true)),
        ("TRUE", json!(true)),
        ("no", json!(false)),
        ("OFF", json!(false)),
        ("n", json!(false)),
        ("yEs", json!("yEs")),
        ("~", json!(null)),
        ("Null", json!(null)),
        ("", json!(null)),
        ("nULL", json!("nULL")),
        ("0644", json!(420)),
        ("0o17", json!(15)),
        ("0x1F", json!(31)),
        ("0b101", json!(5)),
        ("-0b101", json!(-5)),
        ("+12", json!(12)),
        ("1_000", json!(1000)),
        ("08", json!(8)),
        ("0_7", json!(7)),
        ("1.0", json!(1)),
        ("1e3", json!(1000)),
        ("1.5", json!(1.5)),
        (".5", json!(0.5)),
        ("-.5", json!(-0.5)),
        ("1e21", json!(1e21)),
        ("18446744073709551615", json!(18_446_744_073_709_551_615_u64)),
        ("9223372036854775808", json!(9_223_372_036_854_775_808_u64)),
        ("12:30:45", json!("12:30:45")),
        ("2001-12-14", json!("2001-12-14")),
        ("0x", json!("0x")),
        ("1e400", json!("1e400")),
        ("'5'", json!("5")),
        ("\"yes\"", json!("yes")),
        ("!!str 5", json!("5")),
        ("!!int '5'", json!(5)),
        ("!!float 5", json!(5)),
        ("!!binary aGk=", json!("hi")),
        ("! '5'", json!("5")),
        ("! 5", json!("5")),
        (".5_0", json!(0.5)),
        (".5_", json!(".5_")),
        ("!own 5", json!("5")),
        ("|-\n  5", json!("5")),
        ("100Mi", json!("100Mi")),
        ("-", json!([null])),
        ("1m0s", json!("1m0s")),
        ("<<", json!("<<")),
    ] {
        let text = if word == "-" { "a:\n  -".to_owned() } else { format!("a: {word}") };
        assert_eq!(json_of(&text)["a"], meaning, "{word:?}");
    }
}

#[test]
fn numbers_that_json_cannot_hold_are_refused() {
    for word in [".inf", "-.INF", ".nan", "!!int 1.5", "!!bool 5", "!!binary a"] {
        refused(format!("a: 1\nb: {word}"));
    }
}

#[test]
fn a_tab_may_follow_a_colon() {
    let text = "a:\tyes\nb: |\n  x:\ty\nc:\t \tz\n";
    assert_eq!(json_of(text), json!({"a": true, "b": "x:\ty\n", "c": "z"}));
}

#[test]
fn keys_become_text() {
    assert_eq!(
        json_of("1: a\n1.5: b\nyes: c\n2001-1-1: d"),
        json!({"1": "a", "1.5": "b", "true": "c", "2001-1-1": "d"})
    );
    for text in ["~: 1", "? [a]\n: 1", "? {a: 1}\n: 1", "&k [a]: 1"] {
        refused(text);
    }
}

#[test]
fn every_node_knows_its_line_and_column() {
    let root = read("# words\na:\n  b: 1\n  c:\n  - x\n  - y\n").root;
    for (path, line, column) in [("a.b", 3, 6), ("a.c[0]", 5, 5), ("a.c[1]", 6, 5)] {
        let found = root.find(path).map(|node| node.origin.clone());
        assert_eq!(found, Some(file().at(line, column)), "{path}");
    }
    let root = read("{\n  \"a\": {\"b\": [1,\n 2]}\n}\n").root;
    for (path, line, column) in [("a", 2, 8), ("a.b[0]", 2, 15), ("a.b[1]", 3, 2)] {
        let found = root.find(path).map(|node| node.origin.clone());
        assert_eq!(found, Some(file().at(line, column)), "{path}");
    }
}

#[test]
fn paths_find_keys_with_dots() {
    let root = read("e:\n  memory.available: 1\n  memory: {available: {deep: 2}}\n").root;
    assert_eq!(root.find("e.memory.available").map(Node::to_json), Some(json!(1)));
    assert_eq!(root.find("e[memory.available]").map(Node::to_json), Some(json!(1)));
    assert_eq!(root.find("e.memory[available].deep").map(Node::to_json), Some(json!(2)));
    assert_eq!(root.find("e.nothing"), None);
    assert_eq!(root.find_nearest("e.nothing.here"), root.find("e").unwrap());
    assert_eq!(child_path("e", "memory.available"), "e[memory.available]");
}

#[test]
fn aliases_and_merge_keys_are_written_out() {
    let text = "base: &b {x: 1, z: 2}\nlist: [*b, *b]\nplain: *b\n";
    let wanted = json!({"base": {"x": 1, "z": 2}, "list": [{"x": 1, "z": 2}, {"x": 1, "z": 2}], "plain": {"x": 1, "z": 2}});
    assert_eq!(json_of(text), wanted);
    // Applied in place: what comes later wins, and each clash is a finding.
    let document = read("b: &b {x: 1, z: 2}\nc:\n  x: 5\n  <<: *b\n  z: 6\n");
    assert_eq!(document.root.to_json()["c"], json!({"x": 1, "z": 6}));
    let clashes: Vec<_> =
        document.repeated_keys.iter().map(|diagnostic| diagnostic.field.as_str()).collect();
    assert_eq!(clashes, ["c.x", "c.z"]);
    // The first of several sources wins.
    let text = "a: &a {x: 1}\nb: &b {x: 2, z: 2}\nc:\n  <<: [*a, *b]\n";
    assert_eq!(json_of(text)["c"], json!({"x": 1, "z": 2}));
    assert_eq!(json_of("c: {'<<': 1}")["c"], json!({"<<": 1}));
    for text in [
        "a: &a [1]\nb: {<<: *a}",
        "b: {<<: 5}",
        "b: {<<: [{x: 1}, 5]}",
        "a: &a [{x: 1}]\nb: {<<: *a}",
        "a: *nothing",
        "a: &a [*a]",
    ] {
        refused(text);
    }
}

#[test]
fn an_alias_bomb_is_refused() {
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..9 {
        let last = level - 1;
        let items = vec![format!("*a{last}"); 10].join(", ");
        text.push_str(&format!("a{level}: &a{level} [{items}]\n"));
    }
    assert!(refused(&text).contains("aliases"));
    // A chain of aliases may not dig deeper than the text itself may.
    let mut text = "a0: &a0 [x]\n".to_owned();
    for level in 1..200 {
        text.push_str(&format!("a{level}: &a{level} [*a{}]\n", level - 1));
    }
    assert!(refused(&text).contains("deep"));
}

#[test]
fn depth_and_size_have_limits() {
    for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
        let deep = |levels: usize| format!("{}1{}", open.repeat(levels), close.repeat(levels));
        assert!(parse(deep(50).as_bytes(), &file()).is_ok(), "{open}");
        assert!(refused(deep(150)).contains("deep"));
        refused(deep(5000));
    }
    assert!(refused(vec![b' '; MAX_BYTES + 1]).contains("bytes"));
    let block: String = (0..150).map(|level| format!("{}a:\n", " ".repeat(level))).collect();
    assert!(refused(block).contains("deep"));
}

#[test]
fn a_megabyte_of_brackets_or_dashes_is_refused() {
    for piece in ["[", "{a: ", "- ", "? ", "{\"a\":", "a:\n - "] {
        refused(piece.repeat(1_000_000 / piece.len()));
    }
    // Whatever these mean, parsing returns.
    for piece in ["&a ", "!!x ", "*a ", "a:\t"] {
        let _ = parse(piece.repeat(1_000_000 / piece.len()).as_bytes(), &file());
    }
}

#[test]
fn repeated_keys_are_remembered() {
    let document = read("a: 1\nb:\n  c: 2\n  c: 3\na: 4\n");
    assert_eq!(document.root.to_json(), json!({"a": 4, "b": {"c": 3}}));
    let found: Vec<_> = document.repeated_keys.iter().map(ToString::to_string).collect();
    assert_eq!(
        found,
        [
            "config.yaml:4: b.c: the key is given more than once, the last one counts",
            "config.yaml:5: a: the key is given more than once, the last one counts"
        ]
    );
    // In JSON two objects under one key are merged.
    let document = read(r#"{"a": {"x": 1, "y": 1}, "a": {"y": 2}, "b": 1, "b": [2]}"#);
    assert_eq!(document.root.to_json(), json!({"a": {"x": 1, "y": 2}, "b": [2]}));
    assert_eq!(document.repeated_keys.len(), 2);
}

#[test]
fn only_the_first_document_counts() {
    assert_eq!(json_of("a: 1\n---\nb: 2\n"), json!({"a": 1}));
    assert_eq!(json_of("---\na: 1\n...\n}}} nonsense"), json!({"a": 1}));
    assert_eq!(json_of("---\n---\na: 1\n"), json!(null));
    assert_eq!(json_of("# nothing but words\n"), json!(null));
}

#[test]
fn encodings() {
    assert_eq!(parse(b"\xef\xbb\xbfa: 1", &file()).unwrap().root.to_json(), json!({"a": 1}));
    let wide: Vec<u8> = "\u{feff}a: ü".encode_utf16().flat_map(u16::to_le_bytes).collect();
    assert_eq!(parse(&wide, &file()).unwrap().root.to_json(), json!({"a": "ü"}));
    assert_eq!(refused(b"a: 1\nb: \xff"), "config.yaml:2: the file is not valid UTF-8");
    assert!(refused("a: 1\nb: \u{1}").starts_with("config.yaml:2: control"));
    assert!(refused(b"").contains("empty"));
    // JSON readers replace invalid text.
    assert_eq!(json_of(r#"{"a": "\ud800x"}"#), json!({"a": "\u{fffd}x"}));
    assert_eq!(
        parse(b"{\"a\": \"\xff\"}", &file()).unwrap().root.to_json(),
        json!({"a": "\u{fffd}"})
    );
}

#[test]
fn broken_text_is_refused_with_its_line() {
    for (text, start) in [
        ("a: 1\n\tb: 2\n", "config.yaml:"),
        ("a: [1\nb: 2\n", "config.yaml:"),
        ("a: 1\n b: 2\n", "config.yaml:2"),
        ("a: 'x\n", "config.yaml:"),
        ("{\"a\": 1,\n}", "config.yaml:2"),
        ("{a: 1}", "config.yaml:1"),
        ("{\"a\": 01}", "config.yaml:1"),
        ("{\"a\": 1}\nx", "config.yaml:2"),
        ("{\"a\": .5}", "config.yaml:1"),
        ("{\"a\": \"\n\"}", "config.yaml:1"),
        ("{\"a\": \"\\x\"}", "config.yaml:1"),
        ("{\"a\": tru}", "config.yaml:1"),
        ("{\"a\" 1}", "config.yaml:1"),
        ("{\"a\": \"\\u12\"}", "config.yaml:1"),
        ("{", "config.yaml:1"),
    ] {
        let message = refused(text);
        assert!(message.starts_with(start), "{text:?}: {message}");
    }
}

#[test]
fn json_numbers_keep_their_form() {
    let root =
        read(r#"{"a": 1, "b": 1.0, "c": 1e3, "d": -0, "e": 123456789012345678901234567890}"#).root;
    assert_eq!(root.find("a").unwrap().value, Value::Number(Number::Integer(1)));
    assert_eq!(root.find("b").unwrap().value, Value::Number(Number::Float(1.0)));
    assert_eq!(root.find("c").unwrap().value, Value::Number(Number::Float(1000.0)));
    assert_eq!(root.find("d").unwrap().value, Value::Number(Number::Integer(0)));
    let large = Value::Number(Number::Integer(123_456_789_012_345_678_901_234_567_890));
    assert_eq!(root.find("e").unwrap().value, large);
}

/// The reference implementation of `find`: tries every key.
fn longest_fitting<'node>(root: &'node Node, path: &str) -> Option<&'node Node> {
    let fits = |key: &&String| {
        let rest = path.strip_prefix(key.as_str());
        !key.is_empty() && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    };
    let key = root.as_map()?.keys().filter(fits).max_by_key(|key| key.len())?;
    let rest = &path[key.len()..];
    if rest.is_empty() { root.get(key) } else { root.get(key)?.find(rest) }
}

#[test]
#[allow(clippy::disallowed_methods, reason = "the test is about time")]
fn a_map_of_many_keys_is_not_walked_for_each_of_them() {
    let text: String =
        (0..20_000).map(|number| format!("unknown.key-{number}: {number}\n")).collect();
    let root = read(&text).root;
    let started = std::time::Instant::now();
    for number in 0..20_000 {
        let found = root.find(&format!("unknown.key-{number}")).unwrap();
        assert_eq!(found.value, Value::Number(Number::Integer(number)));
    }
    assert!(started.elapsed().as_secs() < 5, "{:?}", started.elapsed());
}

#[test]
fn long_keys_above_many_values_cost_no_more_than_their_size() {
    let long = "k".repeat(1_000_000);
    let repeated = "\"a\": 1,".repeat(100_000);
    let json = format!("{{\"{long}\": {{{repeated} \"b\": [{}0]}}}}", "0,".repeat(200_000));
    let yaml = format!("? {long}\n: {{{repeated} b: 1}}\n");
    for text in [json, yaml] {
        let document = read(&text);
        assert_eq!(document.repeated_keys.len(), MAX_REPEATED_KEYS);
        assert!(document.repeated_keys.iter().all(|diagnostic| diagnostic.field.len() < 500));
    }
}

#[test]
fn json_has_the_limit_of_values_too() {
    let message = refused(format!("{{\"a\": [{}0]}}", "0,".repeat(MAX_NODES)));
    assert!(message.contains("more than 400000 values"), "{message}");
}

fn any_json() -> impl Strategy<Value = Json> {
    let leaf = prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::from),
        any::<i64>().prop_map(Json::from),
        any::<u64>().prop_map(Json::from),
        any::<String>().prop_map(Json::from),
    ];
    leaf.prop_recursive(4, 30, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Json::from),
            prop::collection::btree_map(any::<String>(), inner, 0..5)
                .prop_map(|entries| Json::Object(entries.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = parse(&bytes, &file());
    }

    #[test]
    fn any_yaml_like_text_is_read_or_refused(text in "[-a:?&*!|>'\"%@`#{}\\[\\], \n\t0-9<~.]{0,60}") {
        let _ = parse(text.as_bytes(), &file());
    }

    #[test]
    fn json_verdicts_agree_with_another_reader(text in "\\{[\"a:,1.e\\-{}\\[\\] tru]{0,14}\\}") {
        let other = serde_json::from_str::<Json>(&text);
        let ours = parse(text.as_bytes(), &file());
        // The other reader refuses numbers that no float can hold; ours keeps them for the schema.
        prop_assert_eq!(ours.is_ok(), other.is_ok() || other.is_err_and(|error| error.to_string().contains("out of range")), "{}", text);
    }

    #[test]
    fn the_longest_key_that_fits_is_found(
        keys in prop::collection::btree_set("[aä.b\\[]{0,5}", 0..12),
        path in "[aä.b\\[]{1,8}",
    ) {
        let entries = keys.iter().map(|key| (key.clone(), json!({"a": key, "b.a": key}))).collect();
        let root = Node::from_json(&Json::Object(entries), &Origin::Default);
        prop_assume!(!path.starts_with(['[', '.']));
        prop_assert_eq!(root.find(&path), longest_fitting(&root, &path));
    }

    #[test]
    fn json_is_read_as_written(value in any_json()) {
        let text = json!({ "value": value.clone() }).to_string();
        prop_assert_eq!(&json_of(&text)["value"], &value);
    }
}
