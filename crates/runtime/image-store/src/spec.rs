//! Manifests, indexes and configurations: the JSON of images, parsed strictly where it matters.
//!
//! Both families are read: OCI's and Docker's schema 2. The kind of a document follows from its own
//! content, not only from a descriptor; a document that could be read as two kinds is refused,
//! because two tools would then see two images under one digest. Unknown fields are ignored, `null`
//! means absent. Pure: bytes in, values out.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::limits::Limits;

#[cfg(test)]
mod tests;

pub(crate) const OCI_INDEX: &str = "application/vnd.oci.image.index.v1+json";
pub(crate) const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub(crate) const OCI_CONFIG: &str = "application/vnd.oci.image.config.v1+json";
pub(crate) const OCI_LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
const DOCKER_LIST: &str = "application/vnd.docker.distribution.manifest.list.v2+json";
const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
const DOCKER_OLD: &str = "application/vnd.docker.distribution.manifest.v1";
const DOCKER_CONFIG: &str = "application/vnd.docker.container.image.v1+json";
/// Media type prefixes of layers; the suffix names the compression, which is detected.
const LAYERS: &[&str] = &[
    "application/vnd.oci.image.layer.v1.tar",
    "application/vnd.oci.image.layer.nondistributable.v1.tar",
    "application/vnd.docker.image.rootfs.diff.tar",
    "application/vnd.docker.image.rootfs.foreign.diff.tar",
];

/// A pointer to content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    #[serde(default, deserialize_with = "or_default")]
    pub media_type: String,
    pub digest: Digest,
    pub size: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<PlatformField>,
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

impl Descriptor {
    /// A file system layer, as opposed to other content of an artifact.
    pub fn is_layer(&self) -> bool {
        LAYERS.iter().any(|known| self.media_type.starts_with(known))
    }

    pub(crate) fn is_index(&self) -> bool {
        self.media_type == OCI_INDEX || self.media_type == DOCKER_LIST
    }
}

/// A platform as in descriptors.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlatformField {
    #[serde(default, deserialize_with = "or_default")]
    pub os: String,
    #[serde(default, deserialize_with = "or_default")]
    pub architecture: String,
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "String::is_empty")]
    pub variant: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageManifest {
    pub config: Descriptor,
    pub layers: Vec<Descriptor>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Index {
    pub manifests: Vec<Descriptor>,
}

/// The kinds of document behind an image's digest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImageDocument {
    ImageManifest(ImageManifest),
    Index(Index),
}

/// The fields of all kinds, before the kind is known.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AnyDocument {
    schema_version: Option<u64>,
    #[serde(default, deserialize_with = "or_default")]
    media_type: String,
    config: Option<Descriptor>,
    layers: Option<Vec<Descriptor>>,
    manifests: Option<Vec<Descriptor>>,
    /// Only in Docker's schema 1.
    fs_layers: Option<serde::de::IgnoredAny>,
}

impl ImageDocument {
    /// `what` names the content in errors.
    pub fn parse(what: &str, bytes: &[u8], limits: &Limits) -> Result<Self> {
        Limits::check(|| format!("{what}: bytes"), bytes.len() as u64, limits.document_bytes)?;
        let any: AnyDocument = object(what, bytes)?;
        if any.fs_layers.is_some() || any.media_type.starts_with(DOCKER_OLD) {
            return Err(Error::document(
                what,
                "is of Docker's first schema, which tools no longer make; push the image again",
            ));
        }
        if any.schema_version != Some(2) {
            let found = any.schema_version.map_or("none".to_owned(), |found| found.to_string());
            return Err(Error::document(what, format!("schemaVersion is {found}; expected 2")));
        }
        match (any.media_type.as_str(), any.config, any.layers, any.manifests) {
            ("" | OCI_MANIFEST | DOCKER_MANIFEST, Some(config), layers, None) => {
                let layers = layers.unwrap_or_default();
                let found = layers.len() as u64;
                Limits::check(|| format!("{what}: layers"), found, limits.layers as u64)?;
                Ok(Self::ImageManifest(ImageManifest { config, layers }))
            }
            ("" | OCI_INDEX | DOCKER_LIST, None, None, Some(manifests)) => {
                let found = manifests.len() as u64;
                let limit = limits.index_entries as u64;
                Limits::check(|| format!("{what}: manifests"), found, limit)?;
                Ok(Self::Index(Index { manifests }))
            }
            (_, _, Some(_), Some(_)) | (_, Some(_), _, Some(_)) => Err(Error::document(
                what,
                "has both layers and manifests: it could be read as two different images",
            )),
            (kind, ..) => Err(Error::document(
                what,
                format!("is neither an image manifest nor an index (mediaType {kind:?})"),
            )),
        }
    }
}

/// Default settings for running an image, and its layers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct ImageConfig {
    #[serde(default, deserialize_with = "or_default")]
    pub architecture: String,
    #[serde(default, deserialize_with = "or_default")]
    pub os: String,
    #[serde(default, deserialize_with = "or_default")]
    pub variant: String,
    #[serde(default, deserialize_with = "or_default")]
    pub created: String,
    #[serde(default, deserialize_with = "or_default")]
    pub author: String,
    #[serde(default, deserialize_with = "or_default")]
    pub config: ContainerConfig,
    #[serde(default, deserialize_with = "or_default")]
    rootfs: RootFs,
    #[serde(default, deserialize_with = "or_default")]
    pub history: Vec<ImageHistory>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
struct RootFs {
    #[serde(default, deserialize_with = "or_default")]
    diff_ids: Vec<Digest>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct ContainerConfig {
    #[serde(default, deserialize_with = "or_default")]
    pub user: String,
    #[serde(default, deserialize_with = "or_default")]
    pub env: Vec<String>,
    #[serde(default, deserialize_with = "or_default")]
    pub entrypoint: Vec<String>,
    #[serde(default, deserialize_with = "or_default")]
    pub cmd: Vec<String>,
    #[serde(default, deserialize_with = "or_default")]
    pub working_dir: String,
    #[serde(default, deserialize_with = "or_default")]
    pub stop_signal: String,
    #[serde(default, deserialize_with = "or_default")]
    pub labels: BTreeMap<String, String>,
    /// For example `80/tcp`.
    #[serde(default, deserialize_with = "keys")]
    pub exposed_ports: Vec<String>,
    #[serde(default, deserialize_with = "keys")]
    pub volumes: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct ImageHistory {
    #[serde(default, deserialize_with = "or_default")]
    pub created: String,
    #[serde(default, deserialize_with = "or_default")]
    pub created_by: String,
    #[serde(default, deserialize_with = "or_default")]
    pub comment: String,
    #[serde(default, deserialize_with = "or_default")]
    pub empty_layer: bool,
}

impl ImageConfig {
    pub fn parse(what: &str, bytes: &[u8], limits: &Limits) -> Result<Self> {
        Limits::check(|| format!("{what}: bytes"), bytes.len() as u64, limits.document_bytes)?;
        let config: Self = object(what, bytes)?;
        let layers = config.rootfs.diff_ids.len() as u64;
        Limits::check(|| format!("{what}: diff_ids"), layers, limits.layers as u64)?;
        Ok(config)
    }

    /// The digests of the uncompressed layers, lowest first.
    pub fn diff_ids(&self) -> &[Digest] {
        &self.rootfs.diff_ids
    }
}

impl ImageManifest {
    /// Checks that this is the manifest of a runnable image, not of another artifact.
    pub(crate) fn check_image(&self, what: &str, config: &ImageConfig) -> Result<()> {
        let kind = self.config.media_type.as_str();
        if !matches!(kind, "" | OCI_CONFIG | DOCKER_CONFIG | "application/octet-stream") {
            return Err(Error::document(
                what,
                format!("its configuration is of type {kind:?}: an artifact, no container image"),
            ));
        }
        if let Some(other) = self.layers.iter().find(|layer| !layer.is_layer()) {
            return Err(Error::document(
                what,
                format!("layer {} is of type {:?}: no file system", other.digest, other.media_type),
            ));
        }
        let (layers, diff_ids) = (self.layers.len(), config.diff_ids().len());
        if layers != diff_ids {
            return Err(Error::document(
                what,
                format!("has {layers} layers but its configuration has {diff_ids} diff_ids"),
            ));
        }
        Ok(())
    }
}

/// serde would also accept an array for a struct, by position; other parsers do not.
fn object<'de, T: Deserialize<'de>>(what: &str, bytes: &'de [u8]) -> Result<T> {
    if bytes.trim_ascii_start().first() != Some(&b'{') {
        return Err(Error::document(what, "is no JSON object"));
    }
    serde_json::from_slice(bytes).map_err(|error| Error::document(what, error))
}

/// `null` means absent.
fn or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

/// Sets are encoded as objects with empty values.
fn keys<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let map = Option::<BTreeMap<String, serde::de::IgnoredAny>>::deserialize(deserializer)?;
    Ok(map.unwrap_or_default().into_keys().collect())
}
