//! The store's public interface: one directory, opened by any number of processes.
//!
//! All durable state is below the root, with a version; a directory of another version is refused
//! before any change. The directory is private to its owner, because unpacked layers contain
//! untrusted setuid programs.

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use crate::assemble::{ContentSource, ImageAssembly, ImageNaming};
use crate::content::ContentStore;
use crate::durable::{Lock, Trash, UNFINISHED, create_dir, names_in, write_durably};
use crate::error::{Error, PathContext as _, Result};
use crate::index::{IndexFile, StoredImage};
use crate::lease::Leases;
use crate::limits::Limits;
use crate::platform::Platform;
use crate::progress::ProgressListener;
use crate::reference::ImageReference;
use crate::session::StoreSession;
use crate::snapshot::Snapshots;
use crate::spec::{Descriptor, ImageConfig};
use crate::usage::Usage;

#[cfg(test)]
mod tests;

const FORMAT: &str = "keelson-image-store";
const VERSION: u32 = 1;

/// The images below one root directory.
#[derive(Clone, Debug)]
pub struct ImageStore {
    pub(crate) root: PathBuf,
    pub(crate) limits: Limits,
    pub(crate) platform: Platform,
    pub(crate) content: ContentStore,
    pub(crate) snapshots: Snapshots,
    pub(crate) index: IndexFile,
    pub(crate) leases: Leases,
    pub(crate) trash: Trash,
}

impl ImageStore {
    /// Opens the store at `root`, creating it if there is none.
    pub fn open(root: &Path, limits: Limits, platform: Platform) -> Result<Self> {
        create_dir(root)?;
        let root = fs::canonicalize(root).doing("resolving", root)?;
        fs::set_permissions(&root, fs::Permissions::from_mode(0o700)).doing("mode of", &root)?;
        check_version(&root)?;
        for part in ["sessions", "trash", "views", "empty", "hollow"] {
            create_dir(&root.join(part))?;
        }
        let lock = root.join("lock");
        Ok(Self {
            content: ContentStore::open(&root, &lock, &limits)?,
            snapshots: Snapshots::open(&root, &lock)?,
            index: IndexFile::open(&root),
            leases: Leases::open(&root)?,
            trash: Trash(root.join("trash")),
            limits,
            platform,
            root,
        })
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn content(&self) -> &ContentStore {
        &self.content
    }

    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    pub(crate) fn lock(&self) -> PathBuf {
        self.root.join("lock")
    }

    pub(crate) fn sessions(&self) -> PathBuf {
        self.root.join("sessions")
    }

    pub(crate) fn session(&self) -> Result<StoreSession> {
        StoreSession::begin(&self.sessions(), &self.lock())
    }

    pub(crate) fn shared_lock(&self) -> Result<Lock> {
        Lock::shared(&self.lock())
    }

    /// Fetches an image from `source`, starting at `top` (an index or a manifest), and unpacks it.
    /// If the source fails, received content stays for another attempt; other errors leave nothing
    /// behind.
    pub fn assemble(
        &self,
        source: &dyn ContentSource,
        top: &Descriptor,
        naming: &ImageNaming,
        progress: &dyn ProgressListener,
    ) -> Result<StoredImage> {
        let assembly = ImageAssembly::new(self, source, progress)?;
        let outcome = assembly.run(top, naming);
        let protected = assembly.finish();
        if let Err(error) = &outcome {
            // Return the original error; leftovers are removed by the next collection.
            let _ = self.collect_after(error, &protected);
        }
        outcome
    }

    /// All images, by id.
    pub fn images(&self) -> Result<Vec<StoredImage>> {
        Ok(self.index.read()?.images.into_values().collect())
    }

    /// The image with that id (or prefix of an id), tag or digest.
    pub fn image(&self, name: &str) -> Result<StoredImage> {
        self.index.read()?.find(name).cloned()
    }

    pub fn image_config(&self, record: &StoredImage) -> Result<ImageConfig> {
        let bytes = self.content.read_document(&record.id, self.limits.document_bytes)?;
        ImageConfig::parse(&format!("configuration {}", record.id), &bytes, &self.limits)
    }

    /// Disk usage of an image's unpacked layers; shared layers count for each image.
    pub fn image_usage(&self, record: &StoredImage) -> Result<Usage> {
        let mut usage = Usage::default();
        for chain in record.chain_ids() {
            usage += self.snapshots.record(&chain)?.usage;
        }
        Ok(usage)
    }

    /// Disk usage of content and snapshots together. Views are counted for their containers.
    pub fn usage(&self) -> Result<Usage> {
        let mut usage = self.snapshots.usage()?;
        for (_, bytes) in self.content.list()? {
            usage += Usage { bytes: bytes.next_multiple_of(4096), inodes: 1 };
        }
        Ok(usage)
    }

    /// Adds a name to an image.
    pub fn tag(&self, image: &str, name: &ImageReference) -> Result<StoredImage> {
        self.index.change(|images| {
            let mut record = images.find(image)?.clone();
            let target = record.names.values().next().copied().unwrap_or(record.manifest);
            record.names.extend(name.tagged().map(|tagged| (tagged, target)));
            images.add(record.clone());
            Ok(record)
        })
    }

    pub fn pin(&self, image: &str, pinned: bool) -> Result<()> {
        self.index.change(|images| {
            let id = images.find(image)?.id;
            if let Some(record) = images.images.get_mut(&id) {
                record.pinned = pinned;
            }
            Ok(())
        })
    }

    /// Removes one name. `false`: it did not exist. The image stays, perhaps without a name.
    pub fn untag(&self, name: &ImageReference) -> Result<bool> {
        self.index.change(|images| Ok(images.remove_name(name)))
    }

    /// Removes an image with all its names; `false` if there was none. Unused content is removed by
    /// the next [`ImageStore::collect`].
    pub fn remove(&self, image: &str) -> Result<bool> {
        self.index.change(|images| match images.find(image) {
            Ok(record) => {
                let id = record.id;
                Ok(images.images.remove(&id).is_some())
            }
            Err(Error::ImageMissing(_)) => Ok(false),
            Err(error) => Err(error),
        })
    }
}

/// Reads the version, or writes it into an empty directory.
fn check_version(root: &Path) -> Result<()> {
    let path = root.join("version");
    let ours = format!("{FORMAT} {VERSION}\n");
    let mut text = String::new();
    match fs::File::open(&path) {
        Ok(file) => {
            // Bounded: the file may be anything.
            let read = file.take(200).read_to_string(&mut text);
            read.doing("reading", &path)?;
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            // Exclusive: a sweep of another process must not remove the unfinished file.
            let _held = Lock::exclusive(&root.join("images.lock"))?;
            if !path.exists() {
                refuse_foreign_dir(root)?;
                write_durably(&path, ours.as_bytes())?;
            }
            return check_version(root);
        }
        Err(error) => return Err(error).doing("opening", &path),
    }
    if text != ours {
        let found = text.lines().next().unwrap_or("nothing").to_owned();
        return Err(Error::UnknownVersion { path, found, expected: VERSION });
    }
    Ok(())
}

/// A directory with files but without a version is not a store: refuse it.
fn refuse_foreign_dir(root: &Path) -> Result<()> {
    let ours = |name: &String| name == "images.lock" || name.starts_with(UNFINISHED);
    let others: Vec<_> = names_in(root)?.into_iter().filter(|name| !ours(name)).collect();
    if others.is_empty() {
        return Ok(());
    }
    let reason =
        format!("it has files ({}) but no version: it is no image store", others.join(", "));
    Err(Error::damaged(root, reason))
}
