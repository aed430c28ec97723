//! Pods for tests, from manifests.
//!
//! Rule: a typo in a test's pod fails the test; no default is filled in unless asked for.

use document::diagnostic::Origin;
use pod_manifest::{ListPolicy, Strictness, decode};
use pod_model::Quantity;
use pod_model::pod::{Container, Pod, ResourceList};

use crate::inputs::NodeSetupInputs;

/// The pod `web` of namespace `shop` with this specification, in YAML's flow style.
pub(crate) fn pod(spec: &str) -> Pod {
    pod_with("", spec)
}

/// The same with more metadata.
pub(crate) fn pod_with(metadata: &str, spec: &str) -> Pod {
    let text = format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: web, namespace: shop, uid: u-1, {metadata}}}\nspec: {spec}"
    );
    let decoded = decode(text.as_bytes(), &Origin::Default, Strictness::Strict, ListPolicy::OnePod);
    assert!(decoded.diagnostics.is_empty(), "{text}: {:?}", decoded.diagnostics);
    decoded.pods.into_iter().next().expect("one pod").pod
}

/// A pod of one container `app` with these fields, and these of the pod itself.
pub(crate) fn one_with(spec: &str, container: &str) -> Pod {
    pod(&format!("{{{spec} containers: [{{name: app, image: \"app:1\", {container}}}]}}"))
}

pub(crate) fn one(container: &str) -> Pod {
    one_with("", container)
}

pub(crate) fn first(pod: &Pod) -> &Container {
    pod.spec.containers.first().expect("a container")
}

/// Amounts such as `[("cpu", "500m")]`.
pub(crate) fn amounts(list: &[(&str, &str)]) -> ResourceList {
    list.iter().map(|(name, text)| (*name, Quantity::parse(text).expect("a quantity"))).collect()
}

pub(crate) fn texts(list: &[&str]) -> Vec<String> {
    list.iter().map(|text| (*text).to_owned()).collect()
}

/// A node with a machine of 10 GiB, half as much swap, and cgroup v2.
pub(crate) fn node() -> NodeSetupInputs {
    let mut node = NodeSetupInputs {
        node_ips: vec!["192.168.1.5".parse().expect("an address")],
        allocatable: amounts(&[("cpu", "4"), ("memory", "8Gi"), ("ephemeral-storage", "20Gi")]),
        ..NodeSetupInputs::default()
    };
    node.dns.cluster_domain = "cluster.local".to_owned();
    node.dns.cluster_servers = vec!["10.96.0.10".parse().expect("an address")];
    node.security.seccomp_root = "/var/lib/kubelet/seccomp".to_owned();
    node.machine.cgroup_v2 = true;
    node.machine.memory_bytes = 10 << 30;
    node.machine.swap_bytes = 5 << 30;
    node.machine.swap_controller = true;
    node.machine.page_bytes = 4096;
    node
}
