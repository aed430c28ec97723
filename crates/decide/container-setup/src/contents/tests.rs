//! The references, and the handling of objects that could not be fetched.

use super::*;
use crate::testing::{first, one};
use ContentKind::{ConfigMap, Secret};

#[test]
fn every_reference_is_listed_once() {
    let pod = one("envFrom: [{configMapRef: {name: a}}, {secretRef: {name: b}}, {}], \
         env: [{name: X, valueFrom: {configMapKeyRef: {name: c, key: k}}}, \
               {name: U, valueFrom: {secretKeyRef: {name: b, key: k}}}, \
               {name: Z, value: said, valueFrom: {secretKeyRef: {name: unused, key: k}}}, \
               {name: W, valueFrom: {fieldRef: {fieldPath: metadata.name}}}, {name: V, value: v}]");
    let names = [(ConfigMap, "a"), (ConfigMap, "c"), (Secret, "b")];
    assert_eq!(wanted(first(&pod)), names.map(|(kind, name)| (kind, name.to_owned())).into());
}

fn contents() -> Contents {
    let data = [("key".to_owned(), b"value".to_vec()), ("raw".to_owned(), b"\xff".to_vec())];
    let zero = [("key".to_owned(), b"a\0b".to_vec())];
    [
        ((ConfigMap, "there".to_owned()), Ok(ContentData(data.clone().into()))),
        ((Secret, "there".to_owned()), Ok(ContentData(data.into()))),
        ((Secret, "zero".to_owned()), Ok(ContentData(zero.into()))),
        ((ConfigMap, "absent".to_owned()), Err(ContentError::NotFound)),
        ((Secret, "absent".to_owned()), Err(ContentError::NotFound)),
        ((Secret, "broken".to_owned()), Err(ContentError::Failed("it broke".into()))),
    ]
    .into()
}

fn value(
    kind: ContentKind,
    name: &str,
    key: &str,
    optional: bool,
) -> Result<Option<String>, String> {
    let reference = ContentReference { kind, namespace: "shop", name, optional };
    reference.value(&contents(), key).map_err(|error| error.to_string())
}

#[test]
fn values_and_errors() {
    let error_text = |text: &str| Err(text.to_owned());
    for (kind, name, key, optional, expected) in [
        (ConfigMap, "there", "key", false, Ok(Some("value".to_owned()))),
        (Secret, "there", "key", false, Ok(Some("value".to_owned()))),
        (
            ConfigMap,
            "there",
            "no",
            false,
            error_text("couldn't find key no in ConfigMap shop/there"),
        ),
        (Secret, "there", "no", false, error_text("couldn't find key no in Secret shop/there")),
        (Secret, "there", "no", true, Ok(None)),
        (ConfigMap, "absent", "key", false, error_text("configmap \"absent\" not found")),
        (Secret, "absent", "key", false, error_text("secret \"absent\" not found")),
        (ConfigMap, "absent", "key", true, Ok(None)),
        (Secret, "broken", "key", true, error_text("it broke")),
        (Secret, "unasked", "key", true, error_text("secret \"unasked\" has not been read yet")),
        (
            Secret,
            "there",
            "raw",
            false,
            error_text("key raw of shop/there: not a text that an environment variable can hold"),
        ),
        (
            Secret,
            "zero",
            "key",
            false,
            error_text("key key of shop/zero: not a text that an environment variable can hold"),
        ),
    ] {
        assert_eq!(value(kind, name, key, optional), expected, "{kind:?} {name} {key}");
    }
}

#[test]
fn without_a_content_source_only_optional_references_resolve() {
    for (kind, text) in [
        (ConfigMap, "couldn't get configMap shop/a, no kubeClient defined: nobody is here"),
        (Secret, "couldn't get secret shop/a, no kubeClient defined: nobody is here"),
    ] {
        let no_content_source = Err(ContentError::NoSource("nobody is here".to_owned()));
        let contents: Contents = [((kind, "a".to_owned()), no_content_source)].into();
        let mut reference = ContentReference { kind, namespace: "shop", name: "a", optional: true };
        assert_eq!(reference.data(&contents).expect("it may be missing"), None);
        reference.optional = false;
        let error = reference.data(&contents).expect_err("nobody");
        assert_eq!(error.to_string(), text);
    }
}

#[test]
fn values_are_not_shown_by_mistake() {
    let shown = format!("{:?}", contents());
    assert!(shown.contains("key") && !shown.contains("value"), "{shown}");
}
