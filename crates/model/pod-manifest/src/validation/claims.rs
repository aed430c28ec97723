//! Rules for claims: those that a pod brings for its volumes, and those for its devices.

use std::collections::BTreeSet;

use pod_model::pod::spec::PodResourceClaim;
use pod_model::pod::volume::{AccessMode, ClaimSpec, EphemeralVolume, PersistentVolumeMode};
use pod_model::pod::{ObjectMeta, Pod};
use pod_model::{check_dns_label, check_dns_subdomain};

use super::findings::{FieldPath, PodFindings};
use super::metadata::{MIRROR_ANNOTATION, check_annotations, check_labels};
use super::resources::check_amount;
use super::selectors::check_selector;

pub(super) fn check_ephemeral(
    volume: &EphemeralVolume,
    findings: &mut PodFindings,
    path: &FieldPath,
) {
    let path = path.child("volumeClaimTemplate");
    let Some(template) = &volume.volume_claim_template else {
        findings.required(&path);
        return;
    };
    let metadata = path.child("metadata");
    check_annotations(&template.metadata.annotations, findings, &metadata.child("annotations"));
    check_labels(&template.metadata.labels, findings, &metadata.child("labels"));
    let ObjectMeta { labels, annotations, .. } = template.metadata.clone();
    if template.metadata != (ObjectMeta { labels, annotations, ..ObjectMeta::default() }) {
        findings.forbidden(&metadata, "only labels and annotations may be set");
    }
    check_spec(&template.spec, findings, &path.child("spec"));
}

fn check_spec(spec: &ClaimSpec, findings: &mut PodFindings, path: &FieldPath) {
    let modes = path.child("accessModes");
    if spec.access_modes.is_empty() {
        findings.required(&modes);
    }
    for mode in spec.access_modes.iter().filter(|mode| !mode.is_known()) {
        findings.unsupported(&modes, mode, AccessMode::KNOWN);
    }
    let alone = |mode: &AccessMode| *mode == AccessMode::ReadWriteOncePod;
    let known = || spec.access_modes.iter().filter(|mode| mode.is_known());
    if known().any(alone) && !known().all(alone) {
        findings.forbidden(&modes, "ReadWriteOncePod stands alone");
    }
    check_selector(spec.selector.as_deref(), findings, &path.child("selector"));
    let storage = path.child("resources").key("storage");
    match spec.resources.requests.get("storage") {
        None => findings.required(&storage),
        Some(amount) if amount.sign() <= 0 => {
            findings.invalid(&storage, amount, "expected more than zero");
        }
        Some(amount) => check_amount("storage", amount, findings, &storage),
    }
    for (class, field) in [
        (&spec.storage_class_name, "storageClassName"),
        (&spec.volume_attributes_class_name, "volumeAttributesClassName"),
    ] {
        if let Some(class) = class.as_deref().filter(|class| !class.is_empty()) {
            findings.name(&path.child(field), class, check_dns_subdomain(class));
        }
    }
    if let Some(mode) = spec.volume_mode.as_ref().filter(|mode| !mode.is_known()) {
        findings.unsupported(&path.child("volumeMode"), mode, PersistentVolumeMode::KNOWN);
    }
    check_data(spec, findings, path);
}

/// The data source of a claim.
struct DataSource<'claim> {
    group: Option<&'claim str>,
    kind: &'claim str,
    name: &'claim str,
}

fn check_data(spec: &ClaimSpec, findings: &mut PodFindings, path: &FieldPath) {
    let source = spec.data_source.as_deref().map(|source| DataSource {
        group: source.api_group.as_deref(),
        kind: &source.kind,
        name: &source.name,
    });
    let reference = spec.data_source_ref.as_deref();
    let referred = reference.map(|source| DataSource {
        group: source.api_group.as_deref(),
        kind: &source.kind,
        name: &source.name,
    });
    for (source, field) in [(&source, "dataSource"), (&referred, "dataSourceRef")] {
        if let Some(source) = source {
            check_data_source(source, findings, &path.child(field));
        }
    }
    let namespace = reference.and_then(|reference| reference.namespace.as_deref());
    let namespace = namespace.filter(|namespace| !namespace.is_empty());
    if let Some(namespace) = namespace {
        let path = path.child("dataSourceRef").child("namespace");
        findings.name(&path, namespace, check_dns_label(namespace));
        if source.is_some() {
            let why = "dataSource may not be set beside dataSourceRef.namespace";
            findings.forbidden(&path, why);
        }
    } else if let (Some(one), Some(other)) = (&source, &referred)
        && (one.group, one.kind, one.name) != (other.group, other.kind, other.name)
    {
        findings.forbidden(path, "dataSource and dataSourceRef must be the same object");
    }
}

fn check_data_source(source: &DataSource<'_>, findings: &mut PodFindings, path: &FieldPath) {
    findings.require(source.name, &path.child("name"));
    findings.require(source.kind, &path.child("kind"));
    let group = source.group.unwrap_or_default();
    if group.is_empty() && source.kind != "PersistentVolumeClaim" {
        findings.invalid(path, source.kind, "expected PersistentVolumeClaim without an apiGroup");
    }
    if !group.is_empty() {
        findings.name(&path.child("apiGroup"), group, check_dns_subdomain(group));
    }
}

/// Claims of devices.
pub(super) fn check_resource_claims(pod: &Pod, findings: &mut PodFindings, path: &FieldPath) {
    let claims = &pod.spec.resource_claims;
    if !claims.is_empty() && pod.metadata.annotations.contains(MIRROR_ANNOTATION) {
        findings.forbidden(&path.index(0), "a static pod has no resource claims");
        return;
    }
    let mut names = BTreeSet::new();
    for (index, claim) in claims.iter().enumerate() {
        check_resource_claim(claim, &mut names, findings, &path.index(index));
    }
}

fn check_resource_claim<'pod>(
    claim: &'pod PodResourceClaim,
    names: &mut BTreeSet<&'pod str>,
    findings: &mut PodFindings,
    path: &FieldPath,
) {
    let name = path.child("name");
    if findings.require(&claim.name, &name) {
        if !names.insert(&claim.name) {
            findings.duplicate(&name, &claim.name);
        } else {
            findings.name(&name, &claim.name, check_dns_label(&claim.name));
        }
    }
    let (direct, template) = (&claim.resource_claim_name, &claim.resource_claim_template_name);
    if direct.is_some() == template.is_some() {
        let why = "expected either resourceClaimName or resourceClaimTemplateName";
        findings.forbidden(path, why);
    }
    for (target, field) in [(direct, "resourceClaimName"), (template, "resourceClaimTemplateName")]
    {
        if let Some(target) = target {
            findings.name(&path.child(field), target, check_dns_subdomain(target));
        }
    }
}
