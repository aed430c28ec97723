//! Invalid manifests and the exact findings about each, from bytes on, as the node reads them.
//!
//! Rule: every manifest that the table of verdicts rejects has its text here (`refusals.txt`), and
//! there are those that no table of fields can hold. A change of a message is a change of that
//! file; the failing test prints it anew.

use document::diagnostic::Origin;

use crate::validation::tests::{plain_pod, set_all};
use crate::{
    ListPolicy, PodGates, Strictness, apply_defaults, decode, prepare_for_create, validate,
};

const VERDICTS: &str = include_str!("validation/tests/verdicts.txt");
const DIAGNOSTICS_GOLDEN: &str = include_str!("bad_manifests/refusals.txt");

/// The findings about a manifest, in order.
fn messages_of(bytes: &[u8]) -> Vec<String> {
    let origin = Origin::File { path: "pod.yaml".into(), line: 0, column: 0 };
    let gates = PodGates::default();
    let decoded = decode(bytes, &origin, Strictness::Strict, ListPolicy::OnePod);
    let mut messages: Vec<String> = decoded.diagnostics.iter().map(ToString::to_string).collect();
    for manifest in decoded.pods {
        let mut pod = manifest.pod;
        apply_defaults(&mut pod, &gates);
        prepare_for_create(&mut pod, &gates);
        messages.extend(validate(&pod, &gates).iter().map(ToString::to_string));
    }
    messages
}

fn rows(table: &str) -> impl Iterator<Item = (&str, &str)> {
    let lines = table.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.filter_map(|line| line.split_once(" =>")).map(|(left, right)| (left, right.trim()))
}

#[test]
fn every_diagnostic_matches_the_golden_file() {
    let mut found = Vec::new();
    for (assignments, fields) in rows(VERDICTS).filter(|(_, fields)| !fields.is_empty()) {
        let mut pod = plain_pod();
        set_all(&mut pod, assignments);
        let messages = messages_of(pod.to_string().as_bytes());
        for field in fields.split(' ') {
            assert!(
                messages.iter().any(|each| each.contains(field)),
                "{assignments}: {messages:?}"
            );
        }
        found.push((assignments, messages.join(" | ")));
    }
    assert!(found.len() > 150, "{} bad manifests", found.len());
    let expected: Vec<(&str, &str)> = rows(DIAGNOSTICS_GOLDEN).collect();
    let pairs: Vec<(&str, &str)> =
        found.iter().map(|(left, right)| (*left, right.as_str())).collect();
    let first = pairs.iter().zip(&expected).find(|(found, expected)| found != expected);
    let now =
        || -> String { found.iter().map(|(left, right)| format!("{left} => {right}\n")).collect() };
    assert!(first.is_none(), "{first:#?}\nthe whole table is now:\n{}", now());
    assert_eq!(pairs.len(), expected.len(), "the whole table is now:\n{}", now());
}

const GOOD: &str = "apiVersion: v1\nkind: Pod\nmetadata: {name: a, namespace: b}\nspec:\n  containers:\n  - name: c\n    image: i\n";

/// Manifests that no table of fields can hold: malformed text, and errors that only a file can
/// have.
#[test]
fn malformed_text_is_reported_with_its_line() {
    let deep = "[".repeat(5000);
    let laughs = "a: &a [x, x, x, x, x, x, x, x, x]\nb: &b [*a, *a, *a, *a, *a, *a, *a, *a, *a]\n\
                  c: &c [*b, *b, *b, *b, *b, *b, *b, *b, *b]\nd: &d [*c, *c, *c, *c, *c, *c, *c]\n\
                  e: &e [*d, *d, *d, *d, *d, *d, *d, *d]\nf: [*e, *e, *e, *e, *e, *e, *e, *e]\n";
    let twice = GOOD.replace("    image: i\n", "    image: i\n    image: j\n");
    let unknown = GOOD.replace("    image: i\n", "    image: i\n    imgae: j\n");
    let tabbed = GOOD.replace("  containers", "\tcontainers");
    let open = GOOD.replace("b}", "b");
    let anchor = GOOD.replace("image: i", "image: *nowhere");
    let late = format!("{GOOD}  restartPolicy: [Always]\n");
    let null = GOOD.replace("  - name: c\n    image: i\n", "  - null\n");
    for text in [
        deep.as_str(),
        laughs,
        &twice,
        &unknown,
        &tabbed,
        &open,
        &anchor,
        &late,
        &null,
        "{",
        "}",
        "---\n---\n",
        "\u{feff}",
        "\0",
        "a: b: c",
        "- a\nb: c",
        "? ",
        "%YAML 9.9\n---\na",
        "{\"apiVersion\": \"v1\", \"kind\": \"Pod\"",
        "\"",
        "!!binary x",
        "&a *a",
        "null",
        "5",
        "true",
    ] {
        let messages = messages_of(text.as_bytes());
        let shown: String = text.chars().take(60).collect();
        assert!(!messages.is_empty(), "{shown:?} is taken");
        for each in &messages {
            let has_place = ["pod.yaml", "spec."].iter().any(|start| each.starts_with(start));
            assert!(has_place, "{shown:?}: {each}");
            assert!(each.len() < 500 && !each.contains('\n'), "{shown:?}: {each}");
        }
    }
    for bytes in [&b"\xff\xfe"[..], b"apiVersion: \xc3\x28", &[0x80; 64]] {
        assert!(!messages_of(bytes).is_empty(), "{bytes:?}");
    }
}
