//! From an image value to the bytes that registries and runtimes keep: layer, configuration, manifest.
//!
//! The rule: bytes depend on the image alone. Times are zero, entries sorted, the gzip header fixed.
//! The compressed layer is kept in the cache under the digest of the uncompressed one, so a second
//! build only reads it. Does not write archives (`output`) or talk to registries (`registry`).

use std::borrow::Cow;
use std::fs;
use std::io::Write as _;

use anyhow::{Context, Result};
use flate2::{Compression, GzBuilder};
use serde::Serialize;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tar::{EntryType, Header};

use super::output::write_whole;
use super::{FileContent, ImageFile, RunConfig, TestImage};

pub(super) const MANIFEST_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";
pub(super) const CONFIG_TYPE: &str = "application/vnd.oci.image.config.v1+json";
pub(super) const LAYER_TYPE: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

/// One piece of content and its digest (`sha256:…`).
#[derive(Clone, Debug)]
pub struct Blob {
    pub digest: String,
    pub bytes: Vec<u8>,
}

impl Blob {
    pub(super) fn new(bytes: Vec<u8>) -> Self {
        Self { digest: digest(&bytes), bytes }
    }

    /// The digest without its algorithm: the file name in a layout.
    pub fn hex(&self) -> &str {
        self.digest.trim_start_matches("sha256:")
    }
}

/// An image as content: what a registry would hold.
#[derive(Clone, Debug)]
pub struct BuiltImage {
    pub name: String,
    /// The layer as a plain tar, as docker archives carry it; its digest is the diff id.
    pub layer_tar: Blob,
    pub layer: Blob,
    pub config: Blob,
    pub manifest: Blob,
}

#[derive(Serialize)]
struct ImageConfigDocument<'a> {
    created: &'a str,
    architecture: &'a str,
    os: &'a str,
    config: &'a RunConfig,
    rootfs: Value,
}

impl TestImage {
    /// Builds the image; reads the host files that it names.
    pub fn build(&self) -> Result<BuiltImage> {
        let layer_tar =
            Blob::new(self.layer().with_context(|| format!("layer of image {}", self.name))?);
        let layer = Blob::new(compressed(&layer_tar)?);
        let config = Blob::new(serde_json::to_vec(&ImageConfigDocument {
            created: "1970-01-01T00:00:00Z",
            architecture: architecture(),
            os: "linux",
            config: &self.config,
            rootfs: json!({ "type": "layers", "diff_ids": [&layer_tar.digest] }),
        })?);
        let manifest = Blob::new(serde_json::to_vec(&json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST_TYPE,
            "config": descriptor(CONFIG_TYPE, &config),
            "layers": [descriptor(LAYER_TYPE, &layer)],
        }))?);
        Ok(BuiltImage { name: self.name.clone(), layer_tar, layer, config, manifest })
    }

    fn layer(&self) -> Result<Vec<u8>> {
        let mut archive = tar::Builder::new(Vec::new());
        for (path, file) in &self.files {
            append(&mut archive, path, file).with_context(|| format!("file /{path}"))?;
        }
        Ok(archive.into_inner()?)
    }
}

fn append(archive: &mut tar::Builder<Vec<u8>>, path: &str, file: &ImageFile) -> Result<()> {
    let mut header = Header::new_ustar();
    header.set_mode(file.mode);
    header.set_uid(file.owner.0.into());
    header.set_gid(file.owner.1.into());
    header.set_mtime(0);
    header.set_size(0);
    match &file.content {
        FileContent::Directory => {
            header.set_entry_type(EntryType::Directory);
            archive.append_data(&mut header, format!("{path}/"), std::io::empty())?;
        }
        FileContent::Link(target) => {
            header.set_entry_type(EntryType::Symlink);
            archive.append_link(&mut header, path, target)?;
        }
        FileContent::Bytes(_) | FileContent::HostFile(_) => {
            let bytes = bytes_of(&file.content)?;
            header.set_entry_type(EntryType::Regular);
            header.set_size(bytes.len() as u64);
            archive.append_data(&mut header, path, bytes.as_ref())?;
        }
    }
    Ok(())
}

fn bytes_of(content: &FileContent) -> Result<Cow<'_, [u8]>> {
    match content {
        FileContent::HostFile(path) => {
            Ok(Cow::Owned(fs::read(path).with_context(|| format!("reading {}", path.display()))?))
        }
        FileContent::Bytes(bytes) => Ok(Cow::Borrowed(bytes)),
        FileContent::Directory | FileContent::Link(_) => Ok(Cow::Borrowed(&[])),
    }
}

/// Below this size, compressing is faster than a cache lookup.
const CACHE_THRESHOLD: usize = 64 << 10;

/// The gzip form of a layer, from the cache if it was made before.
fn compressed(layer_tar: &Blob) -> Result<Vec<u8>> {
    if layer_tar.bytes.len() < CACHE_THRESHOLD {
        return gzip(&layer_tar.bytes);
    }
    let kept = crate::cache::root()?.join("images/layers").join(format!("{}.gz", layer_tar.hex()));
    if let Ok(bytes) = fs::read(&kept) {
        return Ok(bytes);
    }
    let bytes = gzip(&layer_tar.bytes)?;
    write_whole(&kept, |file| Ok(file.write_all(&bytes)?))?;
    Ok(bytes)
}

/// Compresses with a header without time, name or operating system.
pub(super) fn gzip(bytes: &[u8]) -> Result<Vec<u8>> {
    let unknown_system = 255;
    let mut encoder = GzBuilder::new()
        .mtime(0)
        .operating_system(unknown_system)
        .write(Vec::new(), Compression::new(6));
    encoder.write_all(bytes)?;
    Ok(encoder.finish()?)
}

/// A reference to content, as manifests and indexes carry it.
pub(super) fn descriptor(media_type: &str, blob: &Blob) -> Value {
    json!({ "mediaType": media_type, "digest": blob.digest, "size": blob.bytes.len() })
}

/// The sha256 digest in the form that images use.
pub(crate) fn digest(bytes: &[u8]) -> String {
    let mut text = String::from("sha256:");
    for byte in Sha256::digest(bytes) {
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

/// This machine's architecture as OCI images name it.
pub(super) fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
