//! The files of a volume, from the contents of its sources.
//!
//! Rules: an optional object that is missing has no files; a key that is missing from an optional
//! object is left out. Of two files with one path the later source's counts. One error stops a
//! volume: none of its files is written. Several errors of a projection are all in the text.
//!
//! upstream: pkg/volume/configmap, pkg/volume/secret, pkg/volume/downwardapi, pkg/volume/projected

use std::collections::BTreeMap;
use std::sync::Arc;

use pod_model::pod::volume::{
    DownwardApiFile, KeyToPath, KeysProjection, TokenProjection, VolumeProjection,
};
use pod_model::pod::{Pod, VolumeSource};
use ports::pod_host::PayloadFile;
use ports::{ContentError, ContentKind, ContentObject};

use crate::PayloadError;
use crate::owner::single_user;
use crate::paths::check_path;
use crate::sources::TokenKey;

#[cfg(test)]
mod tests;

/// The API server's default; its own volumes always have one.
const DEFAULT_MODE: i32 = 0o644;
/// Of a token that belongs to a user or a group.
const OWNED_MODE: u32 = 0o600;
const MODE_BITS: u32 = 0o777;

/// The states of objects in the pod's namespace.
pub type ObjectStates = BTreeMap<(ContentKind, String), Result<Arc<ContentObject>, ContentError>>;

pub struct PayloadInputs<'a> {
    pub pod: &'a Pod,
    pub source: &'a VolumeSource,
    pub objects: &'a ObjectStates,
    /// Tokens by what was asked for, or why there is none.
    pub tokens: &'a BTreeMap<TokenKey, Result<String, String>>,
    /// The value of an item's field or resource.
    pub downward: &'a dyn Fn(&DownwardApiFile) -> Result<String, String>,
}

type Files = BTreeMap<String, PayloadFile>;

/// The files, sorted by path.
pub fn files(inputs: &PayloadInputs<'_>) -> Result<Vec<PayloadFile>, PayloadError> {
    let mut files = Files::new();
    match inputs.source {
        VolumeSource::ConfigMap(map) => {
            let wanted = WantedKeys {
                kind: ContentKind::ConfigMap,
                name: &map.name,
                items: &map.items,
                optional: map.optional == Some(true),
                default_mode: mode(map.default_mode),
            };
            add_keys(inputs, &wanted, &mut files)?;
        }
        VolumeSource::Secret(secret) => {
            let wanted = WantedKeys {
                kind: ContentKind::Secret,
                name: &secret.secret_name,
                items: &secret.items,
                optional: secret.optional == Some(true),
                default_mode: mode(secret.default_mode),
            };
            add_keys(inputs, &wanted, &mut files)?;
        }
        VolumeSource::DownwardApi(volume) => {
            add_fields(inputs, &volume.items, mode(volume.default_mode), &mut files)?;
        }
        VolumeSource::Projected(volume) => {
            let default_mode = mode(volume.default_mode);
            let mut errors = Vec::new();
            for projection in &volume.sources {
                if let Err(PayloadError(why)) =
                    add_projection(inputs, projection, default_mode, &mut files)
                {
                    errors.push(why);
                }
            }
            all_of(errors)?;
        }
        other => return Err(PayloadError(format!("{} has no files", other.field()))),
    }
    for path in files.keys() {
        check_path(path)?;
    }
    Ok(files.into_values().collect())
}

fn mode(mode: Option<i32>) -> u32 {
    u32::try_from(mode.unwrap_or(DEFAULT_MODE)).unwrap_or_default() & MODE_BITS
}

/// Several errors as Go prints them: each once, in brackets.
fn all_of(errors: Vec<String>) -> Result<(), PayloadError> {
    let mut different: Vec<String> = Vec::new();
    for error in errors {
        if !different.contains(&error) {
            different.push(error);
        }
    }
    match different.as_slice() {
        [] => Ok(()),
        [one] => Err(PayloadError(one.clone())),
        many => Err(PayloadError(format!("[{}]", many.join(", ")))),
    }
}

fn add_projection(
    inputs: &PayloadInputs<'_>,
    projection: &VolumeProjection,
    default_mode: u32,
    files: &mut Files,
) -> Result<(), PayloadError> {
    let keys = |kind, projection: &KeysProjection, files: &mut Files| {
        let wanted = WantedKeys {
            kind,
            name: &projection.name,
            items: &projection.items,
            optional: projection.optional == Some(true),
            default_mode,
        };
        add_keys(inputs, &wanted, files)
    };
    if let Some(secret) = &projection.secret {
        return keys(ContentKind::Secret, secret, files);
    }
    if let Some(map) = &projection.config_map {
        return keys(ContentKind::ConfigMap, map, files);
    }
    if let Some(downward) = &projection.downward_api {
        return add_fields(inputs, &downward.items, default_mode, files);
    }
    if let Some(token) = &projection.service_account_token {
        return add_token(inputs, token, default_mode, files);
    }
    // Both gates are off by default; the texts are those of a kubelet without them.
    if projection.cluster_trust_bundle.is_some() {
        let why = "ClusterTrustBundle projection is not supported in static kubelet mode";
        return Err(PayloadError(why.to_owned()));
    }
    if projection.pod_certificate.is_some() {
        let why = "unimplemented";
        return Err(PayloadError(why.to_owned()));
    }
    Ok(())
}

struct WantedKeys<'a> {
    kind: ContentKind,
    name: &'a str,
    /// Empty for all keys.
    items: &'a [KeyToPath],
    optional: bool,
    default_mode: u32,
}

fn add_keys(
    inputs: &PayloadInputs<'_>,
    wanted: &WantedKeys<'_>,
    files: &mut Files,
) -> Result<(), PayloadError> {
    let WantedKeys { kind, name, optional, .. } = *wanted;
    let object = match inputs.objects.get(&(kind, name.to_owned())) {
        Some(Ok(object)) => object,
        Some(Err(ContentError::NotFound)) if optional => return Ok(()),
        Some(Err(ContentError::NotFound)) => {
            return Err(PayloadError(format!("{} {name:?} not found", kind.resource())));
        }
        Some(Err(error)) => return Err(PayloadError(error.to_string())),
        None => return Err(PayloadError(not_synced(kind))),
    };
    let (data, binary_data) = (&object.data.0, &object.binary_data.0);
    if wanted.items.is_empty() {
        for (key, content) in data.iter().chain(binary_data) {
            put(files, key, wanted.default_mode, content.clone());
        }
        return Ok(());
    }
    for item in wanted.items {
        match data.get(&*item.key).or_else(|| binary_data.get(&*item.key)) {
            Some(content) => {
                let mode = item.mode.map_or(wanted.default_mode, |own| mode(Some(own)));
                put(files, &item.path, mode, content.clone());
            }
            None if optional => {}
            None => {
                return Err(PayloadError(match kind {
                    ContentKind::ConfigMap => {
                        format!("configmap references non-existent config key: {}", item.key)
                    }
                    ContentKind::Secret => {
                        format!("references non-existent secret key: {}", item.key)
                    }
                }));
            }
        }
    }
    Ok(())
}

/// Upstream's text for an object that the API server has not answered yet.
pub fn not_synced(kind: ContentKind) -> String {
    format!("failed to sync {} cache: timed out waiting for the condition", kind.resource())
}

fn add_fields(
    inputs: &PayloadInputs<'_>,
    items: &[DownwardApiFile],
    default_mode: u32,
    files: &mut Files,
) -> Result<(), PayloadError> {
    let mut errors = Vec::new();
    for item in items {
        match (inputs.downward)(item) {
            Ok(text) => {
                let mode = item.mode.map_or(default_mode, |own| mode(Some(own)));
                put(files, &item.path, mode, text.into_bytes());
            }
            Err(why) => errors.push(why),
        }
    }
    all_of(errors)
}

fn add_token(
    inputs: &PayloadInputs<'_>,
    wanted: &TokenProjection,
    default_mode: u32,
    files: &mut Files,
) -> Result<(), PayloadError> {
    let token = match inputs.tokens.get(&TokenKey::from(wanted)) {
        Some(Ok(token)) => token,
        Some(Err(why)) => return Err(PayloadError(format!("failed to fetch token: {why}"))),
        None => return Err(PayloadError("failed to fetch token: not requested yet".to_owned())),
    };
    let owner = single_user(inputs.pod);
    let context = inputs.pod.spec.security_context.as_deref();
    let has_group = context.is_some_and(|context| context.fs_group.is_some());
    let mode = if owner.is_some() || has_group { OWNED_MODE } else { default_mode };
    put(files, &wanted.path, mode, token.clone().into_bytes());
    if let Some(file) = files.get_mut(&clean(&wanted.path)) {
        file.owner = owner;
    }
    Ok(())
}

fn put(files: &mut Files, path: &str, mode: u32, content: Vec<u8>) {
    let path = clean(path);
    files.insert(path.clone(), PayloadFile { path, mode, owner: None, content });
}

/// Without empty and `.` components, so that one file has one name. `..` and a leading slash stay,
/// to be refused.
fn clean(path: &str) -> String {
    let root = if path.starts_with('/') { "/" } else { "" };
    let parts: Vec<&str> =
        path.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    format!("{root}{}", parts.join("/"))
}
