//! Finds the pod that an argument means.
//!
//! Rule: a full name is preferred over a part of one; an ambiguous name is refused with the
//! matching names. A static pod may be named as in its manifest, without the node's name at the
//! end. If there is no such pod, errors in manifests that may be meant are shown.

use anyhow::{Result, bail};
use ports::local_api::{LocalPod, LocalPods};

pub(crate) fn pod<'a>(pods: &'a LocalPods, wanted: &str) -> Result<&'a LocalPod> {
    let suffix = format!("-{}", pods.node.node_name.to_lowercase());
    let (namespace, name) = match wanted.split_once('/') {
        Some((namespace, name)) => (Some(namespace), name),
        None => (None, wanted),
    };
    let here = |pod: &&LocalPod| namespace.is_none_or(|namespace| namespace == pod.namespace);
    let matchers: [&dyn Fn(&LocalPod) -> bool; 3] = [
        &|pod| pod.name == name || pod.uid == name,
        &|pod| pod.name.strip_suffix(&suffix) == Some(name),
        &|pod| name.len() >= 4 && pod.uid.starts_with(name),
    ];
    for matcher in matchers {
        let found: Vec<&LocalPod> =
            pods.pods.iter().filter(here).filter(|pod| matcher(pod)).collect();
        match found.as_slice() {
            [] => {}
            [one] => return Ok(one),
            [first, second, ..] => bail!(
                "{wanted} may be {}/{} ({}) or {}/{} ({}); say NAMESPACE/NAME or a UID",
                first.namespace,
                first.name,
                first.uid,
                second.namespace,
                second.name,
                second.uid
            ),
        }
    }
    let names: Vec<String> =
        pods.pods.iter().take(10).map(|pod| format!("{}/{}", pod.namespace, pod.name)).collect();
    let source_errors = source_errors(pods, name);
    if names.is_empty() {
        bail!("no pod named {wanted}: there are no pods on this machine{source_errors}");
    }
    bail!("no pod named {wanted} here; there are {}{source_errors}", names.join(", "))
}

/// A line for each manifest that may be meant and is not run. A manifest that cannot be read at all
/// may be any pod's and is counted.
fn source_errors(pods: &LocalPods, name: &str) -> String {
    const SHOWN: usize = 5;
    let all = &pods.node.source_errors;
    let about: Vec<&String> = all.iter().filter(|warning| warning.contains(name)).collect();
    let mut text = String::new();
    for warning in about.iter().take(SHOWN) {
        text.push_str(&format!("\nwarning: {warning}"));
    }
    let others = all.len() - about.len().min(SHOWN);
    if others > 0 {
        text.push_str(&format!("\n`keelson ps` tells of {others} more that cannot be used"));
    }
    text
}
