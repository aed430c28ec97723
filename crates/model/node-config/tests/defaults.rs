//! Every default against the reference kubelet's: the golden file is its `/configz`, recorded with
//! next to nothing set (tests/real, `reference_kubelet`).

use std::collections::BTreeMap;

use node_config::{ConfigFiles, SourceFile, flags, load};
use serde_json::Value;

const GOLDEN: &str = include_str!("../goldens/configz-v1.36.3.json");

/// What the reference needed so that it could run, and what it fills in while it starts; neither is
/// a default.
const SET_ON_PURPOSE: &[&str] =
    &["failCgroupV1", "containerRuntimeEndpoint", "authentication.x509.clientCAFile"];
const FILLED_IN_AT_START: &[&str] = &["tlsCertFile", "tlsPrivateKeyFile"];

#[test]
fn every_default_is_the_references() {
    let golden: Value = serde_json::from_str(GOLDEN).expect("the golden is JSON");
    let given = |path: &str| {
        let found = golden.pointer(&format!("/{}", path.replace('.', "/")));
        found.cloned().expect("what was set on purpose is in the golden")
    };
    let text = serde_json::json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "failCgroupV1": given("failCgroupV1"),
        "containerRuntimeEndpoint": given("containerRuntimeEndpoint"),
        "authentication": {"x509": {"clientCAFile": given("authentication.x509.clientCAFile")}},
    });
    let arguments =
        ["--config=/etc/kubelet.json", "--kubeconfig=/etc/node.conf"].map(str::to_owned);
    let bytes = text.to_string().into_bytes();
    let files = ConfigFiles {
        config: Some(SourceFile { path: "/etc/kubelet.json".into(), bytes }),
        ..ConfigFiles::default()
    };
    let loaded = load(flags::parse(&arguments), &files);
    let config = loaded.config.unwrap_or_else(|| panic!("refused: {:?}", loaded.diagnostics));
    let ours = leaves(&config.effective().to_value());
    let theirs = leaves(&golden);
    let not_defaults = |path: &String| {
        let skipped = SET_ON_PURPOSE.iter().chain(FILLED_IN_AT_START);
        skipped.into_iter().any(|listed| path == listed)
    };
    let mut differences = Vec::new();
    for path in ours.keys().chain(theirs.keys()).filter(|path| !not_defaults(path)) {
        if ours.get(path) != theirs.get(path) {
            differences.push(format!(
                "{path}: ours {:?}, theirs {:?}",
                ours.get(path),
                theirs.get(path)
            ));
        }
    }
    differences.dedup();
    assert!(differences.is_empty(), "{differences:#?}");
    assert!(theirs.len() > 90, "the golden has {} values", theirs.len());
}

/// Every value with its path; absent, empty and null are left out.
fn leaves(value: &Value) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut open = vec![(String::new(), value)];
    while let Some((path, value)) = open.pop() {
        match value {
            Value::Null => {}
            Value::Object(fields) => {
                for (name, inner) in fields {
                    let separator = if path.is_empty() { "" } else { "." };
                    open.push((format!("{path}{separator}{name}"), inner));
                }
            }
            other => {
                found.insert(path, other.to_string());
            }
        }
    }
    found
}
