//! Which pods may use an image that is already on this machine.
//!
//! Rules: an image that the agent pulled with one pod's credentials is not free for other pods: a
//! pod without credentials with which the image was pulled must pull it itself. An image that the
//! node pulled for all pods (without credentials, or with its own) is for all. The policy is
//! configured (`imagePullCredentialsVerificationPolicy`). What was once granted to all is never
//! narrowed. In doubt the result is: pull.
//!
//! upstream: pkg/kubelet/images/pullmanager

use std::collections::BTreeMap;

use ports::ApiTime;

use crate::registry_logins::repository;

mod format;
#[cfg(test)]
mod tests;

pub use format::{PullRecordError, intent_text, read_intent, read_record, record_text};

/// The maximum of credentials recorded for one image by checks; pulls are always recorded.
const MAX_RECORDED_WITHOUT_PULL: usize = 100;

/// A secret with credentials, and the hash of the credentials.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct PullSecret {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    /// Empty where it could not be computed: then it equals none.
    pub credential_hash: String,
}

impl PullSecret {
    fn is_same_secret(&self, other: &Self) -> bool {
        (&self.namespace, &self.name, &self.uid) == (&other.namespace, &other.name, &other.uid)
    }
}

/// A service account for which a plugin returned credentials.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct PullAccount {
    pub namespace: String,
    pub name: String,
    pub uid: String,
}

/// The owner of credentials.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CredentialOwner {
    /// The node's own, or no credentials at all: every pod here may use the image.
    Node,
    Secret(PullSecret),
    Account(PullAccount),
}

/// The credentials with which an image was pulled under one name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PullCredentials {
    pub secrets: Vec<PullSecret>,
    pub accounts: Vec<PullAccount>,
    /// Then the others are empty.
    pub is_for_all: bool,
}

impl From<CredentialOwner> for PullCredentials {
    fn from(owner: CredentialOwner) -> Self {
        match owner {
            CredentialOwner::Node => Self { is_for_all: true, ..Self::default() },
            CredentialOwner::Secret(secret) => Self { secrets: vec![secret], ..Self::default() },
            CredentialOwner::Account(account) => {
                Self { accounts: vec![account], ..Self::default() }
            }
        }
    }
}

/// An image that the agent has pulled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PulledRecord {
    /// The image ref in the runtime.
    pub image_ref: String,
    pub updated: ApiTime,
    /// By the pod's name for the image, without tag and digest.
    pub credentials: BTreeMap<String, PullCredentials>,
}

/// How far pods' credentials are verified for present images.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verification {
    Never,
    /// For images that the agent has pulled.
    ExceptPreloaded,
    /// For all but these.
    ExceptAllowlisted(AllowedImages),
    Always,
}

/// The configured policy is none of those that exist.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("imagePullCredentialsVerificationPolicy: {policy:?} is unknown")]
pub struct VerificationPolicyError {
    pub policy: String,
}

/// Names of images, and prefixes of names.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AllowedImages {
    names: Vec<String>,
    /// Each ends with a slash.
    prefixes: Vec<String>,
}

impl Verification {
    /// From the configuration's values; the patterns were validated when it was loaded.
    pub fn from_config(policy: &str, patterns: &[String]) -> Result<Self, VerificationPolicyError> {
        match policy {
            "NeverVerify" => Ok(Self::Never),
            "NeverVerifyPreloadedImages" => Ok(Self::ExceptPreloaded),
            "NeverVerifyAllowlistedImages" => {
                let mut allowed = AllowedImages::default();
                for pattern in patterns {
                    match pattern.strip_suffix('*').filter(|start| start.ends_with('/')) {
                        Some(start) => allowed.prefixes.push(start.to_owned()),
                        None => allowed.names.push(pattern.clone()),
                    }
                }
                Ok(Self::ExceptAllowlisted(allowed))
            }
            "AlwaysVerify" => Ok(Self::Always),
            other => Err(VerificationPolicyError { policy: other.to_owned() }),
        }
    }

    fn is_needed(&self, image: &str, was_pulled_here: bool) -> bool {
        match self {
            Self::Never => false,
            Self::ExceptPreloaded => was_pulled_here,
            Self::ExceptAllowlisted(allowed) => {
                let name = without_tag(image);
                !allowed.names.iter().any(|each| each == name)
                    && !allowed.prefixes.iter().any(|start| name.starts_with(start))
            }
            Self::Always => true,
        }
    }
}

/// A request of a pod for an image that is present.
#[derive(Debug, Clone, Copy)]
pub struct AccessRequest<'a> {
    /// As the pod names it.
    pub image: &'a str,
    /// Its record.
    pub record: Option<&'a PulledRecord>,
    /// A pull of that name has begun and no outcome is recorded.
    pub is_being_pulled: bool,
    /// The owners of the pod's own credentials.
    pub owners: &'a [CredentialOwner],
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImageAccess {
    Granted,
    /// Granted, and this pod's secret is to be recorded: it has the same credentials in another
    /// secret, or other credentials in the same secret.
    GrantedAndRecorded(PullSecret),
    /// It must be pulled with the pod's credentials.
    Pull,
}

pub fn check_access(policy: &Verification, request: &AccessRequest<'_>) -> ImageAccess {
    let was_pulled_here = request.record.is_some() || request.is_being_pulled;
    if !policy.is_needed(request.image, was_pulled_here) {
        return ImageAccess::Granted;
    }
    let known =
        request.record.and_then(|record| record.credentials.get(without_tag(request.image)));
    let Some(known) = known else { return ImageAccess::Pull };
    if known.is_for_all {
        return ImageAccess::Granted;
    }
    let may_record = known.secrets.len() < MAX_RECORDED_WITHOUT_PULL;
    for owner in request.owners {
        let CredentialOwner::Secret(own) = owner else { continue };
        for there in &known.secrets {
            let is_same_secret = own.is_same_secret(there);
            let is_same_login =
                !there.credential_hash.is_empty() && own.credential_hash == there.credential_hash;
            match (is_same_login, is_same_secret) {
                (true, true) => return ImageAccess::Granted,
                (true, false) if may_record => return ImageAccess::GrantedAndRecorded(own.clone()),
                (true, false) => return ImageAccess::Granted,
                (false, true) if may_record => return ImageAccess::GrantedAndRecorded(own.clone()),
                (false, _) => {}
            }
        }
    }
    // A pod has one service account.
    let account = request.owners.iter().find_map(|owner| match owner {
        CredentialOwner::Account(account) => Some(account),
        _ => None,
    });
    match account {
        Some(account) if known.accounts.contains(account) => ImageAccess::Granted,
        _ => ImageAccess::Pull,
    }
}

/// The record after a pull, or after access was granted; None where nothing changes. Without
/// credentials only the fact is recorded that the agent pulled it: the next pod must verify itself.
pub fn with_credentials(
    record: Option<&PulledRecord>,
    image_ref: &str,
    image: &str,
    credentials: Option<PullCredentials>,
    now: ApiTime,
) -> Option<PulledRecord> {
    let image = without_tag(image);
    let Some(before) = record else {
        let credentials = credentials.map(|credentials| (image.to_owned(), credentials));
        return Some(PulledRecord {
            image_ref: image_ref.to_owned(),
            updated: now,
            credentials: credentials.into_iter().collect(),
        });
    };
    let new = credentials?;
    let merged = match before.credentials.get(image) {
        None if new == PullCredentials::default() => return None,
        None => new,
        Some(there) => merged(there, new)?,
    };
    let mut after = before.clone();
    after.updated = now;
    after.credentials.insert(image.to_owned(), merged);
    Some(after)
}

fn merged(there: &PullCredentials, new: PullCredentials) -> Option<PullCredentials> {
    if there.is_for_all {
        return None;
    }
    if new.is_for_all {
        return Some(new);
    }
    let mut after = there.clone();
    for secret in new.secrets {
        after.secrets.retain(|each| !each.is_same_secret(&secret));
        after.secrets.push(secret);
    }
    for account in new.accounts {
        if !after.accounts.contains(&account) {
            after.accounts.push(account);
        }
    }
    after.secrets.sort();
    after.accounts.sort();
    (after != *there).then_some(after)
}

/// Records of images that the runtime no longer has, by image ref. Those that changed since the
/// runtime was listed stay.
pub fn records_of_removed_images<'a>(
    records: impl IntoIterator<Item = &'a PulledRecord>,
    images: &[&str],
    asked_at: ApiTime,
) -> Vec<String> {
    let gone = records
        .into_iter()
        .filter(|record| record.updated < asked_at && !images.contains(&record.image_ref.as_str()));
    gone.map(|record| record.image_ref.clone()).collect()
}

/// Whether a pull that an earlier agent began has produced an image with these names. Short names
/// are expanded.
pub fn has_pull_completed<'a>(intended: &str, names: impl IntoIterator<Item = &'a str>) -> bool {
    let wanted = in_full(intended);
    names.into_iter().any(|name| in_full(name) == wanted)
}

/// Whether a pull of this name may have produced an image with these digests. A pull leaves the
/// digest under the repository that it was pulled from; an imported image may have none.
pub fn matches_pull<'a>(intended: &str, digests: impl IntoIterator<Item = &'a str>) -> bool {
    let pulled_from = repository(intended);
    digests.into_iter().any(|name| repository(name) == pulled_from)
}

/// The image's name in full with its digest, or else with its tag.
fn in_full(image: &str) -> String {
    let repository = repository(image);
    if let Some((_, digest)) = image.split_once('@') {
        return format!("{repository}@{digest}");
    }
    let tag = image.get(without_tag(image).len() + 1..).unwrap_or("latest");
    format!("{repository}:{tag}")
}

/// The name as it was written, without tag and digest.
fn without_tag(image: &str) -> &str {
    let name = image.split('@').next().unwrap_or_default();
    match name.rsplit_once(':') {
        Some((before, tag)) if !tag.contains('/') => before,
        _ => name,
    }
}
