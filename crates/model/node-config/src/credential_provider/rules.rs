//! Validation of a credential provider.
//!
//! The rule it keeps: every rule runs for every provider, whatever the others found.

use std::collections::BTreeSet;

use pod_model::{GoDuration, check_qualified_name};

use super::Entry;
use crate::document::{Node, Value, item_path};
use crate::problem::Problem;
use crate::validation::{quoted_list, web_address};

/// API versions of request and response; only the first carries tokens.
const MESSAGE_VERSIONS: &[&str] = &[
    "credentialprovider.kubelet.k8s.io/v1",
    "credentialprovider.kubelet.k8s.io/v1beta1",
    "credentialprovider.kubelet.k8s.io/v1alpha1",
];
const CACHE_TYPES: &[&str] = &["ServiceAccount", "Token"];
const REQUIRED_KEYS: &str = "requiredServiceAccountAnnotationKeys";
const OPTIONAL_KEYS: &str = "optionalServiceAccountAnnotationKeys";

pub(super) fn check(entries: &[Entry], tokens_allowed: bool, problems: &mut Vec<Problem>) {
    let mut names = BTreeSet::new();
    for entry in entries {
        let name = entry.text("name");
        if !names.insert(name) {
            let message = "another provider has this name";
            problems.push(entry.problem("name", message).with_value(name));
        }
        check_name(entry, name, problems);
        check_message_version(entry, problems);
        check_images(entry, problems);
        check_cache_duration(entry, problems);
        if entry.node.get("tokenAttributes").is_some() {
            check_tokens(entry, tokens_allowed, problems);
        }
    }
}

/// The name is the file name of a program in one directory, so it must not lead out of it.
fn check_name(entry: &Entry, name: &str, problems: &mut Vec<Problem>) {
    let mut refuse = |message: &str| problems.push(entry.problem("name", message).with_value(name));
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

fn check_message_version(entry: &Entry, problems: &mut Vec<Problem>) {
    let version = entry.text("apiVersion");
    if !MESSAGE_VERSIONS.contains(&version) {
        let message = format!("must be one of {}", quoted_list(MESSAGE_VERSIONS));
        problems.push(entry.problem("apiVersion", message).with_value(version));
    }
}

fn check_images(entry: &Entry, problems: &mut Vec<Problem>) {
    let patterns = entry.texts("matchImages");
    if patterns.is_empty() {
        problems.push(entry.problem("matchImages", "must name at least one pattern of images"));
    }
    for (index, pattern) in patterns.into_iter().enumerate() {
        if let Err(error) = web_address::check_schemeless(pattern) {
            let message = format!("must be a pattern of image names: {error}");
            let field = item_path("matchImages", index);
            problems.push(entry.problem(&field, message).with_value(pattern));
        }
    }
}

fn check_cache_duration(entry: &Entry, problems: &mut Vec<Problem>) {
    const FIELD: &str = "defaultCacheDuration";
    match entry.node.get(FIELD) {
        None => problems.push(entry.problem(FIELD, "must be set, such as 12h or 0s")),
        Some(node) => {
            let text = node.as_str().unwrap_or_default();
            if GoDuration::parse(text).is_ok_and(GoDuration::is_negative) {
                problems.push(entry.problem(FIELD, "must not be negative").with_value(text));
            }
        }
    }
}

fn check_tokens(entry: &Entry, tokens_allowed: bool, problems: &mut Vec<Problem>) {
    const FIELD: &str = "tokenAttributes";
    let at = |field: &str| format!("{FIELD}.{field}");
    if !tokens_allowed {
        let message = "needs the feature gate KubeletServiceAccountTokenForCredentialProviders";
        problems.push(entry.problem(FIELD, message));
    }
    if entry.text("apiVersion") != MESSAGE_VERSIONS[0] {
        let message = format!("needs apiVersion {:?}", MESSAGE_VERSIONS[0]);
        problems.push(entry.problem(FIELD, message));
    }
    let audience = at("serviceAccountTokenAudience");
    if entry.text(&audience).is_empty() {
        problems.push(entry.problem(&audience, "must be set"));
    }
    let cache_type = at("cacheType");
    let text = entry.text(&cache_type);
    if !CACHE_TYPES.contains(&text) {
        let message = format!("must be one of {}", quoted_list(CACHE_TYPES));
        problems.push(entry.problem(&cache_type, message).with_value(text));
    }
    let required_account = at("requireServiceAccount");
    let required_keys = entry.texts(&at(REQUIRED_KEYS));
    match entry.node.find(&required_account).map(|node: &Node| &node.value) {
        None => problems.push(entry.problem(&required_account, "must be set to true or false")),
        Some(Value::Bool(false)) if !required_keys.is_empty() => {
            let message = "cannot be set while requireServiceAccount is false";
            problems.push(entry.problem(&at(REQUIRED_KEYS), message));
        }
        Some(_) => {}
    }
    check_keys(entry, &at(REQUIRED_KEYS), problems);
    check_keys(entry, &at(OPTIONAL_KEYS), problems);
    let required_keys: BTreeSet<&str> = required_keys.into_iter().collect();
    for key in entry.texts(&at(OPTIONAL_KEYS)) {
        if required_keys.contains(&key) {
            let message = format!("must not stand in {REQUIRED_KEYS} too");
            problems.push(entry.problem(&at(OPTIONAL_KEYS), message).with_value(key));
        }
    }
}

/// Keys of annotations: names like those of labels, ignoring case.
fn check_keys(entry: &Entry, field: &str, problems: &mut Vec<Problem>) {
    let mut seen = BTreeSet::new();
    for (index, key) in entry.texts(field).into_iter().enumerate() {
        let path = item_path(field, index);
        if let Err(problem) = check_qualified_name(&key.to_lowercase()) {
            problems.push(entry.problem(&path, problem.to_string()).with_value(key));
        }
        if !seen.insert(key) {
            problems.push(entry.problem(&path, "must not appear twice").with_value(key));
        }
    }
}
