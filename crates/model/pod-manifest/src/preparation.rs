//! What an API server does to a new pod beyond defaults: fields behind closed gates are dropped,
//! selectors take in the labels that they name, AppArmor annotations become fields.
//!
//! Static pods never pass here; it serves pods that are compared with an API server's.
//!
//! upstream: pkg/registry/core/pod/strategy.go, pkg/api/pod/util.go

use pod_model::pod::container::Container;
use pod_model::pod::handler::Lifecycle;
use pod_model::pod::scheduling::{
    LabelSelector, LabelSelectorOperator, LabelSelectorRequirement, PodAffinity, PodAffinityTerm,
};
use pod_model::pod::security::{ProfileType, SecurityProfile};
use pod_model::pod::{Pod, PodSpec, TextMap, VolumeSource};

use crate::PodGates;
use crate::validation::{APP_ARMOR_ANNOTATION_PREFIX, LOCALHOST_PREFIX};

/// Makes of a defaulted pod what an API server would store, apart from what it alone knows.
pub fn prepare_for_create(pod: &mut Pod, gates: &PodGates) {
    drop_disabled(&mut pod.spec, gates);
    let labels = pod.metadata.labels.clone();
    if let Some(affinity) = &mut pod.spec.affinity {
        let both = [&mut affinity.pod_affinity, &mut affinity.pod_anti_affinity];
        for affinity in both.into_iter().flatten() {
            merge_affinity(affinity, &labels);
        }
    }
    if gates.match_label_keys_merge {
        for constraint in &mut pod.spec.topology_spread_constraints {
            if let Some(selector) = &mut constraint.label_selector {
                let keys = &constraint.match_label_keys;
                merge_keys(selector, keys, &LabelSelectorOperator::In, &labels);
            }
        }
    }
    if !pod.spec.is_windows() {
        let annotations = pod.metadata.annotations.clone();
        let of_pod = pod.spec.security_context.as_ref();
        let of_pod = of_pod.and_then(|context| context.app_armor_profile.as_deref().cloned());
        for container in pod.spec.all_containers_mut() {
            take_app_armor_annotation(container, &annotations, of_pod.as_ref());
        }
    }
}

fn drop_disabled(spec: &mut PodSpec, gates: &PodGates) {
    if !gates.pod_level_resources {
        spec.resources = None;
    }
    if !gates.hostname_override {
        spec.hostname_override = None;
    }
    if !gates.generic_workload {
        spec.scheduling_group = None;
    }
    for volume in &mut spec.volumes {
        let Some(VolumeSource::Projected(projected)) = &mut volume.source else { continue };
        for source in &mut projected.sources {
            if !gates.cluster_trust_bundle_projection {
                source.cluster_trust_bundle = None;
            }
            if !gates.pod_certificate_request {
                source.pod_certificate = None;
            }
        }
    }
    if !gates.container_restart_rules {
        drop_restart_rules(spec);
    }
    for container in spec.all_containers_mut() {
        if !gates.container_stop_signals {
            drop_stop_signal(container);
        }
        if !gates.env_files {
            for source in container.env.iter_mut().filter_map(|each| each.value_from.as_mut()) {
                source.file_key_ref = None;
            }
        }
    }
}

/// Of restart policies of containers, only that of sidecars is older than the gate.
fn drop_restart_rules(spec: &mut PodSpec) {
    for container in spec.all_containers_mut() {
        container.restart_policy_rules.clear();
    }
    for container in &mut spec.init_containers {
        if !container.is_restarted_always() {
            container.restart_policy = None;
        }
    }
    let ephemeral = spec.ephemeral_containers.iter_mut().map(|each| &mut each.container);
    for container in spec.containers.iter_mut().chain(ephemeral) {
        container.restart_policy = None;
    }
}

fn drop_stop_signal(container: &mut Container) {
    let Some(lifecycle) = &mut container.lifecycle else { return };
    if lifecycle.stop_signal.take().is_some() && **lifecycle == Lifecycle::default() {
        container.lifecycle = None;
    }
}

fn merge_affinity(affinity: &mut PodAffinity, labels: &TextMap) {
    let preferred = affinity.preferred.iter_mut().map(|each| &mut each.pod_affinity_term);
    for term in preferred.chain(&mut affinity.required) {
        let PodAffinityTerm { label_selector, match_label_keys, mismatch_label_keys, .. } = term;
        if let Some(selector) = label_selector {
            merge_keys(selector, match_label_keys, &LabelSelectorOperator::In, labels);
            merge_keys(selector, mismatch_label_keys, &LabelSelectorOperator::NotIn, labels);
        }
    }
}

fn merge_keys(
    selector: &mut LabelSelector,
    keys: &[Box<str>],
    operator: &LabelSelectorOperator,
    labels: &TextMap,
) {
    for key in keys {
        if let Some(value) = labels.get(key) {
            selector.match_expressions.push(LabelSelectorRequirement {
                key: key.clone(),
                operator: operator.clone(),
                values: vec![value.clone()],
            });
        }
    }
}

fn take_app_armor_annotation(
    container: &mut Container,
    annotations: &TextMap,
    of_pod: Option<&SecurityProfile>,
) {
    let key = format!("{APP_ARMOR_ANNOTATION_PREFIX}{}", container.name);
    let Some(annotation) = annotations.get(&key) else { return };
    let context = container.security_context.as_ref();
    if context.is_some_and(|context| context.app_armor_profile.is_some()) {
        return;
    }
    let profile = profile_of_annotation(annotation);
    if let Some(profile) = profile.filter(|profile| Some(profile) != of_pod) {
        let context = container.security_context.get_or_insert_default();
        context.app_armor_profile = Some(Box::new(profile));
    }
}

fn profile_of_annotation(annotation: &str) -> Option<SecurityProfile> {
    let plain = |kind| Some(SecurityProfile { kind, localhost_profile: None });
    match annotation {
        "unconfined" => plain(ProfileType::Unconfined),
        "runtime/default" => plain(ProfileType::RuntimeDefault),
        other => {
            let name = other.strip_prefix(LOCALHOST_PREFIX)?;
            let sound = !name.is_empty() && name.trim() == name && name.len() <= 4095;
            sound.then(|| SecurityProfile {
                kind: ProfileType::Localhost,
                localhost_profile: Some(Box::from(name)),
            })
        }
    }
}
