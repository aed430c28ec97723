//! Rules for metadata, and for annotations that duplicate fields.

use pod_model::pod::meta::{ObjectMeta, OwnerReference};
use pod_model::pod::security::{ProfileType, SecurityProfile};
use pod_model::pod::{Pod, TextMap};
use pod_model::{check_dns_label, check_dns_subdomain, check_label_value, check_qualified_name};

use super::findings::{FieldPath, PodFindings};
use super::formats::{check_descending, check_name_prefix};

pub(crate) const APP_ARMOR_ANNOTATION_PREFIX: &str =
    "container.apparmor.security.beta.kubernetes.io/";
pub(crate) const LOCALHOST_PREFIX: &str = "localhost/";
const SECCOMP_POD_ANNOTATION: &str = "seccomp.security.alpha.kubernetes.io/pod";
const SECCOMP_CONTAINER_PREFIX: &str = "container.seccomp.security.alpha.kubernetes.io/";
pub(super) const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";
const DELETION_COST_ANNOTATION: &str = "controller.kubernetes.io/pod-deletion-cost";
const ANNOTATION_BYTES: usize = 256 * 1024;

pub(super) fn check(pod: &Pod, findings: &mut PodFindings) {
    let path = FieldPath::new("metadata");
    check_object_meta(&pod.metadata, findings, &path);
    check_pod_annotations(pod, findings, &path.child("annotations"));
}

fn check_object_meta(meta: &ObjectMeta, findings: &mut PodFindings, path: &FieldPath) {
    if !meta.generate_name.is_empty() {
        let format_result = check_name_prefix(&meta.generate_name);
        findings.name(&path.child("generateName"), &meta.generate_name, format_result);
    }
    let name = path.child("name");
    if findings.require(&meta.name, &name) {
        findings.name(&name, &meta.name, check_dns_subdomain(&meta.name));
    }
    let namespace = path.child("namespace");
    if findings.require(&meta.namespace, &namespace) {
        findings.name(&namespace, &meta.namespace, check_dns_label(&meta.namespace));
    }
    findings.not_negative(&path.child("generation"), meta.generation);
    check_labels(&meta.labels, findings, &path.child("labels"));
    check_annotations(&meta.annotations, findings, &path.child("annotations"));
    check_owners(&meta.owner_references, findings, &path.child("ownerReferences"));
    check_finalizers(&meta.finalizers, findings, &path.child("finalizers"));
}

pub(super) fn check_labels(labels: &TextMap, findings: &mut PodFindings, path: &FieldPath) {
    for (key, value) in labels.iter() {
        findings.name(path, key, check_qualified_name(key));
        findings.name(path, value, check_label_value(value));
    }
}

pub(super) fn check_annotations(
    annotations: &TextMap,
    findings: &mut PodFindings,
    path: &FieldPath,
) {
    for key in annotations.keys() {
        findings.name(path, key, check_qualified_name(&key.to_lowercase()));
    }
    let total: usize = annotations.iter().map(|(key, value)| key.len() + value.len()).sum();
    if total > ANNOTATION_BYTES {
        let why = format!("annotations have {total} bytes, expected at most {ANNOTATION_BYTES}");
        findings.forbidden(path, why);
    }
}

fn check_owners(owners: &[OwnerReference], findings: &mut PodFindings, path: &FieldPath) {
    for owner in owners {
        let version = owner.api_version.rsplit('/').next().unwrap_or_default();
        for (text, field) in [
            (version, "apiVersion"),
            (&owner.kind, "kind"),
            (&owner.name, "name"),
            (&owner.uid, "uid"),
        ] {
            findings.require(text, &path.child(field));
        }
        if &*owner.api_version == "v1" && &*owner.kind == "Event" {
            findings.invalid(path, &owner.kind, "an Event owns nothing");
        }
    }
    if owners.iter().filter(|owner| owner.controller == Some(true)).count() > 1 {
        findings.forbidden(path, "only one owner may be the controller");
    }
}

fn check_finalizers(finalizers: &[Box<str>], findings: &mut PodFindings, path: &FieldPath) {
    for (index, finalizer) in finalizers.iter().enumerate() {
        findings.name(path, finalizer, check_qualified_name(finalizer));
        let standard = matches!(&**finalizer, "kubernetes" | "orphan" | "foregroundDeletion");
        if !finalizer.contains('/') && !standard {
            findings.invalid(&path.index(index), finalizer, "expected a name with a domain");
        }
    }
    let has = |word: &str| finalizers.iter().any(|each| &**each == word);
    if has("orphan") && has("foregroundDeletion") {
        findings.forbidden(path, "orphan and foregroundDeletion exclude each other");
    }
}

fn check_pod_annotations(pod: &Pod, findings: &mut PodFindings, path: &FieldPath) {
    let annotations = &pod.metadata.annotations;
    if let Some(value) = annotations.get(MIRROR_ANNOTATION)
        && pod.spec.node_name.is_empty()
    {
        let why = "a mirror pod must set spec.nodeName";
        findings.invalid(&path.key(MIRROR_ANNOTATION), value, why);
    }
    if let Some(cost) = annotations.get(DELETION_COST_ANNOTATION)
        && !is_deletion_cost(cost)
    {
        let why = "expected a whole number of 32 bits without leading zeros or plus";
        findings.invalid(&path.key(DELETION_COST_ANNOTATION), cost, why);
    }
    for (key, value) in annotations.iter() {
        if key == SECCOMP_POD_ANNOTATION || key.starts_with(SECCOMP_CONTAINER_PREFIX) {
            check_seccomp_annotation(value, findings, &path.child(key));
        }
        if let Some(container) = key.strip_prefix(APP_ARMOR_ANNOTATION_PREFIX) {
            let known = |each: &str| each == container;
            if !pod.spec.all_containers().any(|(_, _, each)| known(&each.name)) {
                findings.invalid(&path.key(key), container, "there is no such container");
            }
            let plain = matches!(&**value, "" | "runtime/default" | "unconfined");
            if !plain && !value.starts_with(LOCALHOST_PREFIX) {
                findings.invalid(&path.key(key), value, "expected an AppArmor profile");
            }
        }
    }
}

/// A number that can be compared as text as well: no plus, no leading zero.
fn is_deletion_cost(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let canonical = !text.starts_with('+') && (digits == "0" || !digits.starts_with('0'));
    canonical && text != "-0" && text.parse::<i32>().is_ok()
}

fn check_seccomp_annotation(value: &str, findings: &mut PodFindings, path: &FieldPath) {
    if matches!(value, "runtime/default" | "docker/default" | "unconfined") {
        return;
    }
    match value.strip_prefix(LOCALHOST_PREFIX) {
        Some(file) => check_descending(findings, path, file),
        None => findings.invalid(path, value, "expected a seccomp profile"),
    }
}

/// Annotations and fields with the same meaning must not contradict each other.
pub(super) fn check_agreement(pod: &Pod, findings: &mut PodFindings) {
    let spec = &pod.spec;
    let path = FieldPath::new("spec");
    let annotations = &pod.metadata.annotations;
    let of_pod = spec.security_context.as_deref();
    if let Some(profile) = of_pod.and_then(|context| context.seccomp_profile.as_deref())
        && let Some(annotation) = annotations.get(SECCOMP_POD_ANNOTATION)
    {
        let field = path.child("securityContext").child("seccompProfile");
        check_agree(annotation, profile, findings, &field);
    }
    for (list, index, container) in spec.all_containers() {
        let context_path = path.child(list.field()).index(index).child("securityContext");
        let context = container.security_context.as_deref();
        let key = format!("{SECCOMP_CONTAINER_PREFIX}{}", container.name);
        if let Some(profile) = context.and_then(|context| context.seccomp_profile.as_deref())
            && let Some(annotation) = annotations.get(&key)
        {
            check_agree(annotation, profile, findings, &context_path.child("seccompProfile"));
        }
        let key = format!("{APP_ARMOR_ANNOTATION_PREFIX}{}", container.name);
        let profile = context
            .and_then(|context| context.app_armor_profile.as_deref())
            .or_else(|| of_pod.and_then(|context| context.app_armor_profile.as_deref()));
        if let (Some(profile), Some(annotation), false) =
            (profile, annotations.get(&key), spec.is_windows())
        {
            let strict_default = &**annotation != "docker/default";
            let field = context_path.child("appArmorProfile");
            if strict_default {
                check_agree(annotation, profile, findings, &field);
            } else {
                findings.forbidden(&field.child("type"), "contradicts the pod's annotation");
            }
        }
    }
}

fn check_agree(
    annotation: &str,
    field: &SecurityProfile,
    findings: &mut PodFindings,
    path: &FieldPath,
) {
    let why = "contradicts the pod's annotation";
    let kinds_agree = match field.kind {
        ProfileType::Unconfined => annotation == "unconfined",
        ProfileType::RuntimeDefault => matches!(annotation, "runtime/default" | "docker/default"),
        ProfileType::Localhost => annotation.starts_with(LOCALHOST_PREFIX),
        ProfileType::Other(_) => true,
    };
    if !kinds_agree {
        findings.forbidden(&path.child("type"), why);
    } else if field.kind == ProfileType::Localhost
        && annotation.strip_prefix(LOCALHOST_PREFIX) != field.localhost_profile.as_deref()
    {
        findings.forbidden(&path.child("localhostProfile"), why);
    }
}
