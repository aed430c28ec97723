//! Decodes a manifest from a file or a URL all the way to static pods.
//!
//! The rule it keeps: the steps run in the reference's order (decode, defaults, static, validate,
//! references), and one invalid pod of a list rejects only itself, so that its last good version
//! can be kept. UIDs are assigned afterwards, by the caller.

use document::diagnostic::{Diagnostic, Origin};
use pod_model::pod::Pod;

use crate::decode::{ListPolicy, ManifestPod, Strictness, decode};
use crate::static_pod::{self, SourceKind};
use crate::{PodGates, apply_defaults, validate};

/// A UUID has 36.
const LONGEST_UID: usize = 128;

/// The node and source for which manifests are read, and the options.
#[derive(Debug, Clone, Copy)]
pub struct StaticPodSource<'node> {
    pub node_name: &'node str,
    pub kind: SourceKind,
    pub strictness: Strictness,
    pub gates: PodGates,
}

/// The result.
#[derive(Debug, Clone, Default)]
pub struct StaticPods {
    /// Valid pods, without UID unless the manifest set one.
    pub pods: Vec<Pod>,
    /// Full names of pods that were rejected, as far as a name could be decoded.
    pub refused: Vec<String>,
    pub diagnostics: Vec<Diagnostic>,
}

/// Decodes a manifest and validates its pods.
pub fn read_static_pods(bytes: &[u8], origin: &Origin, source: &StaticPodSource<'_>) -> StaticPods {
    let lists = match source.kind {
        SourceKind::File => ListPolicy::OnePod,
        SourceKind::Url => ListPolicy::PodOrList,
    };
    let decoded = decode(bytes, origin, source.strictness, lists);
    let mut result = StaticPods { diagnostics: decoded.diagnostics, ..StaticPods::default() };
    if source.strictness == Strictness::Strict
        && result.diagnostics.iter().any(Diagnostic::is_error)
    {
        return result;
    }
    for manifest in decoded.pods {
        let (pod, mut diagnostics) = validate_pod(&manifest, source);
        manifest.locate(&mut diagnostics);
        if diagnostics.is_empty() {
            result.pods.push(pod);
        } else if !manifest.pod.metadata.name.is_empty() {
            result.refused.push(pod.full_name());
        }
        result.diagnostics.extend(diagnostics);
    }
    result
}

fn validate_pod(manifest: &ManifestPod, source: &StaticPodSource<'_>) -> (Pod, Vec<Diagnostic>) {
    let mut pod = manifest.pod.clone();
    apply_defaults(&mut pod, &source.gates);
    if pod.metadata.name.is_empty() {
        let diagnostic =
            Diagnostic::error("metadata.name", "the name is missing, a static pod needs one");
        return (pod, vec![diagnostic]);
    }
    static_pod::apply(&mut pod, source.node_name, source.kind);
    let mut diagnostics = validate(&pod, &source.gates);
    diagnostics.extend(invalid_uid(&pod));
    if diagnostics.is_empty() {
        diagnostics.extend(forbidden_reference(&pod, &source.gates));
    }
    (pod, diagnostics)
}

/// An API server generates UIDs and never validates them; a manifest may set any. Cgroups, log
/// directories and pod directories have it in their names, and are found by it after a restart: `_`
/// separates it from what precedes it, and a systemd slice writes `-` as `_`.
fn invalid_uid(pod: &Pod) -> Option<Diagnostic> {
    let uid = &*pod.metadata.uid;
    let is_fit = uid.len() <= LONGEST_UID
        && !uid.starts_with(['-', '.'])
        && uid.chars().all(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '.'));
    (!is_fit).then(|| {
        let expected = format!(
            "expected at most {LONGEST_UID} letters, digits, '-' and '.', beginning with a letter \
             or digit"
        );
        Diagnostic::error("metadata.uid", expected).with_value(uid)
    })
}

fn forbidden_reference(pod: &Pod, gates: &PodGates) -> Option<Diagnostic> {
    let reference = if gates.contents_come_with_manifests {
        static_pod::reference_beyond_contents(pod)?
    } else {
        static_pod::api_reference(pod)?
    };
    // With the gate off, two references stay forbidden: nothing could provide them.
    let always = matches!(reference.resource, "clustertrustbundles" | "resourceclaims");
    (gates.prevent_static_pod_api_references || always).then(|| {
        let message = format!("a static pod may not refer to {}", reference.resource);
        Diagnostic::error(reference.field, message)
    })
}
