//! Which pod a person means.
//!
//! Rule: a whole name wins over a part of one; what could be two pods is refused with both names.
//! A static pod may be named as its manifest names it, without the node's name at the end.

use anyhow::{Result, bail};
use ports::local_api::{LocalPod, LocalPods};

pub(crate) fn pod<'a>(pods: &'a LocalPods, wanted: &str) -> Result<&'a LocalPod> {
    let suffix = format!("-{}", pods.node.node_name.to_lowercase());
    let (namespace, name) = match wanted.split_once('/') {
        Some((namespace, name)) => (Some(namespace), name),
        None => (None, wanted),
    };
    let here = |pod: &&LocalPod| namespace.is_none_or(|namespace| namespace == pod.namespace);
    let ways: [&dyn Fn(&LocalPod) -> bool; 3] = [
        &|pod| pod.name == name || pod.uid == name,
        &|pod| pod.name.strip_suffix(&suffix) == Some(name),
        &|pod| name.len() >= 4 && pod.uid.starts_with(name),
    ];
    for way in ways {
        let found: Vec<&LocalPod> = pods.pods.iter().filter(here).filter(|pod| way(pod)).collect();
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
    if names.is_empty() {
        bail!("no pod named {wanted}: there are no pods on this machine");
    }
    bail!("no pod named {wanted} here; there are {}", names.join(", "))
}
