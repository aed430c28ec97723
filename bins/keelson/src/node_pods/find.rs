//! Finds the pod that a command-line argument names.
//!
//! Rule: a full name is preferred over a part of one; an ambiguous name is refused with the
//! matching names. A static pod may be named as in its manifest, without the node's name at the
//! end. If there is no such pod, errors of manifests that may be the pod's are shown.

use anyhow::{Result, bail};
use ports::local_api::{LocalPod, LocalPods};

pub(crate) fn pod<'a>(pods: &'a LocalPods, wanted: &str) -> Result<&'a LocalPod> {
    let suffix = format!("-{}", pods.node.node_name.to_lowercase());
    let (namespace, name) = match wanted.split_once('/') {
        Some((namespace, name)) => (Some(namespace), name),
        None => (None, wanted),
    };
    let in_namespace =
        |pod: &&LocalPod| namespace.is_none_or(|namespace| namespace == pod.namespace);
    let matchers: [&dyn Fn(&LocalPod) -> bool; 3] = [
        &|pod| pod.name == name || pod.uid == name,
        &|pod| pod.name.strip_suffix(&suffix) == Some(name),
        &|pod| name.len() >= 4 && pod.uid.starts_with(name),
    ];
    for matcher in matchers {
        let found: Vec<&LocalPod> =
            pods.pods.iter().filter(in_namespace).filter(|pod| matcher(pod)).collect();
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
    let source_errors = describe_source_errors(pods, name);
    if names.is_empty() {
        bail!("no pod named {wanted}: there are no pods on this machine{source_errors}");
    }
    bail!("no pod named {wanted} here; there are {}{source_errors}", names.join(", "))
}

/// A line for each manifest error that mentions the name, and the number of the other errors: a
/// manifest that cannot be read at all may be any pod's.
fn describe_source_errors(pods: &LocalPods, name: &str) -> String {
    const SHOWN: usize = 5;
    let all = &pods.node.source_errors;
    let matching: Vec<&String> = all.iter().filter(|error| error.contains(name)).collect();
    let mut text = String::new();
    for error in matching.iter().take(SHOWN) {
        text.push_str(&format!("\nwarning: {error}"));
    }
    let others = all.len() - matching.len().min(SHOWN);
    if others > 0 {
        text.push_str(&format!("\n`keelson ps` lists {others} more that cannot be used"));
    }
    text
}
