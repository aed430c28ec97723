//! The fields of `CredentialProviderConfig` in its three versions.
//!
//! Only v1 knows `tokenAttributes`.

use crate::schema::{DefaultRule, FieldKind, Presence, SchemaField};

const TEXTS: FieldKind = FieldKind::List(&FieldKind::Text);

const fn field(name: &'static str, kind: FieldKind) -> SchemaField {
    SchemaField { name, kind, presence: Presence::Optional, default: DefaultRule::Zero }
}

const HEADER: [SchemaField; 2] =
    [field("apiVersion", FieldKind::Text), field("kind", FieldKind::Text)];

const VARIABLE: &[SchemaField] = &[field("name", FieldKind::Text), field("value", FieldKind::Text)];

const TOKEN_ATTRIBUTES: &[SchemaField] = &[
    field("serviceAccountTokenAudience", FieldKind::Text),
    field("cacheType", FieldKind::Text),
    field("requireServiceAccount", FieldKind::Bool),
    field("requiredServiceAccountAnnotationKeys", TEXTS),
    field("optionalServiceAccountAnnotationKeys", TEXTS),
];

const NAME: SchemaField = field("name", FieldKind::Text);
const MATCH_IMAGES: SchemaField = field("matchImages", TEXTS);
const CACHE_DURATION: SchemaField = field("defaultCacheDuration", FieldKind::Duration);
const MESSAGE_VERSION: SchemaField = field("apiVersion", FieldKind::Text);
const ARGUMENTS: SchemaField = field("args", TEXTS);
const VARIABLES: SchemaField = field("env", FieldKind::List(&FieldKind::Object(VARIABLE)));
const TOKENS: SchemaField = field("tokenAttributes", FieldKind::Object(TOKEN_ATTRIBUTES));

const OLDER_PROVIDER: &[SchemaField] =
    &[NAME, MATCH_IMAGES, CACHE_DURATION, MESSAGE_VERSION, ARGUMENTS, VARIABLES];
const PROVIDER: &[SchemaField] =
    &[NAME, MATCH_IMAGES, CACHE_DURATION, MESSAGE_VERSION, ARGUMENTS, VARIABLES, TOKENS];

const OLDER: &[SchemaField] = &[
    HEADER[0],
    HEADER[1],
    field("providers", FieldKind::List(&FieldKind::Object(OLDER_PROVIDER))),
];
const CURRENT: &[SchemaField] =
    &[HEADER[0], HEADER[1], field("providers", FieldKind::List(&FieldKind::Object(PROVIDER)))];

/// The fields of a version of the group, if there is such a version.
pub(super) fn of_version(version: &str) -> Option<&'static [SchemaField]> {
    match version {
        "v1" => Some(CURRENT),
        "v1beta1" | "v1alpha1" => Some(OLDER),
        _ => None,
    }
}
