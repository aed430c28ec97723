//! References of each kind.

use super::*;
use crate::{ListPolicy, Strictness, decode};
use document::diagnostic::Origin;

fn shown(spec: &str) -> String {
    let text = format!("apiVersion: v1\nkind: Pod\nmetadata: {{name: a}}\nspec: {spec}\n");
    let decoded = decode(text.as_bytes(), &Origin::Default, Strictness::Strict, ListPolicy::OnePod);
    assert!(decoded.diagnostics.is_empty(), "{text}: {:?}", decoded.diagnostics);
    let references = content_references(&decoded.pods[0].pod);
    let shown = references.iter().map(|reference| {
        let end = if reference.is_required { "" } else { "?" };
        format!("{} {}{end}", reference.kind.resource(), reference.name)
    });
    shown.collect::<Vec<_>>().join(", ")
}

#[test]
fn references() {
    for (spec, expected) in [
        ("{containers: [{name: a, image: i}]}", ""),
        ("{containers: [{name: a, envFrom: [{configMapRef: {name: m}}]}]}", "configmap m"),
        (
            "{initContainers: [{name: a, envFrom: [{secretRef: {name: s, optional: true}}]}], \
             containers: [{name: b}]}",
            "secret s?",
        ),
        (
            "{containers: [{name: a, env: [{name: A, valueFrom: {configMapKeyRef: {name: m, key: k}}}, \
             {name: B, valueFrom: {secretKeyRef: {name: s, key: k, optional: true}}}]}]}",
            "configmap m, secret s?",
        ),
        (
            "{volumes: [{name: v, configMap: {name: m, optional: true}}, \
             {name: w, secret: {secretName: s}}], containers: [{name: a}]}",
            "configmap m?, secret s",
        ),
        (
            "{volumes: [{name: v, projected: {sources: [{secret: {name: s}}, \
             {configMap: {name: m, optional: true}}]}}], imagePullSecrets: [{name: p}, {name: s}], \
             containers: [{name: a, envFrom: [{configMapRef: {name: m}}]}]}",
            "configmap m, secret p?, secret s",
        ),
    ] {
        assert_eq!(shown(spec), expected, "{spec}");
    }
}
