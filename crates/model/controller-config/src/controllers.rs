//! `--controllers`: which of our controllers run.
//!
//! The rule it keeps: upstream's. For each controller the first mention of it in the list decides;
//! without one, `*` does. Old short names count. Names of controllers of kube-controller-manager
//! only are known and cause a warning when enabled; other names are errors.
//! upstream: controller-manager app/helper.go

use document::diagnostic::Diagnostic;

const LIFECYCLE: &str = "node-lifecycle-controller";
const TAINT_EVICTION: &str = "taint-eviction-controller";
const IPAM: &str = "node-ipam-controller";
const POD_CLEANUP: &str = "pod-garbage-collector-controller";
const CLOUD: &str = "cloud-node-lifecycle-controller";

const IMPLEMENTED: [&str; 5] = [LIFECYCLE, TAINT_EVICTION, IPAM, POD_CLEANUP, CLOUD];

/// Old short names, and the names that they stand for.
const SHORT_NAMES: [(&str, &str); 4] = [
    ("nodelifecycle", LIFECYCLE),
    ("nodeipam", IPAM),
    ("podgc", POD_CLEANUP),
    ("cloud-node-lifecycle", CLOUD),
];

/// Names, long and short, of controllers that exist in kube-controller-manager only.
const IN_KUBE_CONTROLLER_MANAGER: &[&str] = &[
    "attachdetach",
    "bootstrap-signer-controller",
    "bootstrapsigner",
    "certificatesigningrequest-approving-controller",
    "certificatesigningrequest-cleaner-controller",
    "certificatesigningrequest-signing-controller",
    "clusterrole-aggregation",
    "clusterrole-aggregation-controller",
    "cronjob",
    "cronjob-controller",
    "csrapproving",
    "csrcleaner",
    "csrsigning",
    "daemonset",
    "daemonset-controller",
    "deployment",
    "deployment-controller",
    "device-taint-eviction-controller",
    "disruption",
    "disruption-controller",
    "endpoint",
    "endpoints-controller",
    "endpointslice",
    "endpointslice-controller",
    "endpointslice-mirroring-controller",
    "endpointslicemirroring",
    "ephemeral-volume",
    "ephemeral-volume-controller",
    "garbage-collector-controller",
    "garbagecollector",
    "horizontal-pod-autoscaler-controller",
    "horizontalpodautoscaling",
    "job",
    "job-controller",
    "kube-apiserver-serving-clustertrustbundle-publisher-controller",
    "legacy-service-account-token-cleaner",
    "legacy-serviceaccount-token-cleaner-controller",
    "namespace",
    "namespace-controller",
    "node-route-controller",
    "persistentvolume-attach-detach-controller",
    "persistentvolume-binder",
    "persistentvolume-binder-controller",
    "persistentvolume-expander",
    "persistentvolume-expander-controller",
    "persistentvolume-protection-controller",
    "persistentvolumeclaim-protection-controller",
    "podcertificaterequest-cleaner-controller",
    "podgroup-protection-controller",
    "pv-protection",
    "pvc-protection",
    "replicaset",
    "replicaset-controller",
    "replicationcontroller",
    "replicationcontroller-controller",
    "resource-claim-controller",
    "resourceclaim-controller",
    "resourcepoolstatusrequest-controller",
    "resourcequota",
    "resourcequota-controller",
    "root-ca-cert-publisher",
    "root-ca-certificate-publisher-controller",
    "route",
    "selinux-warning-controller",
    "service",
    "service-cidr-controller",
    "service-lb-controller",
    "serviceaccount",
    "serviceaccount-controller",
    "serviceaccount-token",
    "serviceaccount-token-controller",
    "statefulset",
    "statefulset-controller",
    "storage-version-gc",
    "storage-version-migrator-controller",
    "storageversion-garbage-collector-controller",
    "svm",
    "token-cleaner-controller",
    "tokencleaner",
    "ttl",
    "ttl-after-finished",
    "ttl-after-finished-controller",
    "ttl-controller",
    "validatingadmissionpolicy-status-controller",
    "volumeattributesclass-protection-controller",
];

/// Which controllers run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "one switch each, as the flag has them")]
pub struct RunningControllers {
    pub lifecycle: bool,
    pub taint_eviction: bool,
    pub pod_ranges: bool,
    pub pod_cleanup: bool,
    pub cloud: bool,
}

/// Parses the list; the problems have no origin yet.
pub(crate) fn read(list: &[String]) -> (RunningControllers, Vec<Diagnostic>) {
    let mut diagnostics = Vec::new();
    for word in list.iter().filter(|word| *word != "*") {
        let (off, name) = split(word);
        if IN_KUBE_CONTROLLER_MANAGER.contains(&name) {
            if !off {
                let message = "it runs in kube-controller-manager only, not here";
                diagnostics.push(Diagnostic::warning("", message).with_value(name));
            }
        } else if !IMPLEMENTED.contains(&name) {
            let message = "it is not in the list of known controllers";
            diagnostics.push(Diagnostic::error("", message).with_value(name));
        }
    }
    let running = RunningControllers {
        lifecycle: is_on(list, LIFECYCLE),
        taint_eviction: is_on(list, TAINT_EVICTION),
        pod_ranges: is_on(list, IPAM),
        pod_cleanup: is_on(list, POD_CLEANUP),
        cloud: is_on(list, CLOUD),
    };
    (running, diagnostics)
}

/// Whether the entry turns its controller off, and the controller's full name.
fn split(word: &str) -> (bool, &str) {
    let (off, name) = match word.strip_prefix('-') {
        Some(name) => (true, name),
        None => (false, word),
    };
    let full = SHORT_NAMES.iter().find_map(|(short, full)| (*short == name).then_some(*full));
    (off, full.unwrap_or(name))
}

fn is_on(list: &[String], controller: &str) -> bool {
    let first = list.iter().map(|word| split(word)).find(|(_, name)| *name == controller);
    first.map_or_else(|| list.iter().any(|word| word == "*"), |(off, _)| !off)
}
