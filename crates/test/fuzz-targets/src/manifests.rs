//! Pod manifests from a manifest directory or a URL.

use document::diagnostic::Origin;
use pod_manifest::static_pod::{SourceKind, identify};
use pod_manifest::{ListPolicy, PodGates, StaticPodSource, Strictness, decode, read_static_pods};
use pod_model::pod::{Pod, container_hash};

/// Any bytes as a manifest: valid pods, or errors of one line each. A valid pod survives
/// serialization unchanged, because the agent stores the manifests of pods that are terminating.
pub fn manifest(input: &[u8]) {
    let origin = Origin::File { path: "/m/a.yaml".into(), line: 0, column: 0 };
    for kind in [SourceKind::File, SourceKind::Url] {
        let source = StaticPodSource {
            node_name: "node",
            kind,
            strictness: Strictness::Lenient,
            gates: PodGates::default(),
        };
        let lenient = read_static_pods(input, &origin, &source);
        let strict = StaticPodSource { strictness: Strictness::Strict, ..source };
        let strict = read_static_pods(input, &origin, &strict);
        assert!(strict.pods.len() <= lenient.pods.len(), "strict is no kinder");
        for diagnostic in lenient.diagnostics.iter().chain(&strict.diagnostics) {
            assert!(!diagnostic.to_string().contains('\n'), "a problem is one line: {diagnostic}");
        }
        if kind == SourceKind::File {
            let has_diagnostics = !lenient.diagnostics.is_empty();
            assert!(has_diagnostics || !lenient.pods.is_empty(), "refused without a word");
        }
        for pod in &lenient.pods {
            sound(pod);
        }
    }
}

fn sound(pod: &Pod) {
    assert!(!pod.metadata.name.is_empty() && !pod.metadata.namespace.is_empty());
    assert!(!pod.spec.containers.is_empty(), "a pod has a container");
    for (_, _, container) in pod.spec.all_containers() {
        let _hash = container_hash(container);
    }
    let mut pod = pod.clone();
    identify(&mut pod, "u-1", "2026-01-02T03:04:05Z");
    let uid = &pod.metadata.uid;
    assert!(!uid.contains(['_', '/', '\0']) && !uid.starts_with('.'), "{uid:?} names folders");
    let mut written = serde_json::to_value(&pod).expect("a pod is JSON");
    written["apiVersion"] = "v1".into();
    written["kind"] = "Pod".into();
    let bytes = written.to_string().into_bytes();
    let again = decode(&bytes, &Origin::Default, Strictness::Lenient, ListPolicy::OnePod);
    let again = again.pods.into_iter().next().map(|read| read.pod);
    assert_eq!(again.as_ref(), Some(&pod), "written and read again");
}
