//! Rules for volumes of storage over a network or of a cloud.

use std::ops::RangeInclusive;

use pod_model::check_dns_label;
use pod_model::check_dns_subdomain;
use pod_model::pod::VolumeSource;
use pod_model::pod::volume::network::{
    AzureDisk, FibreChannel, Flocker, Iscsi, Quobyte, StorageOs,
};
use pod_model::pod::volume::{CsiVolume, NamedReference};

use super::findings::{FieldPath, PodFindings};
use super::formats::check_descending;

const PARTITIONS: RangeInclusive<i64> = 0..=255;

/// Judges a source; `path` is that of the volume.
pub(super) fn check(
    source: &VolumeSource,
    volume: &str,
    findings: &mut PodFindings,
    path: &FieldPath,
) {
    let inner = path.child(source.field());
    let mut require = |text: &str, field: &str| {
        findings.require(text, &inner.child(field));
    };
    match source {
        VolumeSource::GitRepo(git) => {
            require(&git.repository, "repository");
            check_descending(findings, &inner.child("directory"), &git.directory);
        }
        VolumeSource::GcePersistentDisk(disk) => {
            let inner = path.child("persistentDisk");
            findings.require(&disk.pd_name, &inner.child("pdName"));
            findings.range(&inner.child("partition"), disk.partition.into(), PARTITIONS);
        }
        VolumeSource::AwsElasticBlockStore(store) => {
            require(&store.volume_id, "volumeID");
            findings.range(&inner.child("partition"), store.partition.into(), PARTITIONS);
        }
        VolumeSource::Nfs(nfs) => {
            require(&nfs.server, "server");
            require(&nfs.path, "path");
            if !nfs.path.starts_with('/') {
                findings.invalid(&inner.child("path"), &nfs.path, "expected an absolute path");
            }
        }
        VolumeSource::Glusterfs(glusterfs) => {
            require(&glusterfs.endpoints, "endpoints");
            require(&glusterfs.path, "path");
        }
        VolumeSource::Rbd(rbd) => {
            require(if rbd.monitors.is_empty() { "" } else { "some" }, "monitors");
            require(&rbd.image, "image");
        }
        VolumeSource::Cinder(cinder) => {
            require(&cinder.volume_id, "volumeID");
            check_secret(cinder.secret_ref.as_deref(), findings, &inner.child("secretRef"));
        }
        VolumeSource::CephFs(ceph) => {
            require(if ceph.monitors.is_empty() { "" } else { "some" }, "monitors");
        }
        VolumeSource::FlexVolume(flex) => {
            require(&flex.driver, "driver");
            for key in flex.options.keys().filter(|key| is_reserved(key)) {
                let why = "names below kubernetes.io and k8s.io are reserved";
                findings.invalid(&inner.child("options").key(key), key, why);
            }
        }
        VolumeSource::AzureFile(file) => {
            require(&file.secret_name, "secretName");
            require(&file.share_name, "shareName");
        }
        VolumeSource::VsphereVolume(disk) => require(&disk.volume_path, "volumePath"),
        VolumeSource::PhotonPersistentDisk(disk) => require(&disk.pd_id, "pdID"),
        VolumeSource::PortworxVolume(disk) => require(&disk.volume_id, "volumeID"),
        VolumeSource::ScaleIo(volume) => {
            require(&volume.gateway, "gateway");
            require(&volume.system, "system");
            require(&volume.volume_name, "volumeName");
        }
        VolumeSource::Iscsi(iscsi) => check_iscsi(iscsi, volume, findings, path),
        VolumeSource::FibreChannel(channel) => check_fibre_channel(channel, findings, &inner),
        VolumeSource::Flocker(flocker) => check_flocker(flocker, findings, &inner),
        VolumeSource::Quobyte(quobyte) => check_quobyte(quobyte, findings, &inner),
        VolumeSource::AzureDisk(disk) => check_azure_disk(disk, findings, &inner),
        VolumeSource::StorageOs(volume) => check_storage_os(volume, findings, &inner),
        _ => {}
    }
}

fn check_secret(reference: Option<&NamedReference>, findings: &mut PodFindings, path: &FieldPath) {
    if let Some(reference) = reference {
        findings.require(&reference.name, &path.child("name"));
    }
}

fn is_reserved(key: &str) -> bool {
    let domain = key.split_once('/').map_or(key, |(domain, _)| domain);
    let domain = format!(".{}", domain.to_lowercase());
    domain.ends_with(".kubernetes.io") || domain.ends_with(".k8s.io")
}

pub(super) fn check_csi(csi: &CsiVolume, findings: &mut PodFindings, path: &FieldPath) {
    let driver = path.child("driver");
    if findings.require(&csi.driver, &driver) {
        if csi.driver.len() > 63 {
            findings.invalid(&driver, &csi.driver, "expected at most 63 characters");
        }
        findings.name(&driver, &csi.driver, check_dns_subdomain(&csi.driver.to_lowercase()));
    }
    if let Some(secret) = &csi.node_publish_secret_ref
        && findings.require(&secret.name, &path.child("nodePublishSecretRef").child("name"))
    {
        findings.name(&path.child("name"), &secret.name, check_dns_subdomain(&secret.name));
    }
}

fn check_iscsi(iscsi: &Iscsi, volume: &str, findings: &mut PodFindings, volume_path: &FieldPath) {
    let path = volume_path.child("iscsi");
    findings.require(&iscsi.target_portal, &path.child("targetPortal"));
    if findings.require(&iscsi.iqn, &path.child("iqn")) && !is_iscsi_name(&iscsi.iqn) {
        findings.invalid(&path.child("iqn"), &iscsi.iqn, "expected an iqn., eui. or naa. name");
    }
    findings.range(&path.child("lun"), iscsi.lun.into(), 0..=255);
    if (iscsi.chap_auth_discovery || iscsi.chap_auth_session) && iscsi.secret_ref.is_none() {
        findings.required(&path.child("secretRef"));
    }
    if let Some(name) = &iscsi.initiator_name {
        if !is_iscsi_name(name) {
            let why = "expected an iqn., eui. or naa. name";
            findings.invalid(&path.child("initiatorname"), name, why);
        }
        if volume.len() + 1 + iscsi.target_portal.len() > 64 {
            let why = "the volume's name and targetPortal together may have 63 characters";
            findings.invalid(&volume_path.child("name"), volume, why);
        }
    }
}

fn is_iscsi_name(name: &str) -> bool {
    let hex = |prefix: &str, length: usize| {
        // The character behind the prefix is a dot in practice and anything by the rule.
        let mut rest = name.strip_prefix(prefix).unwrap_or_default().chars();
        rest.next().is_some_and(|dot| dot != '\n')
            && rest.clone().count() == length
            && rest.all(|each| each.is_ascii_alphanumeric())
    };
    if name.starts_with("iqn") {
        // The rule is not bound to the start of the text, so any qualified name in it will do.
        return name
            .match_indices("iqn.")
            .any(|(at, _)| is_qualified_iscsi(name.get(at + 4..).unwrap_or_default()));
    }
    hex("eui", 16) || hex("naa", 32)
}

/// `2001-04.com.example:storage`: a month, a domain, and behind a colon anything but separators.
fn is_qualified_iscsi(text: &str) -> bool {
    let bytes = text.as_bytes();
    let digits = |from: usize, to: usize| {
        bytes.get(from..to).is_some_and(|part| part.iter().all(u8::is_ascii_digit))
    };
    let dated =
        digits(0, 4) && bytes.get(4) == Some(&b'-') && digits(5, 7) && bytes.get(7) == Some(&b'.');
    let Some((domain, rest)) = text.get(8..).and_then(|rest| rest.split_once(':')) else {
        return false;
    };
    let separator = |each: char| ",;*&$|".contains(each) || each.is_ascii_whitespace();
    dated
        && !domain.is_empty()
        && domain.chars().all(|each| each.is_ascii_alphanumeric() || matches!(each, '-' | '.'))
        && !rest.is_empty()
        && !rest.contains(separator)
}

fn check_fibre_channel(channel: &FibreChannel, findings: &mut PodFindings, path: &FieldPath) {
    let targets = path.child("targetWWNs");
    if channel.target_wwns.is_empty() == channel.wwids.is_empty() {
        findings.forbidden(&targets, "expected either targetWWNs or wwids");
    }
    if channel.target_wwns.is_empty() {
        return;
    }
    match channel.lun {
        None => findings.required(&path.child("lun")),
        Some(lun) => findings.range(&path.child("lun"), lun.into(), 0..=255),
    }
}

fn check_flocker(flocker: &Flocker, findings: &mut PodFindings, path: &FieldPath) {
    if flocker.dataset_name.is_empty() == flocker.dataset_uuid.is_empty() {
        findings.forbidden(path, "expected either datasetName or datasetUUID");
    }
    if flocker.dataset_name.contains('/') {
        let path = path.child("datasetName");
        findings.invalid(&path, &flocker.dataset_name, "may not contain '/'");
    }
}

fn check_quobyte(quobyte: &Quobyte, findings: &mut PodFindings, path: &FieldPath) {
    let registry = path.child("registry");
    if findings.require(&quobyte.registry, &registry) {
        if quobyte.tenant.len() >= 65 {
            let path = path.child("tenant");
            findings.invalid(&path, &quobyte.tenant, "expected at most 64 characters");
        } else if !quobyte.registry.split(',').all(is_host_and_port) {
            let why = "expected host:port, or several between commas";
            findings.invalid(&registry, &quobyte.registry, why);
        }
    }
    findings.require(&quobyte.volume, &path.child("volume"));
}

/// A host, a colon and a port, each possibly empty; an IPv6 host stands in brackets.
fn is_host_and_port(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    let bare = match host.strip_prefix('[') {
        Some(rest) => match rest.strip_suffix(']') {
            Some(address) => address,
            None => return false,
        },
        None if host.contains(':') => return false,
        None => host,
    };
    !bare.contains(['[', ']']) && !port.contains(['[', ']'])
}

fn check_azure_disk(disk: &AzureDisk, findings: &mut PodFindings, path: &FieldPath) {
    findings.require(&disk.disk_name, &path.child("diskName"));
    findings.require(&disk.disk_uri, &path.child("diskURI"));
    for (word, field, known) in [
        (&disk.caching_mode, "cachingMode", ["None", "ReadOnly", "ReadWrite"]),
        (&disk.kind, "kind", ["Dedicated", "Managed", "Shared"]),
    ] {
        if let Some(word) = word.as_deref().filter(|word| !known.contains(word)) {
            findings.unsupported(&path.child(field), word, &known);
        }
    }
    let prefix = match disk.kind.as_deref() {
        None => return,
        Some("Managed") => "/subscriptions/",
        Some(_) => "https://",
    };
    if !disk.disk_uri.starts_with(prefix) {
        let why = format!("expected a URI that begins with {prefix}");
        findings.invalid(&path.child("diskURI"), &disk.disk_uri, why);
    }
}

fn check_storage_os(volume: &StorageOs, findings: &mut PodFindings, path: &FieldPath) {
    let name = path.child("volumeName");
    if findings.require(&volume.volume_name, &name) {
        findings.name(&name, &volume.volume_name, check_dns_label(&volume.volume_name));
    }
    if !volume.volume_namespace.is_empty() {
        let path = path.child("volumeNamespace");
        findings.name(&path, &volume.volume_namespace, check_dns_label(&volume.volume_namespace));
    }
    check_secret(volume.secret_ref.as_deref(), findings, &path.child("secretRef"));
}
