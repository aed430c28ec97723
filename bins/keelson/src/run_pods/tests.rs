//! Manifests, good and bad, with their lines.

use super::manifest::{Container, pods};
use super::split::documents;

fn container(name: &str, image: &str, init: bool) -> Container {
    Container { name: name.to_owned(), image: image.to_owned(), init }
}

const TWO: &str = "# two pods\n---\napiVersion: v1\nkind: Pod\nmetadata:\n  name: one\nspec:\n  \
                   containers:\n  - name: a\n    image: busybox\n---\n\n--- \napiVersion: v1\nkind: Pod\n\
                   metadata: {name: two, namespace: other}\nspec:\n  initContainers: [{name: i, image: x}]\n  \
                   containers: [{name: b, image: z}]\n...\n---\n# nothing\n";

#[test]
fn every_document_is_a_pod_and_knows_its_line() {
    let pods = pods("two.yaml", TWO.as_bytes()).unwrap();
    assert_eq!(pods.len(), 2);
    assert_eq!((pods[0].name.as_str(), pods[0].namespace.as_str()), ("one", "default"));
    assert_eq!(pods[0].place, "two.yaml:3");
    assert_eq!(pods[0].containers, [container("a", "busybox", false)]);
    assert_eq!((pods[1].name.as_str(), pods[1].namespace.as_str()), ("two", "other"));
    assert_eq!(pods[1].place, "two.yaml:14");
    assert_eq!(pods[1].containers, [container("i", "x", true), container("b", "z", false)]);
}

#[test]
fn json_is_taken_too() {
    let text = r#"{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "j"},
                   "spec": {"containers": [{"name": "a", "image": "b"}]}}"#;
    assert_eq!(pods("j.json", text.as_bytes()).unwrap()[0].name, "j");
}

#[test]
fn each_error_is_one_line_with_file_and_line() {
    let cases: [(&str, &[&str]); 7] = [
        ("", &["f: the file is empty"]),
        ("# only a comment\n", &["f: the file is empty"]),
        ("apiVersion: v1\nkind: Service\n", &["f:1: kind: v1 Service: expected"]),
        (
            "apiVersion: v1\nkind: Pod\nmetadata: {}\nspec:\n  containers: []\n",
            &["f:3: metadata.name: expected a name", "f:5: spec.containers: expected at least one"],
        ),
        (
            "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  containers:\n  - name: x\n    image: 5\n  - image: z\n",
            &["f:7: spec.containers[0].image: expected", "f:8: spec.containers[1].name: expected"],
        ),
        ("apiVersion: v1\nkind: Pod\nspec: [\n", &["f:"]),
        (
            "---\nkind: Pod\nkind: Pod\napiVersion: v1\nmetadata: {name: a}\nspec: {containers: [{name: a, image: b}]}\n",
            &["f:3: "],
        ),
    ];
    for (text, expected) in cases {
        let errors = pods("f", text.as_bytes()).unwrap_err();
        assert_eq!(errors.len(), expected.len(), "{text}: {errors:?}");
        for (error, start) in errors.iter().zip(expected) {
            assert!(error.starts_with(start), "{error} should start with {start}");
            assert!(!error.contains('\n'), "{error}");
        }
    }
    assert!(pods("f", &[0xff, 0xfe, 0x00]).unwrap_err()[0].starts_with("f: not UTF-8"));
}

#[test]
fn a_dash_line_inside_a_text_is_no_marker() {
    assert_eq!(documents("a: |\n  ---\n  x\n----\n").len(), 1);
    assert_eq!(documents("--- {a: 1}\n--- \n--- {b: 2}\n").len(), 2);
}
