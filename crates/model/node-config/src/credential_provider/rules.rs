//! Validation of a credential provider.
//!
//! The rule it keeps: every rule runs for every provider, whatever the others found.

use std::collections::BTreeSet;

use pod_model::{GoDuration, check_qualified_name};

use super::ProviderEntry;
use crate::diagnostic::Diagnostic;
use crate::document::{Node, Value, item_path};
use crate::validation::{quoted_list, url};

/// API versions of request and response; only the first carries tokens.
const MESSAGE_VERSIONS: &[&str] = &[
    "credentialprovider.kubelet.k8s.io/v1",
    "credentialprovider.kubelet.k8s.io/v1beta1",
    "credentialprovider.kubelet.k8s.io/v1alpha1",
];
const CACHE_TYPES: &[&str] = &["ServiceAccount", "Token"];
const REQUIRED_KEYS: &str = "requiredServiceAccountAnnotationKeys";
const OPTIONAL_KEYS: &str = "optionalServiceAccountAnnotationKeys";

pub(super) fn check(
    entries: &[ProviderEntry],
    tokens_allowed: bool,
    diagnostics: &mut Vec<Diagnostic>,
) {
    let mut names = BTreeSet::new();
    for entry in entries {
        let name = entry.text("name");
        if !names.insert(name) {
            let message = "another provider has this name";
            diagnostics.push(entry.diagnostic("name", message).with_value(name));
        }
        check_name(entry, name, diagnostics);
        check_message_version(entry, diagnostics);
        check_images(entry, diagnostics);
        check_cache_duration(entry, diagnostics);
        if entry.node.get("tokenAttributes").is_some() {
            check_tokens(entry, tokens_allowed, diagnostics);
        }
    }
}

/// The name is the file name of a program in one directory, so it must not lead out of it.
fn check_name(entry: &ProviderEntry, name: &str, diagnostics: &mut Vec<Diagnostic>) {
    let mut refuse =
        |message: &str| diagnostics.push(entry.diagnostic("name", message).with_value(name));
    if name.is_empty() {
        refuse("must be the name of a program");
    }
    if name.contains('/') {
        refuse("must not contain a slash");
    }
    if name.contains(' ') {
        refuse("must not contain a space");
    }
    if matches!(name, "." | "..") {
        refuse("must not be a folder");
    }
}

fn check_message_version(entry: &ProviderEntry, diagnostics: &mut Vec<Diagnostic>) {
    let version = entry.text("apiVersion");
    if !MESSAGE_VERSIONS.contains(&version) {
        let message = format!("must be one of {}", quoted_list(MESSAGE_VERSIONS));
        diagnostics.push(entry.diagnostic("apiVersion", message).with_value(version));
    }
}

fn check_images(entry: &ProviderEntry, diagnostics: &mut Vec<Diagnostic>) {
    let patterns = entry.texts("matchImages");
    if patterns.is_empty() {
        diagnostics
            .push(entry.diagnostic("matchImages", "must name at least one pattern of images"));
    }
    for (index, pattern) in patterns.into_iter().enumerate() {
        if let Err(error) = url::check_schemeless(pattern) {
            let message = format!("must be a pattern of image names: {error}");
            let field = item_path("matchImages", index);
            diagnostics.push(entry.diagnostic(&field, message).with_value(pattern));
        }
    }
}

fn check_cache_duration(entry: &ProviderEntry, diagnostics: &mut Vec<Diagnostic>) {
    const FIELD: &str = "defaultCacheDuration";
    match entry.node.get(FIELD) {
        None => diagnostics.push(entry.diagnostic(FIELD, "must be set, such as 12h or 0s")),
        Some(node) => {
            let text = node.as_str().unwrap_or_default();
            if GoDuration::parse(text).is_ok_and(GoDuration::is_negative) {
                diagnostics.push(entry.diagnostic(FIELD, "must not be negative").with_value(text));
            }
        }
    }
}

fn check_tokens(entry: &ProviderEntry, tokens_allowed: bool, diagnostics: &mut Vec<Diagnostic>) {
    const FIELD: &str = "tokenAttributes";
    let at = |field: &str| format!("{FIELD}.{field}");
    if !tokens_allowed {
        let message = "needs the feature gate KubeletServiceAccountTokenForCredentialProviders";
        diagnostics.push(entry.diagnostic(FIELD, message));
    }
    if entry.text("apiVersion") != MESSAGE_VERSIONS[0] {
        let message = format!("needs apiVersion {:?}", MESSAGE_VERSIONS[0]);
        diagnostics.push(entry.diagnostic(FIELD, message));
    }
    let audience = at("serviceAccountTokenAudience");
    if entry.text(&audience).is_empty() {
        diagnostics.push(entry.diagnostic(&audience, "must be set"));
    }
    let cache_type = at("cacheType");
    let text = entry.text(&cache_type);
    if !CACHE_TYPES.contains(&text) {
        let message = format!("must be one of {}", quoted_list(CACHE_TYPES));
        diagnostics.push(entry.diagnostic(&cache_type, message).with_value(text));
    }
    let required_account = at("requireServiceAccount");
    let required_keys = entry.texts(&at(REQUIRED_KEYS));
    match entry.node.find(&required_account).map(|node: &Node| &node.value) {
        None => {
            diagnostics.push(entry.diagnostic(&required_account, "must be set to true or false"));
        }
        Some(Value::Bool(false)) if !required_keys.is_empty() => {
            let message = "cannot be set while requireServiceAccount is false";
            diagnostics.push(entry.diagnostic(&at(REQUIRED_KEYS), message));
        }
        Some(_) => {}
    }
    check_keys(entry, &at(REQUIRED_KEYS), diagnostics);
    check_keys(entry, &at(OPTIONAL_KEYS), diagnostics);
    let required_keys: BTreeSet<&str> = required_keys.into_iter().collect();
    for key in entry.texts(&at(OPTIONAL_KEYS)) {
        if required_keys.contains(&key) {
            let message = format!("must not stand in {REQUIRED_KEYS} too");
            diagnostics.push(entry.diagnostic(&at(OPTIONAL_KEYS), message).with_value(key));
        }
    }
}

/// Keys of annotations: names like those of labels, ignoring case.
fn check_keys(entry: &ProviderEntry, field: &str, diagnostics: &mut Vec<Diagnostic>) {
    let mut seen = BTreeSet::new();
    for (index, key) in entry.texts(field).into_iter().enumerate() {
        let path = item_path(field, index);
        if let Err(diagnostic) = check_qualified_name(&key.to_lowercase()) {
            diagnostics.push(entry.diagnostic(&path, diagnostic.to_string()).with_value(key));
        }
        if !seen.insert(key) {
            diagnostics.push(entry.diagnostic(&path, "must not appear twice").with_value(key));
        }
    }
}
