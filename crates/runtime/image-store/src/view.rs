//! A container's root file system: the image's layers below, an own directory on top.
//!
//! A view is a lease on the image's snapshots and, if it is writable, an upper and a work
//! directory. Creating one is idempotent by id. Mounting is separate ([`crate::mount_overlay`]),
//! because it may happen in another process and namespace; this returns the options as a value.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{Gid, Uid, chown};

use crate::digest::Digest;
use crate::durable::create_dir;
use crate::error::{Error, PathContext as _, Result};
use crate::lease::ViewLease;
use crate::store::ImageStore;
use crate::unpack::UnpackRights;
use crate::usage::Usage;

#[cfg(test)]
mod tests;

const MAX_ID_LENGTH: usize = 128;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageView {
    pub id: String,
    /// The image it was created from; it may have been removed since.
    pub image: Digest,
    pub overlay: OverlayOptions,
}

/// The layers of an overlay mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OverlayOptions {
    /// The topmost first, as overlayfs expects them.
    pub lower: Vec<PathBuf>,
    /// The upper and work directories; `None`: read-only.
    pub upper: Option<Upper>,
    /// Without root in the initial user namespace, overlayfs reads `user.` attributes.
    pub user_attributes: bool,
    /// The SELinux label of all its files; empty: each file's own.
    pub label: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upper {
    pub changes: PathBuf,
    pub work: PathBuf,
}

impl OverlayOptions {
    /// The options of mount(2) as one text. May exceed the page that the kernel reads.
    pub fn data(&self) -> Vec<u8> {
        self.data_with(&self.lower)
    }

    pub(crate) fn data_with(&self, lower: &[PathBuf]) -> Vec<u8> {
        let mut data = b"lowerdir=".to_vec();
        for (at, path) in lower.iter().enumerate() {
            if at > 0 {
                data.push(b':');
            }
            escape(path, b":,\\", &mut data);
        }
        if let Some(upper) = &self.upper {
            for (key, path) in
                [(&b",upperdir="[..], &upper.changes), (&b",workdir="[..], &upper.work)]
            {
                data.extend_from_slice(key);
                escape(path, b",\\", &mut data);
            }
        }
        if self.user_attributes {
            data.extend_from_slice(b",userxattr");
        }
        if !self.label.is_empty() {
            // The categories of a label contain a comma.
            data.extend_from_slice(format!(",context=\"{}\"", self.label).as_bytes());
        }
        data
    }
}

/// Overlayfs splits options at these bytes unless they are escaped by a backslash.
fn escape(path: &Path, special: &[u8], into: &mut Vec<u8>) {
    use std::os::unix::ffi::OsStrExt as _;
    for byte in path.as_os_str().as_bytes() {
        if special.contains(byte) {
            into.push(b'\\');
        }
        into.push(*byte);
    }
}

impl ImageStore {
    pub(crate) fn views(&self) -> PathBuf {
        self.root.join("views")
    }

    /// Creates a writable view of an image. The same id again returns the same view.
    pub fn create_view(&self, id: &str, image: &str) -> Result<ImageView> {
        self.create_view_with(id, image, true)
    }

    /// Creates a read-only view, for example of an image mounted as a volume.
    pub fn create_read_only_view(&self, id: &str, image: &str) -> Result<ImageView> {
        self.create_view_with(id, image, false)
    }

    fn create_view_with(&self, id: &str, image: &str, writable: bool) -> Result<ImageView> {
        check_id(id)?;
        // Held throughout: no collection may run between finding the image and writing the lease.
        let _held = self.shared_lock()?;
        let lease = match self.leases.read(id)? {
            Some(lease) => {
                // The image may have lost its name since; the lease decides.
                let other = self.image(image).is_ok_and(|record| record.id != lease.image);
                if other || lease.writable != writable {
                    return Err(Error::ViewTaken(id.to_owned()));
                }
                lease
            }
            None => {
                let record = self.image(image)?;
                let chain_ids = record.chain_ids();
                if let Some(missing) = chain_ids.iter().find(|chain| !self.snapshots.has(chain)) {
                    return Err(Error::SnapshotMissing(*missing));
                }
                let lease = ViewLease::new(record.id, chain_ids, writable);
                self.leases.write(id, &lease)?;
                lease
            }
        };
        let view = self.view_of(id, &lease);
        if let Some(upper) = &view.overlay.upper {
            create_dir(&upper.work)?;
            create_dir(&upper.changes)?;
            // The mount's root is the upper directory: it must look like the image's own.
            let below =
                fs::metadata(&view.overlay.lower[0]).doing("looking at", &view.overlay.lower[0])?;
            if UnpackRights::ours().owners {
                let (user, group) = (Uid::from_raw(below.uid()), Gid::from_raw(below.gid()));
                chown(&upper.changes, Some(user), Some(group)).doing("owner of", &upper.changes)?;
            }
            let mode = fs::Permissions::from_mode(below.mode() & 0o7777);
            fs::set_permissions(&upper.changes, mode).doing("mode of", &upper.changes)?;
        }
        Ok(view)
    }

    /// The view with that id, if it exists.
    pub fn view(&self, id: &str) -> Result<Option<ImageView>> {
        check_id(id)?;
        Ok(self.leases.read(id)?.map(|lease| self.view_of(id, &lease)))
    }

    /// The ids of all views.
    pub fn list_views(&self) -> Result<Vec<String>> {
        self.leases.list()
    }

    /// Removes a view, which must not be mounted any more; a missing one is no error.
    pub fn remove_view(&self, id: &str) -> Result<()> {
        check_id(id)?;
        {
            let _held = self.shared_lock()?;
            self.trash.take(&self.views().join(id))?;
            self.leases.remove(id)?;
        }
        self.trash.empty()
    }

    /// What the container has written.
    pub fn view_usage(&self, id: &str) -> Result<Usage> {
        check_id(id)?;
        let changes = self.views().join(id).join("changes");
        if changes.is_dir() { Usage::of_tree(&changes) } else { Ok(Usage::default()) }
    }

    fn view_of(&self, id: &str, lease: &ViewLease) -> ImageView {
        let mut lower: Vec<_> =
            lease.chain_ids.iter().rev().map(|chain| self.snapshots.files(chain)).collect();
        // Overlayfs needs one lower layer, and two different ones without an upper layer.
        let wanted = if lease.writable { 1 } else { 2 };
        for spare in ["empty", "hollow"].into_iter().take(wanted - lower.len().min(wanted)) {
            lower.push(self.root.join(spare));
        }
        let dir = self.views().join(id);
        let upper =
            lease.writable.then(|| Upper { changes: dir.join("changes"), work: dir.join("work") });
        let user_attributes = !UnpackRights::ours().machine;
        ImageView {
            id: id.to_owned(),
            image: lease.image,
            overlay: OverlayOptions { lower, upper, user_attributes, label: String::new() },
        }
    }
}

fn check_id(id: &str) -> Result<()> {
    let letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    let good = !id.is_empty()
        && id.len() <= MAX_ID_LENGTH
        && !id.starts_with('.')
        && id.bytes().all(letter);
    if good { Ok(()) } else { Err(Error::ViewName { id: id.chars().take(200).collect() }) }
}
