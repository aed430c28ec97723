//! Rules for projected volumes.

use std::collections::BTreeSet;

use pod_model::check_dns_subdomain;
use pod_model::pod::volume::{
    KeysProjection, PodCertificateProjection, ProjectedVolume, TokenProjection,
    TrustBundleProjection, VolumeProjection,
};

use super::findings::{FieldPath, PodFindings};
use super::formats::{check_file_mode, check_local_path, signer_name};
use super::selectors::check_selector;
use super::volumes::{check_downward_file, check_items};

const SHORTEST_TOKEN: i64 = 600;
const LONGEST_TOKEN: i64 = 1 << 32;
const SHORTEST_CERTIFICATE: i32 = 3600;
const LONGEST_CERTIFICATE: i32 = 91 * 24 * 3600;
const LONGEST_KUBERNETES_CERTIFICATE: i32 = 24 * 3600;
const KEY_TYPES: [&str; 6] =
    ["RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519"];

/// The files of a projected volume so far: no two sources may write the same one.
struct ProjectedPaths<'volume, 'path> {
    taken: BTreeSet<&'volume str>,
    path: &'path FieldPath,
}

impl<'volume> ProjectedPaths<'volume, '_> {
    fn claim(&mut self, file: &'volume str, findings: &mut PodFindings) {
        if !self.taken.insert(file) {
            findings.invalid(self.path, file, "two sources write this file");
        }
    }
}

pub(super) fn check(volume: &ProjectedVolume, findings: &mut PodFindings, path: &FieldPath) {
    check_file_mode(findings, &path.child("defaultMode"), volume.default_mode);
    let mut files = ProjectedPaths { taken: BTreeSet::new(), path };
    for (index, source) in volume.sources.iter().enumerate() {
        check_source(source, &mut files, findings, &path.child("sources").index(index));
    }
}

fn check_source<'volume>(
    source: &'volume VolumeProjection,
    files: &mut ProjectedPaths<'volume, '_>,
    findings: &mut PodFindings,
    path: &FieldPath,
) {
    let mut count = 0;
    for (keys, field) in [(&source.secret, "secret"), (&source.config_map, "configMap")] {
        if let Some(keys) = keys {
            count += 1;
            check_keys(keys, files, findings, &path.child(field));
        }
    }
    if let Some(downward) = &source.downward_api {
        count += 1;
        for file in &downward.items {
            check_downward_file(file, findings, &path.child("downwardAPI"));
            if !file.path.is_empty() {
                files.claim(&file.path, findings);
            }
        }
    }
    if let Some(token) = &source.service_account_token {
        count += 1;
        check_token(token, findings, files.path, &path.child("serviceAccountToken"));
    }
    if let Some(bundle) = &source.cluster_trust_bundle {
        count += 1;
        check_bundle(bundle, files, findings, &path.child("clusterTrustBundle"));
    }
    if let Some(certificate) = &source.pod_certificate {
        count += 1;
        check_certificate(certificate, files, findings, &path.child("podCertificate"));
    }
    if count > 1 {
        findings.forbidden(path, "expected one kind of source");
    }
}

fn check_keys<'volume>(
    keys: &'volume KeysProjection,
    files: &mut ProjectedPaths<'volume, '_>,
    findings: &mut PodFindings,
    path: &FieldPath,
) {
    findings.require(&keys.name, &path.child("name"));
    check_items(&keys.items, findings, &path.child("items"));
    for item in keys.items.iter().filter(|item| !item.path.is_empty()) {
        files.claim(&item.path, findings);
    }
}

fn check_token(
    token: &TokenProjection,
    findings: &mut PodFindings,
    volume: &FieldPath,
    path: &FieldPath,
) {
    let seconds = token.expiration_seconds.unwrap_or_default();
    findings.range(&path.child("expirationSeconds"), seconds, SHORTEST_TOKEN..=LONGEST_TOKEN);
    let file = volume.child("path");
    if findings.require(&token.path, &file) {
        check_local_path(findings, &file, &token.path);
    }
}

fn check_bundle<'volume>(
    bundle: &'volume TrustBundleProjection,
    files: &mut ProjectedPaths<'volume, '_>,
    findings: &mut PodFindings,
    path: &FieldPath,
) {
    match (&bundle.name, &bundle.signer_name) {
        (Some(_), Some(_)) => findings.forbidden(path, "name and signerName exclude each other"),
        (Some(name), None) => {
            let last = name.rsplit(':').next().unwrap_or_default();
            findings.name(&path.child("name"), name, check_dns_subdomain(last));
            if bundle.label_selector.is_some() {
                findings.forbidden(&path.child("labelSelector"), "may not be set beside name");
            }
        }
        (None, Some(signer)) => {
            findings.check_format(&path.child("signerName"), signer, signer_name(signer));
            let selector = bundle.label_selector.as_deref();
            check_selector(selector, findings, &path.child("labelSelector"));
        }
        (None, None) => findings.forbidden(path, "expected name or signerName"),
    }
    findings.require(&bundle.path, &path.child("path"));
    check_local_path(findings, &path.child("path"), &bundle.path);
    files.claim(&bundle.path, findings);
}

fn check_certificate<'volume>(
    certificate: &'volume PodCertificateProjection,
    files: &mut ProjectedPaths<'volume, '_>,
    findings: &mut PodFindings,
    path: &FieldPath,
) {
    let signer = &certificate.signer_name;
    findings.check_format(&path.child("signerName"), signer, signer_name(signer));
    for key in certificate.user_annotations.keys() {
        let key = key.to_lowercase();
        if !key.contains('/') || pod_model::check_qualified_name(&key).is_err() {
            findings.invalid(&path.child("userAnnotations"), key, "expected domain/name");
        }
    }
    if !KEY_TYPES.contains(&&*certificate.key_type) {
        findings.unsupported(&path.child("keyType"), &certificate.key_type, &KEY_TYPES);
    }
    if let Some(seconds) = certificate.max_expiration_seconds {
        let domain = signer.split('/').next().unwrap_or_default();
        let own = domain == "kubernetes.io" || domain.ends_with(".kubernetes.io");
        let most = if own { LONGEST_KUBERNETES_CERTIFICATE } else { LONGEST_CERTIFICATE };
        let path = path.child("maxExpirationSeconds");
        findings.range(&path, seconds.into(), SHORTEST_CERTIFICATE.into()..=most.into());
    }
    let mut written = 0;
    for (file, field) in [
        (&certificate.credential_bundle_path, "credentialBundlePath"),
        (&certificate.key_path, "keyPath"),
        (&certificate.certificate_chain_path, "certificateChainPath"),
    ] {
        if !file.is_empty() {
            written += 1;
            check_local_path(findings, &path.child(field), file);
            files.claim(file, findings);
        }
    }
    if written == 0 {
        findings.forbidden(path, "expected credentialBundlePath, keyPath or certificateChainPath");
    }
}
