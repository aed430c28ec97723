//! Records of pulls as the reference writes them, so that either agent reads the other's.
//!
//! Rule: written in the newest version, read in both; an unknown field makes a record unreadable,
//! for it may be a restriction.
//!
//! upstream: kubelet/config/v1beta1 (ImagePullIntent, ImagePulledRecord), fs_pullrecords.go

use std::collections::BTreeMap;

use ports::ApiTime;
use serde::{Deserialize, Serialize};

use super::{PullAccount, PullCredentials, PullSecret, PulledRecord};

const VERSION: &str = "kubelet.config.k8s.io/v1beta1";
const OLDER_VERSION: &str = "kubelet.config.k8s.io/v1alpha1";
const INTENT: &str = "ImagePullIntent";
const RECORD: &str = "ImagePulledRecord";

/// Why a record cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PullRecordError {
    /// In the parser's words.
    #[error("{0}")]
    Json(String),
    #[error("kind: {found:?}, expected {expected}")]
    Kind { found: String, expected: &'static str },
    #[error("apiVersion: {found:?}, expected {VERSION} or {OLDER_VERSION}")]
    ApiVersion { found: String },
    #[error("lastUpdatedTime: {found:?}, expected RFC 3339")]
    LastUpdatedTime { found: String },
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct IntentText {
    kind: String,
    api_version: String,
    image: String,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RecordText {
    kind: String,
    api_version: String,
    /// Null for the beginning of time.
    #[serde(default)]
    last_updated_time: Option<String>,
    image_ref: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    credential_mapping: BTreeMap<String, CredentialsText>,
}

#[derive(Serialize, Deserialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct CredentialsText {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    kubernetes_secrets: Vec<SecretText>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    kubernetes_service_accounts: Vec<AccountText>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    node_pods_accessible: bool,
}

#[derive(Serialize, Deserialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct SecretText {
    uid: String,
    namespace: String,
    name: String,
    credential_hash: String,
}

#[derive(Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct AccountText {
    uid: String,
    namespace: String,
    name: String,
}

pub fn intent_text(image: &str) -> Vec<u8> {
    line(&IntentText {
        kind: INTENT.to_owned(),
        api_version: VERSION.to_owned(),
        image: image.to_owned(),
    })
}

/// The image whose pull has begun.
pub fn read_intent(text: &[u8]) -> Result<String, PullRecordError> {
    let intent: IntentText = read(text)?;
    check(&intent.kind, INTENT, &intent.api_version)?;
    Ok(intent.image)
}

pub fn record_text(record: &PulledRecord) -> Vec<u8> {
    let mapping = record.credentials.iter();
    line(&RecordText {
        kind: RECORD.to_owned(),
        api_version: VERSION.to_owned(),
        last_updated_time: Some(record.updated.to_seconds_text()),
        image_ref: record.image_ref.clone(),
        credential_mapping: mapping.map(|(image, known)| (image.clone(), written(known))).collect(),
    })
}

pub fn read_record(text: &[u8]) -> Result<PulledRecord, PullRecordError> {
    let record: RecordText = read(text)?;
    check(&record.kind, RECORD, &record.api_version)?;
    let updated = match record.last_updated_time.as_deref() {
        None => ApiTime::default(),
        Some(time) => ApiTime::parse(time)
            .ok_or_else(|| PullRecordError::LastUpdatedTime { found: time.to_owned() })?,
    };
    let mapping = record.credential_mapping.into_iter();
    Ok(PulledRecord {
        image_ref: record.image_ref,
        updated,
        credentials: mapping.map(|(image, text)| (image, understood(text))).collect(),
    })
}

fn read<'a, T: Deserialize<'a>>(text: &'a [u8]) -> Result<T, PullRecordError> {
    serde_json::from_slice(text).map_err(|error| PullRecordError::Json(error.to_string()))
}

fn check(kind: &str, expected: &'static str, version: &str) -> Result<(), PullRecordError> {
    if kind != expected {
        return Err(PullRecordError::Kind { found: kind.to_owned(), expected });
    }
    if version != VERSION && version != OLDER_VERSION {
        return Err(PullRecordError::ApiVersion { found: version.to_owned() });
    }
    Ok(())
}

fn line(value: &impl Serialize) -> Vec<u8> {
    // Plain structures of text: serialization cannot fail.
    let mut text = serde_json::to_vec(value).unwrap_or_default();
    text.push(b'\n');
    text
}

fn written(known: &PullCredentials) -> CredentialsText {
    let secret = |secret: &PullSecret| SecretText {
        uid: secret.uid.clone(),
        namespace: secret.namespace.clone(),
        name: secret.name.clone(),
        credential_hash: secret.credential_hash.clone(),
    };
    let account = |account: &PullAccount| AccountText {
        uid: account.uid.clone(),
        namespace: account.namespace.clone(),
        name: account.name.clone(),
    };
    CredentialsText {
        kubernetes_secrets: known.secrets.iter().map(secret).collect(),
        kubernetes_service_accounts: known.accounts.iter().map(account).collect(),
        node_pods_accessible: known.is_for_all,
    }
}

fn understood(text: CredentialsText) -> PullCredentials {
    let secret = |secret: SecretText| PullSecret {
        namespace: secret.namespace,
        name: secret.name,
        uid: secret.uid,
        credential_hash: secret.credential_hash,
    };
    let account = |account: AccountText| PullAccount {
        namespace: account.namespace,
        name: account.name,
        uid: account.uid,
    };
    PullCredentials {
        secrets: text.kubernetes_secrets.into_iter().map(secret).collect(),
        accounts: text.kubernetes_service_accounts.into_iter().map(account).collect(),
        is_for_all: text.node_pods_accessible,
    }
}
