//! The fields of `CredentialProviderConfig` in its three versions.
//!
//! Only v1 knows `tokenAttributes`.

use crate::schema::{DefaultRule, Field, Kind, Presence};

const TEXTS: Kind = Kind::List(&Kind::Text);

const fn field(name: &'static str, kind: Kind) -> Field {
    Field { name, kind, presence: Presence::Optional, default: DefaultRule::Zero }
}

const HEADER: [Field; 2] = [field("apiVersion", Kind::Text), field("kind", Kind::Text)];

const VARIABLE: &[Field] = &[field("name", Kind::Text), field("value", Kind::Text)];

const TOKEN_ATTRIBUTES: &[Field] = &[
    field("serviceAccountTokenAudience", Kind::Text),
    field("cacheType", Kind::Text),
    field("requireServiceAccount", Kind::Bool),
    field("requiredServiceAccountAnnotationKeys", TEXTS),
    field("optionalServiceAccountAnnotationKeys", TEXTS),
];

const NAME: Field = field("name", Kind::Text);
const MATCH_IMAGES: Field = field("matchImages", TEXTS);
const CACHE_DURATION: Field = field("defaultCacheDuration", Kind::Duration);
const MESSAGE_VERSION: Field = field("apiVersion", Kind::Text);
const ARGUMENTS: Field = field("args", TEXTS);
const VARIABLES: Field = field("env", Kind::List(&Kind::Object(VARIABLE)));
const TOKENS: Field = field("tokenAttributes", Kind::Object(TOKEN_ATTRIBUTES));

const OLDER_PROVIDER: &[Field] =
    &[NAME, MATCH_IMAGES, CACHE_DURATION, MESSAGE_VERSION, ARGUMENTS, VARIABLES];
const PROVIDER: &[Field] =
    &[NAME, MATCH_IMAGES, CACHE_DURATION, MESSAGE_VERSION, ARGUMENTS, VARIABLES, TOKENS];

const OLDER: &[Field] =
    &[HEADER[0], HEADER[1], field("providers", Kind::List(&Kind::Object(OLDER_PROVIDER)))];
const CURRENT: &[Field] =
    &[HEADER[0], HEADER[1], field("providers", Kind::List(&Kind::Object(PROVIDER)))];

/// The fields of a version of the group, if there is such a version.
pub(super) fn of_version(version: &str) -> Option<&'static [Field]> {
    match version {
        "v1" => Some(CURRENT),
        "v1beta1" | "v1alpha1" => Some(OLDER),
        _ => None,
    }
}
