//! Rules for environment variables and where their values come from.

use pod_model::pod::container::{
    Container, EnvVarSource, FileKeySelector, KeySelector, ObjectFieldSelector, OptionalReference,
    ResourceFieldSelector,
};
use pod_model::{check_dns_label, check_dns_subdomain, check_qualified_name};

use super::findings::{FieldPath, PodFindings};
use super::formats;

const ENV_FIELDS: [&str; 9] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
const VOLUME_FIELDS: [&str; 5] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.labels",
    "metadata.annotations",
    "metadata.uid",
];
/// Every field path that the API server can convert to v1, old spellings included. An environment
/// variable and a file of a volume each allow only some of them.
const CONVERTIBLE_FIELDS: [&str; 15] = [
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.serviceAccountName",
    "spec.schedulerName",
    "spec.host",
    "status.phase",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
const RESOURCE_FIELDS: [&str; 6] = [
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
];
const HUGE_PAGES_PREFIXES: [&str; 2] = ["limits.hugepages-", "requests.hugepages-"];
const CPU_DIVISORS: [&str; 2] = ["1m", "1"];
const SIZE_DIVISORS: [&str; 13] =
    ["1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"];

/// Where the value of a pod's field is used: in an environment variable or in a volume's file.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Appearance {
    Variable,
    File,
}

pub(super) fn check(container: &Container, findings: &mut PodFindings, path: &FieldPath) {
    for (index, variable) in container.env.iter().enumerate() {
        let path = path.child("env").index(index);
        if findings.require(&variable.name, &path.child("name")) {
            let format_result = formats::variable_name(&variable.name);
            findings.check_format(&path.child("name"), &variable.name, format_result);
        }
        if let Some(source) = &variable.value_from {
            check_source(source, !variable.value.is_empty(), findings, &path.child("valueFrom"));
        }
    }
    let list = path.child("envFrom");
    for (index, from) in container.env_from.iter().enumerate() {
        let path = list.index(index);
        if !from.prefix.is_empty() {
            let format_result = formats::variable_name(&from.prefix);
            findings.check_format(&path.child("prefix"), &from.prefix, format_result);
        }
        let sources = [(&from.config_map_ref, "configMapRef"), (&from.secret_ref, "secretRef")];
        let mut count = 0;
        for (source, field) in sources {
            if let Some(source) = source {
                count += 1;
                check_reference(source, findings, &path.child(field));
            }
        }
        if count != 1 {
            findings.forbidden(&list, "expected either configMapRef or secretRef");
        }
    }
}

fn check_reference(reference: &OptionalReference, findings: &mut PodFindings, path: &FieldPath) {
    let path = path.child("name");
    if findings.require(&reference.name, &path) {
        findings.name(&path, &reference.name, formats::check_name_prefix(&reference.name));
    }
}

fn check_source(
    source: &EnvVarSource,
    has_value: bool,
    findings: &mut PodFindings,
    path: &FieldPath,
) {
    let mut count = 0;
    if let Some(selector) = &source.field_ref {
        count += 1;
        check_field(selector, Appearance::Variable, findings, &path.child("fieldRef"));
    }
    if let Some(selector) = &source.resource_field_ref {
        count += 1;
        let path = path.child("resourceFieldRef");
        check_resource_field(selector, Appearance::Variable, findings, &path);
    }
    for (selector, field) in
        [(&source.config_map_key_ref, "configMapKeyRef"), (&source.secret_key_ref, "secretKeyRef")]
    {
        if let Some(selector) = selector {
            count += 1;
            check_key(selector, findings, &path.child(field));
        }
    }
    if let Some(selector) = &source.file_key_ref {
        count += 1;
        check_file_key(selector, findings, &path.child("fileKeyRef"));
    }
    if count != 1 {
        let message = "expected one of fieldRef, resourceFieldRef, configMapKeyRef, secretKeyRef and fileKeyRef";
        findings.forbidden(path, message);
    } else if has_value {
        findings.forbidden(path, "may not be given together with a value");
    }
}

fn check_key(selector: &KeySelector, findings: &mut PodFindings, path: &FieldPath) {
    findings.name(&path.child("name"), &selector.name, check_dns_subdomain(&selector.name));
    if findings.require(&selector.key, &path.child("key")) {
        findings.check_format(
            &path.child("key"),
            &selector.key,
            formats::config_key(&selector.key),
        );
    }
}

fn check_file_key(selector: &FileKeySelector, findings: &mut PodFindings, path: &FieldPath) {
    if findings.require(&selector.key, &path.child("key")) {
        findings.check_format(
            &path.child("key"),
            &selector.key,
            formats::variable_name(&selector.key),
        );
    }
    let volume = path.child("volumeName");
    if findings.require(&selector.volume_name, &volume) {
        findings.name(&volume, &selector.volume_name, check_dns_label(&selector.volume_name));
    }
    if findings.require(&selector.path, &path.child("path")) {
        formats::check_no_backsteps(findings, &path.child("path"), &selector.path);
    }
}

pub(super) fn check_field(
    selector: &ObjectFieldSelector,
    appearance: Appearance,
    findings: &mut PodFindings,
    path: &FieldPath,
) {
    let field = path.child("fieldPath");
    if !findings.require(&selector.api_version, &path.child("apiVersion"))
        || !findings.require(&selector.field_path, &field)
    {
        return;
    }
    let field_path = &selector.field_path;
    let subscript = split_subscript(field_path);
    let known = match subscript {
        Some((base, _)) => matches!(base, "metadata.annotations" | "metadata.labels"),
        None => CONVERTIBLE_FIELDS.contains(&&**field_path),
    };
    if &*selector.api_version != "v1" || !known {
        findings.invalid(&field, field_path, "there is no such field of a pod of v1");
        return;
    }
    match subscript {
        Some(("metadata.annotations", key)) => {
            findings.name(path, key, check_qualified_name(&key.to_lowercase()));
        }
        Some((_, key)) => findings.name(path, key, check_qualified_name(key)),
        None => {
            let allowed: &[&str] = match appearance {
                Appearance::Variable => &ENV_FIELDS,
                Appearance::File => &VOLUME_FIELDS,
            };
            let converted = if &**field_path == "spec.host" { "spec.nodeName" } else { field_path };
            if !allowed.contains(&converted) {
                findings.unsupported(&field, field_path, allowed);
            }
        }
    }
}

/// Splits `metadata.labels['key']` into `metadata.labels` and `key`.
fn split_subscript(field_path: &str) -> Option<(&str, &str)> {
    let (base, key) = field_path.strip_suffix("']")?.split_once("['")?;
    (!base.is_empty()).then_some((base, key))
}

pub(super) fn check_resource_field(
    selector: &ResourceFieldSelector,
    appearance: Appearance,
    findings: &mut PodFindings,
    path: &FieldPath,
) {
    let resource = &*selector.resource;
    let is_huge_pages = HUGE_PAGES_PREFIXES.iter().any(|prefix| resource.starts_with(prefix));
    if appearance == Appearance::File && selector.container_name.is_empty() {
        findings.required(&path.child("containerName"));
    } else if findings.require(resource, &path.child("resource"))
        && !RESOURCE_FIELDS.contains(&resource)
        && !is_huge_pages
    {
        findings.unsupported(&path.child("resource"), resource, &RESOURCE_FIELDS);
    }
    if selector.divisor.is_zero() {
        return;
    }
    let allowed: &[&str] = match resource {
        "limits.cpu" | "requests.cpu" => &CPU_DIVISORS,
        _ if RESOURCE_FIELDS.contains(&resource) || is_huge_pages => &SIZE_DIVISORS,
        _ => return,
    };
    if !allowed.contains(&&*selector.divisor.to_string()) {
        findings.unsupported(&path.child("divisor"), selector.divisor, allowed);
    }
}
