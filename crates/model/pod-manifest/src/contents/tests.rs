//! ConfigMaps and Secrets, good and bad.

use super::*;
use document::diagnostic::Origin;

fn read(text: &str) -> Result<ContentManifest, Vec<String>> {
    let origin = Origin::File { path: "m.yaml".into(), line: 0, column: 0 };
    let root = document::parse(text.as_bytes(), &origin).expect(text).root;
    let kind = content_kind(&root).expect(text);
    decode_content(kind, &root)
        .map_err(|errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>())
}

fn shown(data: &ContentData) -> String {
    let entries = data.0.iter();
    let entries = entries.map(|(key, value)| format!("{key}={}", String::from_utf8_lossy(value)));
    entries.collect::<Vec<_>>().join(",")
}

#[test]
fn objects_as_an_api_server_stores_them() {
    for (text, name, data, binary) in [
        (
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a.b}\ndata: {k: v, e: ''}\n\
             binaryData: {b: eHk=}\n",
            "ConfigMap default/a.b",
            "e=,k=v",
            "b=xy",
        ),
        (
            "apiVersion: v1\nkind: Secret\nmetadata: {name: a, namespace: shop, labels: {x: y}}\n\
             data: {k: eHk=, m: \"eHk\\nK\\n\"}\nstringData: {k: plain}\n",
            "Secret shop/a",
            "k=plain,m=xy\n",
            "",
        ),
        (
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n",
            "ConfigMap default/a",
            "",
            "",
        ),
    ] {
        let content = read(text).expect(text);
        let ContentManifest { name: found, object } = content;
        assert_eq!(
            (&*found.to_string(), &*shown(&object.data), &*shown(&object.binary_data)),
            (name, data, binary)
        );
    }
    let typed = "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\nimmutable: true\ntype: ";
    let object = |kind: &str| read(&format!("{typed}{kind}\n")).expect(kind).object;
    assert!(object("x.example/y").immutable);
    assert_eq!(object("x.example/y").secret_type, "x.example/y");
    assert_eq!(object("''").secret_type, "Opaque");
}

#[test]
fn errors_name_line_and_field_and_no_value() {
    let head = "apiVersion: v1\nkind: Secret\n";
    let map = "apiVersion: v1\nkind: ConfigMap\n";
    for (text, expected) in [
        (format!("{head}data: {{k: hunter2!}}\n"), "m.yaml:3: data.k: expected base64"),
        (format!("{head}stringData: {{k: 5}}\n"), "m.yaml:3: stringData.k: expected a string"),
        (format!("{head}stringData: {{../k: hunter2}}\n"), "m.yaml:3: stringData"),
        (format!("{head}stringData: {{..: hunter2}}\n"), "m.yaml:3: stringData"),
        (format!("{head}data: [hunter2]\n"), "m.yaml:3: data: expected an object, found a list"),
        (format!("{map}stringData: {{k: v}}\n"), "m.yaml:3: stringData: unknown field"),
        (format!("{map}immutable: 'yes'\n"), "m.yaml:3: immutable: expected true or false"),
        (
            format!("{map}data: {{k: v}}\nbinaryData: {{k: eHk=}}\n"),
            "m.yaml:1: binaryData.k: the key is in data already",
        ),
        (
            format!("{map}data: {{k: '{}'}}\n", "x".repeat(MAX_DATA_BYTES + 1)),
            "m.yaml:1: data: the values have 1048577 bytes, expected at most 1048576",
        ),
    ] {
        let text = format!("{text}metadata: {{name: a}}\n");
        let errors = read(&text).expect_err(expected);
        assert!(errors.len() == 1 && errors[0].starts_with(expected), "{errors:?}");
        assert!(!errors[0].contains("hunter2"), "{errors:?}");
    }
    for bad in ["{}", "{name: A_B}", "{name: a, namespace: a.b}", "{name: 5}", "[]"] {
        assert!(read(&format!("{map}metadata: {bad}\n")).is_err(), "{bad}");
    }
}

#[test]
fn other_documents_are_none_of_these() {
    for text in ["kind: ConfigMap\n", "apiVersion: v2\nkind: Secret\n", "[1]", "apiVersion: v1\n"] {
        let root = document::parse(text.as_bytes(), &Origin::Default).expect(text).root;
        assert_eq!(content_kind(&root), None, "{text}");
    }
}
