//! Pods for tests, from manifests.

use document::diagnostic::Origin;
use pod_manifest::{ListPolicy, Strictness, decode};
use pod_model::pod::{Pod, VolumeSource};

/// The pod `web` of namespace `shop` with this specification, in YAML's flow style.
pub(crate) fn pod(spec: &str) -> Pod {
    let text = format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: web, namespace: shop, uid: u-1}}\nspec: {spec}"
    );
    let decoded = decode(text.as_bytes(), &Origin::Default, Strictness::Strict, ListPolicy::OnePod);
    assert!(decoded.diagnostics.is_empty(), "{text}: {:?}", decoded.diagnostics);
    decoded.pods.into_iter().next().expect("one pod").pod
}

/// The same with one volume of this source.
pub(crate) fn with_volume(spec: &str, volume: &str) -> Pod {
    pod(&format!("{{{spec} volumes: [{{name: v, {volume}}}]}}"))
}

pub(crate) fn source(pod: &Pod) -> &VolumeSource {
    pod.spec.volumes[0].source.as_ref().expect("a source")
}
