//! Archives that contain images, read in one pass.
//!
//! A blob in an OCI archive is named by its digest and skipped if the store has it. In a docker
//! archive digests are known only after reading the file. Links in the archive (older `docker save`
//! uses them for shared layers) are followed by name, inside the archive only.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;

use serde::Deserialize;

use super::{ImportContext, ImportOptions, Imported, parse_index};
use crate::archive::{TarEntries, TarEntry, TarEntryKind};
use crate::assemble::{ImageAssembly, NoSource};
use crate::compression::{Compression, LayerDecoder, LimitedReader, read_error};
use crate::content::IngestStart;
use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::limits::Limits;
use crate::progress::{ProgressListener, ProgressStep, StepThrottle};
use crate::reference::ImageReference;
use crate::session::StoreSession;
use crate::spec::{Descriptor, Index, OCI_LAYER};
use crate::store::ImageStore;
use crate::tree::TreePath;

const MAX_LINKS: usize = 40;
/// Files in archives that are not needed.
const SKIPPED: &[&str] = &["VERSION", "json", "repositories", "oci-layout"];

/// The file at a path of the archive.
enum ArchiveMember {
    Blob(Digest, u64),
    Link(TreePath),
}

struct ArchiveReader<'a> {
    store: &'a ImageStore,
    what: &'a str,
    session: StoreSession,
    progress: &'a dyn ProgressListener,
    members: BTreeMap<TreePath, ArchiveMember>,
    documents: BTreeMap<String, Vec<u8>>,
    /// Blobs that this import added; those without an image are removed again.
    imported_blobs: BTreeSet<Digest>,
}

pub(super) fn import(
    store: &ImageStore,
    what: &str,
    stream: impl Read,
    ImportContext { options, progress }: ImportContext<'_>,
) -> Result<Vec<Imported>> {
    let mut reading = ArchiveReader {
        store,
        what,
        session: store.session()?,
        progress,
        members: BTreeMap::new(),
        documents: BTreeMap::new(),
        imported_blobs: BTreeSet::new(),
    };
    let imported = reading.read(stream).and_then(|()| reading.images(options));
    let imported_blobs = std::mem::take(&mut reading.imported_blobs);
    // The session protects these blobs; it must end before unused ones can be removed.
    drop(reading);
    let collected = store.collect_blobs(&imported_blobs);
    let imported = imported?;
    collected?;
    Ok(imported)
}

impl ArchiveReader<'_> {
    fn read(&mut self, stream: impl Read) -> Result<()> {
        let limits = &self.store.limits;
        let plain = LimitedReader::new(LayerDecoder::new(self.what, stream)?, limits.archive_bytes);
        let mut entries = TarEntries::new(self.what, plain, limits, limits.archive_entries);
        while let Some(entry) = entries.next_entry()? {
            self.member(entry, &mut entries)?;
        }
        Ok(())
    }

    fn member(&mut self, entry: TarEntry, data: &mut impl Read) -> Result<()> {
        let path = TreePath::parse(&entry.path, &self.store.limits)?;
        match entry.kind {
            TarEntryKind::File => {}
            TarEntryKind::Symlink(target) => {
                let target = path.follow(&target);
                self.members.insert(path, ArchiveMember::Link(target));
                return Ok(());
            }
            TarEntryKind::HardLink(target) => {
                let target = TreePath::parse(&target, &self.store.limits)?;
                self.members.insert(path, ArchiveMember::Link(target));
                return Ok(());
            }
            // Directories follow from paths; other kinds do not belong into such an archive.
            _ => return Ok(()),
        }
        let name = path.relative().to_string_lossy().into_owned();
        if name == "index.json" || name == "manifest.json" {
            let limit = self.store.limits.document_bytes;
            Limits::check(|| format!("{}: {name}: bytes", self.what), entry.size, limit)?;
            let mut bytes = Vec::new();
            data.read_to_end(&mut bytes).map_err(|error| read_error(self.what, &error))?;
            self.documents.insert(name, bytes);
            return Ok(());
        }
        if path.parts().last().is_some_and(|last| SKIPPED.iter().any(|s| s.as_bytes() == last)) {
            return Ok(());
        }
        let (digest, size) = match name.strip_prefix("blobs/sha256/").map(Digest::from_hex) {
            Some(Some(digest)) => (self.store_with_digest(digest, entry.size, data)?, entry.size),
            Some(None) => {
                let reason = format!("{name:?} is not named by a sha256 digest");
                return Err(Error::archive(self.what, reason));
            }
            None => self.store_without_digest(data)?,
        };
        self.members.insert(path, ArchiveMember::Blob(digest, size));
        Ok(())
    }

    fn store_with_digest(
        &mut self,
        digest: Digest,
        size: u64,
        data: &mut impl Read,
    ) -> Result<Digest> {
        self.session.protect(&[digest])?;
        match self.store.content.begin(&digest, size)? {
            IngestStart::Present => {
                self.progress.step(ProgressStep::Present { digest, bytes: size });
            }
            IngestStart::Ingest(mut ingest) => {
                // The archive repeats the bytes that an earlier attempt received.
                let known = ingest.offset();
                std::io::copy(&mut data.take(known), &mut std::io::sink())
                    .map_err(|error| read_error(self.what, &error))?;
                let (mut throttle, progress) = (StepThrottle::default(), self.progress);
                let report = |done, digest| {
                    progress.step(ProgressStep::Received { digest, done, total: Some(size) });
                };
                let seen = |done| {
                    if throttle.is_due(done) {
                        report(done, Some(digest));
                    }
                };
                ingest.receive_all(data, seen, |error| read_error(self.what, error))?;
                ingest.commit()?;
                self.imported_blobs.insert(digest);
                report(size, Some(digest));
            }
        }
        Ok(digest)
    }

    fn store_without_digest(&mut self, data: &mut impl Read) -> Result<(Digest, u64)> {
        let mut ingest = self.store.content.begin_without_digest()?;
        let (mut throttle, progress) = (StepThrottle::default(), self.progress);
        let seen = |done| {
            if throttle.is_due(done) {
                progress.step(ProgressStep::Received { digest: None, done, total: None });
            }
        };
        ingest.receive_all(data, seen, |error| read_error(self.what, error))?;
        // No collection may run between placing and protecting.
        let _held = self.store.shared_lock()?;
        let (digest, size) = ingest.commit()?;
        self.session.protect(&[digest])?;
        self.imported_blobs.insert(digest);
        progress.step(ProgressStep::Received {
            digest: Some(digest),
            done: size,
            total: Some(size),
        });
        Ok((digest, size))
    }

    fn images(&mut self, options: &ImportOptions) -> Result<Vec<Imported>> {
        if let Some(bytes) = self.documents.get("index.json") {
            let index = parse_index(self.store, &format!("{}: index.json", self.what), bytes)?;
            return self.oci_images(&index, options);
        }
        if let Some(bytes) = self.documents.get("manifest.json").cloned() {
            return self.docker_images(&bytes, options);
        }
        Err(Error::archive(
            self.what,
            "has neither index.json (OCI archive) nor manifest.json (docker archive)",
        ))
    }

    fn oci_images(&self, index: &Index, options: &ImportOptions) -> Result<Vec<Imported>> {
        let context = ImportContext { options, progress: self.progress };
        let mut imported = self.store.import_index(self.what, index, &NoSource, context)?;
        // `docker save` writes both documents, with names only in the older one.
        let named = |imported: &Imported| !imported.names.is_empty();
        if let Some(bytes) = self.documents.get("manifest.json")
            && !imported.iter().any(named)
        {
            for item in self.docker_items(bytes)? {
                let config = self.blob(&item.config)?.0;
                let Some(image) = imported.iter_mut().find(|image| image.record.id == config)
                else {
                    continue;
                };
                for name in names(item.repo_tags.as_deref())? {
                    image.record = self.store.tag(&config.to_string(), &name)?;
                    image.names.push(name);
                }
            }
        }
        Ok(imported)
    }

    fn docker_items(&self, bytes: &[u8]) -> Result<Vec<DockerItem>> {
        let what = format!("{}: manifest.json", self.what);
        let items: Vec<DockerItem> =
            serde_json::from_slice(bytes).map_err(|error| Error::document(&what, error))?;
        let limit = self.store.limits.index_entries as u64;
        Limits::check(|| format!("{what}: images"), items.len() as u64, limit)?;
        Ok(items)
    }

    fn docker_images(&mut self, bytes: &[u8], options: &ImportOptions) -> Result<Vec<Imported>> {
        let mut imported = Vec::new();
        for item in self.docker_items(bytes)? {
            let config = self.blob(&item.config)?;
            let mut layers = Vec::new();
            for layer in &item.layers {
                layers.push(self.layer(layer)?);
            }
            let names = match &options.name {
                Some(name) => vec![name.clone()],
                None => names(item.repo_tags.as_deref())?,
            };
            let manifest = {
                let _held = self.store.shared_lock()?;
                let manifest = self.store.write_manifest(config, &layers)?;
                self.session.protect(&[manifest.digest])?;
                self.imported_blobs.insert(manifest.digest);
                manifest
            };
            let naming = self.store.naming(&names, options);
            let assembly = ImageAssembly::new(self.store, &NoSource, self.progress)?;
            let record = assembly.run(&manifest, &naming)?;
            imported.push(Imported { names, record });
        }
        if imported.is_empty() {
            return Err(Error::archive(self.what, "its manifest.json lists no image"));
        }
        Ok(imported)
    }

    fn layer(&self, name: &str) -> Result<Descriptor> {
        let (digest, size) = self.blob(name)?;
        let blob = self.store.content.open_blob(&digest)?;
        let packed = match LayerDecoder::new(name, blob)?.compression() {
            Compression::None => "",
            Compression::Gzip => "+gzip",
            Compression::Zstd => "+zstd",
        };
        Ok(Descriptor {
            media_type: format!("{OCI_LAYER}{packed}"),
            digest,
            size,
            platform: None,
            annotations: BTreeMap::new(),
        })
    }

    /// The blob that a name in manifest.json refers to.
    fn blob(&self, name: &str) -> Result<(Digest, u64)> {
        let mut path = TreePath::parse(name.as_bytes(), &self.store.limits)?;
        for _ in 0..MAX_LINKS {
            match self.members.get(&path) {
                Some(ArchiveMember::Blob(digest, size)) => return Ok((*digest, *size)),
                Some(ArchiveMember::Link(target)) => path = target.clone(),
                None => {
                    let reason = format!("manifest.json names {name:?}, which is not in it");
                    return Err(Error::archive(self.what, reason));
                }
            }
        }
        Err(Error::archive(self.what, format!("{name:?} leads through too many links")))
    }
}

/// One image of a docker archive.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DockerItem {
    config: String,
    repo_tags: Option<Vec<String>>,
    #[serde(default)]
    layers: Vec<String>,
}

fn names(tags: Option<&[String]>) -> Result<Vec<ImageReference>> {
    tags.unwrap_or_default().iter().map(|tag| Ok(ImageReference::parse(tag)?)).collect()
}
