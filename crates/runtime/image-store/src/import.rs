//! Images from files: docker archives, OCI archives, OCI layouts, plain directories.
//!
//! The format is detected from the content. Archives are read once, from start to end, so they may
//! come from a pipe; their blobs are stored and verified as they pass. Blobs that no image needs
//! are removed again.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use crate::assemble::{ContentSource, ImageAssembly, ImageNaming};
use crate::digest::Digest;
use crate::error::{Error, PathContext as _, Result};
use crate::index::StoredImage;
use crate::progress::ProgressListener;
use crate::reference::ImageReference;
use crate::spec::{Descriptor, ImageDocument, Index};
use crate::store::ImageStore;

mod archive;
mod dir;
#[cfg(test)]
mod kills;
mod layout;
#[cfg(test)]
mod tests;

/// Annotations in which containerd and compatible tools write a full name into an index.
const NAME_ANNOTATIONS: &[&str] =
    &["io.containerd.image.name", "org.opencontainers.image.ref.name"];

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImportOptions {
    /// The image's name, replacing the names in an archive; required for a directory.
    pub name: Option<ImageReference>,
    pub pinned: bool,
    pub preloaded: bool,
}

/// What every step of an import needs.
#[derive(Clone, Copy)]
struct ImportContext<'a> {
    options: &'a ImportOptions,
    progress: &'a dyn ProgressListener,
}

/// One imported image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imported {
    pub names: Vec<ImageReference>,
    pub record: StoredImage,
}

impl ImageStore {
    /// Imports an archive, an OCI layout, or a plain directory as an image of one layer.
    pub fn import(
        &self,
        path: &Path,
        options: &ImportOptions,
        progress: &dyn ProgressListener,
    ) -> Result<Vec<Imported>> {
        let metadata = fs::metadata(path).doing("looking at", path)?;
        if metadata.is_dir() {
            if path.join("oci-layout").is_file() || path.join("index.json").is_file() {
                return layout::import(self, path, options, progress);
            }
            return dir::import(self, path, options, progress);
        }
        let file = File::open(path).doing("opening", path)?;
        self.import_stream(&path.display().to_string(), file, options, progress)
    }

    /// Imports an archive from a stream. `what` names it in errors.
    pub fn import_stream(
        &self,
        what: &str,
        stream: impl Read,
        options: &ImportOptions,
        progress: &dyn ProgressListener,
    ) -> Result<Vec<Imported>> {
        archive::import(self, what, stream, ImportContext { options, progress })
    }

    /// Every image in an OCI index, each for this platform.
    fn import_index(
        &self,
        what: &str,
        index: &Index,
        source: &dyn ContentSource,
        ImportContext { options, progress }: ImportContext<'_>,
    ) -> Result<Vec<Imported>> {
        let mut groups: BTreeMap<Option<ImageReference>, Vec<Descriptor>> = BTreeMap::new();
        for descriptor in &index.manifests {
            let name = match &options.name {
                Some(name) => Some(name.clone()),
                None => annotated_name(descriptor),
            };
            groups.entry(name).or_default().push(descriptor.clone());
        }
        let mut imported = Vec::new();
        let mut refused = None;
        for (name, manifests) in groups {
            let names: Vec<_> = name.into_iter().collect();
            let naming = self.naming(&names, options);
            match self.import_group(&manifests, source, &naming, progress) {
                Ok(record) => imported.push(Imported { names, record }),
                Err(error @ Error::NoPlatform { .. }) => refused = Some(error),
                Err(error) => return Err(error),
            }
        }
        match (imported.is_empty(), refused) {
            (true, Some(error)) => Err(error),
            (true, None) => Err(Error::archive(what, "its index lists no image")),
            (false, _) => Ok(imported),
        }
    }

    /// Descriptors with the same name are platforms of one image.
    fn import_group(
        &self,
        manifests: &[Descriptor],
        source: &dyn ContentSource,
        naming: &ImageNaming,
        progress: &dyn ProgressListener,
    ) -> Result<StoredImage> {
        let index = Index { manifests: manifests.to_vec() };
        let candidates = crate::assemble::candidates(&index, &self.platform);
        let mut refused = None;
        for candidate in &candidates {
            match ImageAssembly::new(self, source, progress)?.run(candidate, naming) {
                Err(error @ Error::NoPlatform { .. }) => refused = Some(error),
                other => return other,
            }
        }
        Err(refused.unwrap_or_else(|| Error::NoPlatform {
            what: "the index".to_owned(),
            wanted: self.platform.to_string(),
            available: format!("{} manifests for others", manifests.len()),
        }))
    }

    fn naming(&self, names: &[ImageReference], options: &ImportOptions) -> ImageNaming {
        ImageNaming {
            names: names.to_vec(),
            pinned: options.pinned,
            preloaded: options.preloaded,
            imported: true,
        }
    }

    /// Writes a manifest for layers and a configuration that are in the store.
    fn write_manifest(&self, config: (Digest, u64), layers: &[Descriptor]) -> Result<Descriptor> {
        let manifest = serde_json::json!({
            "schemaVersion": 2,
            "mediaType": crate::spec::OCI_MANIFEST,
            "config": {
                "mediaType": crate::spec::OCI_CONFIG, "digest": config.0, "size": config.1,
            },
            "layers": layers,
        });
        let bytes = manifest.to_string().into_bytes();
        let digest = self.content.put(&bytes)?;
        Ok(Descriptor {
            media_type: crate::spec::OCI_MANIFEST.to_owned(),
            digest,
            size: bytes.len() as u64,
            platform: None,
            annotations: BTreeMap::new(),
        })
    }
}

/// The full name that a descriptor carries. A tag alone is not enough: its repository is unknown.
fn annotated_name(descriptor: &Descriptor) -> Option<ImageReference> {
    NAME_ANNOTATIONS.iter().find_map(|key| {
        let text = descriptor.annotations.get(*key)?;
        let whole = text.contains('/') || (*key == NAME_ANNOTATIONS[0] && !text.is_empty());
        ImageReference::parse(text).ok().filter(|_| whole)
    })
}

fn parse_index(store: &ImageStore, what: &str, bytes: &[u8]) -> Result<Index> {
    match ImageDocument::parse(what, bytes, &store.limits)? {
        ImageDocument::Index(index) => Ok(index),
        ImageDocument::ImageManifest(_) => {
            Err(Error::document(what, "is a manifest; expected an index"))
        }
    }
}
