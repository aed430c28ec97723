//! Rules about images: garbage collection, parallel pulls, verification of pull credentials.
//!
//! Does not read the credential providers' own file.

use super::text_forms::{ImageName, image_name};
use super::{ValidationFindings, ValidationInput};
use crate::feature_gates::Gate;

const ALLOWLIST_POLICY: &str = "NeverVerifyAllowlistedImages";
const VERIFICATION_POLICIES: &[&str] =
    &["NeverVerify", "NeverVerifyPreloadedImages", ALLOWLIST_POLICY, "AlwaysVerify"];

pub(super) fn check(input: &ValidationInput<'_>, findings: &mut ValidationFindings) {
    collection(input, findings);
    pulls(input, findings);
    credential_verification(input, findings);
    credential_providers(input, findings);
}

fn collection(input: &ValidationInput<'_>, findings: &mut ValidationFindings) {
    let settings = input.settings;
    let (low, high) =
        (settings.image_gc_low_threshold_percent, settings.image_gc_high_threshold_percent);
    if low >= high {
        findings.refuse(
            "imageGCLowThresholdPercent",
            low,
            format!(
                "must be less than imageGCHighThresholdPercent (--image-gc-high-threshold), which is {high}"
            ),
        );
    }
    let (youngest, oldest) = (settings.image_minimum_gc_age, settings.image_maximum_gc_age);
    if oldest.as_nanos() > 0 && oldest <= youngest {
        findings.refuse(
            "imageMaximumGCAge",
            oldest,
            format!("must be longer than imageMinimumGCAge, which is {youngest}"),
        );
    }
}

fn pulls(input: &ValidationInput<'_>, findings: &mut ValidationFindings) {
    let settings = input.settings;
    if let Some(parallel) = settings.max_parallel_image_pulls
        && parallel > 1
        && settings.serialize_image_pulls
    {
        findings.refuse(
            "maxParallelImagePulls",
            parallel,
            "must be 1 or unset while serializeImagePulls (--serialize-image-pulls) is true",
        );
    }
}

fn credential_verification(input: &ValidationInput<'_>, findings: &mut ValidationFindings) {
    const POLICY: &str = "imagePullCredentialsVerificationPolicy";
    const ALLOWLIST: &str = "preloadedImagesVerificationAllowlist";
    let policy = input.settings.image_pull_credentials_verification_policy.as_str();
    let patterns = &input.settings.preloaded_images_verification_allowlist;
    if !input.gate(Gate::KubeletEnsureSecretPulledImages) {
        let dependencies = "needs the feature gate KubeletEnsureSecretPulledImages";
        if !policy.is_empty() {
            findings.refuse(POLICY, policy, dependencies);
        }
        if !patterns.is_empty() {
            findings.refuse(ALLOWLIST, patterns.join(", "), dependencies);
        }
        return;
    }
    findings.one_of(POLICY, policy, VERIFICATION_POLICIES);
    if patterns.is_empty() {
        return;
    }
    if policy != ALLOWLIST_POLICY {
        let message = format!("may be set only while {POLICY} is {ALLOWLIST_POLICY:?}");
        findings.refuse(ALLOWLIST, patterns.join(", "), message);
        return;
    }
    for (index, pattern) in patterns.iter().enumerate() {
        if let Err(expected) = allowlist_pattern(pattern) {
            findings.refuse(format!("{ALLOWLIST}[{index}]"), pattern, expected);
        }
    }
}

/// A pattern is an image name without tag and digest, or a prefix of names that ends in `/*`.
fn allowlist_pattern(pattern: &str) -> Result<(), &'static str> {
    if pattern != pattern.trim() {
        return Err("must not begin or end with white space");
    }
    let prefix = pattern.strip_suffix('*').filter(|prefix| prefix.ends_with('/'));
    let literal = prefix.unwrap_or(pattern);
    if literal.contains('*') {
        return Err("may hold a wildcard only as `/*` at its end");
    }
    match prefix {
        Some("/") => Err("must name at least a registry before `/*`"),
        Some(_) => Ok(()),
        None => match image_name(literal) {
            ImageName::Plain => Ok(()),
            ImageName::WithTagOrDigest => Err("must be an image name without a tag or a digest"),
            ImageName::Invalid => Err("must be the name of an image"),
        },
    }
}

/// The file and the directory of the credential providers must be set both or not at all.
fn credential_providers(input: &ValidationInput<'_>, findings: &mut ValidationFindings) {
    let file = input.flags.image_credential_provider_config.as_str();
    let dir = input.flags.image_credential_provider_bin_dir.as_str();
    let pairs = [
        ("--image-credential-provider-config", file, "--image-credential-provider-bin-dir", dir),
        ("--image-credential-provider-bin-dir", dir, "--image-credential-provider-config", file),
    ];
    for (missing, value, present, other) in pairs {
        if value.is_empty() && !other.is_empty() {
            findings.refuse(missing, "", format!("must be set because {present} is"));
        }
    }
}
