//! Rules for volumes that a node makes itself, and the choice among all of them.

use std::collections::{BTreeMap, BTreeSet};

use pod_model::pod::volume::{DownwardApiFile, HostPath, HostPathType, KeyToPath};
use pod_model::pod::{Pod, Volume, VolumeSource};
use pod_model::{check_dns_label, check_dns_subdomain};

use super::container::check_pull_policy;
use super::environment::{Appearance, check_field, check_resource_field};
use super::findings::{FieldPath, PodFindings};
use super::formats::{check_file_mode, check_local_path, check_no_backsteps};
use super::{claims, network_volumes, projected};

/// Judges all volumes and gives back those that may be mounted.
pub(super) fn check<'pod>(
    pod: &'pod Pod,
    findings: &mut PodFindings,
    path: &FieldPath,
) -> BTreeMap<&'pod str, &'pod VolumeSource> {
    let created = claims_to_be_created(pod);
    let mut sound = BTreeMap::new();
    for (index, volume) in pod.spec.volumes.iter().enumerate() {
        let path = path.index(index);
        let before = findings.count();
        check_choice(volume, &pod.metadata.name, findings, &path);
        let name = path.child("name");
        if findings.require(&volume.name, &name) {
            findings.name(&name, &volume.name, check_dns_label(&volume.name));
        }
        if sound.contains_key(&*volume.name) {
            findings.duplicate(&name, &volume.name);
        }
        if let (Some(source), true) = (&volume.source, findings.count() == before) {
            sound.insert(&*volume.name, source);
        }
        if let Some(VolumeSource::PersistentVolumeClaim(claim)) = &volume.source
            && created.contains(&*claim.claim_name)
        {
            let path = path.child("persistentVolumeClaim").child("claimName");
            let why = "this claim is made for an ephemeral volume of the pod";
            findings.invalid(&path, &claim.claim_name, why);
        }
    }
    sound
}

fn claims_to_be_created(pod: &Pod) -> BTreeSet<String> {
    let ephemeral = |volume: &&Volume| matches!(volume.source, Some(VolumeSource::Ephemeral(_)));
    if pod.metadata.name.is_empty() {
        return BTreeSet::new();
    }
    let volumes = pod.spec.volumes.iter().filter(ephemeral);
    volumes.map(|volume| format!("{}-{}", pod.metadata.name, volume.name)).collect()
}

fn check_choice(volume: &Volume, pod_name: &str, findings: &mut PodFindings, path: &FieldPath) {
    let Some(source) = &volume.source else {
        findings.required(path);
        return;
    };
    for surplus in &volume.surplus {
        let why = format!("{} is given already", source.field());
        findings.forbidden(&path.child(surplus), why);
    }
    let inner = path.child(source.field());
    match source {
        VolumeSource::EmptyDir(dir) => {
            if let Some(limit) = dir.size_limit.filter(|limit| limit.sign() < 0) {
                findings.invalid(&inner.child("sizeLimit"), limit, "expected zero or more");
            }
        }
        VolumeSource::HostPath(host) => check_host_path(host, findings, &inner),
        VolumeSource::Secret(secret) => {
            findings.require(&secret.secret_name, &inner.child("secretName"));
            check_file_mode(findings, &inner.child("defaultMode"), secret.default_mode);
            check_items(&secret.items, findings, &inner.child("items"));
        }
        VolumeSource::ConfigMap(map) => {
            findings.require(&map.name, &inner.child("name"));
            check_file_mode(findings, &inner.child("defaultMode"), map.default_mode);
            check_items(&map.items, findings, &inner.child("items"));
        }
        VolumeSource::DownwardApi(downward) => {
            check_file_mode(findings, &inner.child("defaultMode"), downward.default_mode);
            for file in &downward.items {
                check_downward_file(file, findings, &inner);
            }
        }
        VolumeSource::Projected(volume) => projected::check(volume, findings, &inner),
        VolumeSource::PersistentVolumeClaim(claim) => {
            findings.require(&claim.claim_name, &inner.child("claimName"));
        }
        VolumeSource::Ephemeral(ephemeral) => {
            claims::check_ephemeral(ephemeral, findings, &inner);
            if !pod_name.is_empty() && !volume.name.is_empty() {
                let claim = format!("{pod_name}-{}", volume.name);
                findings.name(&path.child("name"), &claim, check_dns_subdomain(&claim));
            }
        }
        VolumeSource::Image(image) => {
            findings.require(&image.reference, &inner.child("reference"));
            check_pull_policy(&image.pull_policy, findings, &inner.child("pullPolicy"));
        }
        VolumeSource::Csi(csi) => network_volumes::check_csi(csi, findings, &inner),
        other => network_volumes::check(other, &volume.name, findings, path),
    }
}

fn check_host_path(host: &HostPath, findings: &mut PodFindings, path: &FieldPath) {
    if !findings.require(&host.path, &path.child("path")) {
        return;
    }
    check_no_backsteps(findings, &path.child("path"), &host.path);
    let odd = |kind: &&HostPathType| !kind.is_known() && !kind.is_empty();
    if let Some(kind) = host.kind.as_ref().filter(odd) {
        findings.unsupported(&path.child("type"), kind, HostPathType::KNOWN);
    }
}

pub(super) fn check_items(items: &[KeyToPath], findings: &mut PodFindings, path: &FieldPath) {
    for (index, item) in items.iter().enumerate() {
        let path = path.index(index);
        findings.require(&item.key, &path.child("key"));
        findings.require(&item.path, &path.child("path"));
        check_local_path(findings, &path.child("path"), &item.path);
        check_file_mode(findings, &path.child("mode"), item.mode);
    }
}

pub(super) fn check_downward_file(
    file: &DownwardApiFile,
    findings: &mut PodFindings,
    path: &FieldPath,
) {
    findings.require(&file.path, &path.child("path"));
    check_local_path(findings, &path.child("path"), &file.path);
    match (&file.field_ref, &file.resource_field_ref) {
        (Some(field), other) => {
            check_field(field, Appearance::File, findings, &path.child("fieldRef"));
            if other.is_some() {
                findings.forbidden(path, "fieldRef and resourceFieldRef exclude each other");
            }
        }
        (None, Some(resource)) => {
            let path = path.child("resourceFieldRef");
            check_resource_field(resource, Appearance::File, findings, &path);
        }
        (None, None) => findings.forbidden(path, "expected fieldRef or resourceFieldRef"),
    }
    check_file_mode(findings, &path.child("mode"), file.mode);
}
