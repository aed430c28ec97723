//! Unpacks a layer's tar into a directory for overlayfs: files, owners, times, attributes,
//! whiteouts.
//!
//! Layers are unpacked independently and in parallel. What depends on the layers below is done
//! later by [`crate::snapshot`]: directories that the layer only implies, and whiteouts of missing
//! files. Markers are translated: `.wh.NAME` becomes a 0/0 character device, the opaque marker an
//! attribute of its directory. No other entry may control overlayfs: its attributes are dropped and
//! a 0/0 device is refused.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{Read, Seek as _, SeekFrom, Write as _};
use std::os::fd::OwnedFd;

use rustix::fs::{
    AtFlags, FileType, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags, chmodat, chownat, fchmod,
    fchown, fsetxattr, futimens, makedev, utimensat,
};
use rustix::io::Errno;

use crate::archive::{TarEntries, TarEntry, TarEntryKind};
use crate::compression::{LayerDecoder, LimitedReader, read_error};
use crate::digest::{Digest, HashingReader};
use crate::error::{Error, PathContext as _, Result};
use crate::limits::Limits;
use crate::progress::{ProgressListener, ProgressStep, StepThrottle};
use crate::tree::{Tree, TreePath};

#[cfg(test)]
mod hostile;
#[cfg(test)]
mod tests;

const WHITEOUT: &[u8] = b".wh.";
/// Names reserved by older layer formats.
const WHITEOUT_META: &[u8] = b".wh..wh.";
const OPAQUE: &[u8] = b".wh..wh..opq";

/// Which privileged operations are possible here; they decide the form of overlayfs attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UnpackRights {
    /// Set owners: root, also in a user namespace.
    pub(crate) owners: bool,
    /// Create devices and use `trusted.` attributes: only root in the initial user namespace.
    pub(crate) machine: bool,
}

impl UnpackRights {
    pub(crate) fn ours() -> Self {
        let owners = rustix::process::geteuid().is_root();
        // The initial namespace has the identity mapping; without /proc it is assumed.
        let map = std::fs::read_to_string("/proc/self/uid_map");
        let initial = map.map_or(true, |map| map.split_whitespace().eq(["0", "0", "4294967295"]));
        Self { owners, machine: owners && initial }
    }

    pub(crate) fn opaque_attribute(self) -> &'static str {
        if self.machine { "trusted.overlay.opaque" } else { "user.overlay.opaque" }
    }
}

/// Result of unpacking a layer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Unpacked {
    pub(crate) entries: u64,
    /// Bytes of the tar.
    pub(crate) bytes: u64,
    /// Attributes and device nodes that were left out as unsupported or not allowed.
    pub(crate) left_out: u64,
    pub(crate) implied: Vec<TreePath>,
    pub(crate) whiteouts: BTreeSet<TreePath>,
}

/// One layer to unpack.
pub(crate) struct LayerUnpack<'a, R> {
    pub(crate) blob: R,
    pub(crate) diff_id: Digest,
    /// The lowest layer has nothing to hide.
    pub(crate) lowest: bool,
    pub(crate) limits: &'a Limits,
    pub(crate) progress: &'a dyn ProgressListener,
}

/// Unpacks one layer, compressed or not, into an empty directory without a store and without
/// verifying its digest. Returns the number of its entries.
pub fn unpack_layer(apply: &std::path::Path, bytes: &[u8], limits: &Limits) -> Result<u64> {
    let mut plain = Vec::new();
    LimitedReader::new(LayerDecoder::new("a layer", bytes)?, limits.layer_bytes)
        .read_to_end(&mut plain)
        .map_err(|error| read_error("a layer", &error))?;
    let layer = LayerUnpack {
        blob: bytes,
        diff_id: Digest::of(&plain),
        lowest: false,
        limits,
        progress: &crate::progress::NoProgress,
    };
    let unpacked = layer.unpack(&mut Tree::open(apply, limits)?, UnpackRights::ours())?;
    Ok(unpacked.entries)
}

impl<R: Read> LayerUnpack<'_, R> {
    /// Unpacks into the empty `tree`; verifies the digest of the whole stream.
    pub(crate) fn unpack(self, tree: &mut Tree, rights: UnpackRights) -> Result<Unpacked> {
        let what = format!("layer {}", self.diff_id);
        let plain =
            LimitedReader::new(LayerDecoder::new(&what, self.blob)?, self.limits.layer_bytes);
        let mut hashed = ProgressReader {
            inner: HashingReader::new(plain),
            throttle: StepThrottle::default(),
            progress: self.progress,
            diff_id: self.diff_id,
        };
        let mut entries =
            TarEntries::new(&what, &mut hashed, self.limits, self.limits.layer_entries);
        let mut unpacking = Unpacking {
            tree,
            rights,
            limits: self.limits,
            lowest: self.lowest,
            found: Unpacked::default(),
            dirs: BTreeMap::new(),
            opaque: BTreeSet::new(),
            declared_bytes: 0,
        };
        while let Some(entry) = entries.next_entry()? {
            unpacking.apply(entry, &mut entries)?;
        }
        entries.drain()?;
        let mut unpacked = unpacking.finish()?;
        unpacked.bytes = hashed.inner.count();
        let found = hashed.inner.finish();
        if found != self.diff_id {
            return Err(Error::DiffIdMismatch { expected: self.diff_id, found });
        }
        Ok(unpacked)
    }
}

/// Reports progress on the tar stream.
struct ProgressReader<'a, R> {
    inner: HashingReader<R>,
    throttle: StepThrottle,
    progress: &'a dyn ProgressListener,
    diff_id: Digest,
}

impl<R: Read> Read for ProgressReader<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.inner.read(buffer)?;
        let done = self.inner.count();
        if self.throttle.is_due(done) {
            self.progress.step(ProgressStep::Unpacking { diff_id: self.diff_id, done });
        }
        Ok(read)
    }
}

struct Unpacking<'a> {
    tree: &'a mut Tree,
    rights: UnpackRights,
    limits: &'a Limits,
    lowest: bool,
    found: Unpacked,
    /// Applied at the end: a write into a directory changes its time, and its mode may forbid one.
    dirs: BTreeMap<TreePath, TarEntry>,
    opaque: BTreeSet<TreePath>,
    /// Sum of file sizes; holes take no room in the stream but count here.
    declared_bytes: u64,
}

impl Unpacking<'_> {
    fn apply(&mut self, entry: TarEntry, data: &mut impl Read) -> Result<()> {
        self.found.entries += 1;
        let path = TreePath::parse(&entry.path, self.limits)?;
        if let Some(marker) = Marker::of(&path)? {
            return self.apply_marker(marker);
        }
        if path.is_root() {
            if entry.kind != TarEntryKind::Dir {
                return Err(Error::archive("the layer's root", "is no folder"));
            }
            self.dirs.insert(path, entry);
            return Ok(());
        }
        let hidden = self.found.whiteouts.remove(&path);
        if entry.kind == TarEntryKind::Dir {
            self.tree.create_dir(&path)?;
            if hidden {
                self.opaque.insert(path.clone());
            }
            self.dirs.insert(path, entry);
            return Ok(());
        }
        // A directory, with everything below it, was replaced by another entry.
        if self.dirs.remove(&path).is_some() {
            self.dirs.retain(|other, _| !other.parts().starts_with(path.parts()));
        }
        match &entry.kind {
            TarEntryKind::Dir => {}
            TarEntryKind::File | TarEntryKind::Sparse(_) => self.file(&path, &entry, data)?,
            TarEntryKind::Symlink(target) => {
                let dir = self.tree.create_symlink(&path, target)?;
                self.set_link_metadata(&dir, &path, &entry)?;
            }
            TarEntryKind::HardLink(target) => {
                let target = TreePath::parse(target, self.limits)?;
                self.tree.create_hard_link(&path, &target)?;
            }
            TarEntryKind::CharacterDevice { major, minor } => {
                if (*major, *minor) == (0, 0) {
                    return Err(Error::archive(
                        format!("device {:?}", path.relative()),
                        "is 0/0, which overlayfs would take for a whiteout",
                    ));
                }
                let device = makedev(*major, *minor);
                self.device(&path, &entry, FileType::CharacterDevice, device)?;
            }
            TarEntryKind::BlockDevice { major, minor } => {
                self.device(&path, &entry, FileType::BlockDevice, makedev(*major, *minor))?;
            }
            TarEntryKind::Fifo => self.node(&path, &entry, FileType::Fifo, 0)?,
        }
        Ok(())
    }

    fn file(&mut self, path: &TreePath, entry: &TarEntry, data: &mut impl Read) -> Result<()> {
        self.declared_bytes = self.declared_bytes.saturating_add(entry.size);
        Limits::check(
            || format!("file {:?} and those before it: bytes", path.relative()),
            self.declared_bytes,
            self.limits.layer_bytes,
        )?;
        let mut file = self.tree.create_file(path)?;
        let what = format!("file {:?}", path.relative());
        if let TarEntryKind::Sparse(pieces) = &entry.kind {
            file.set_len(entry.size).doing("sizing", &self.tree.at(path))?;
            for (offset, length) in pieces {
                file.seek(SeekFrom::Start(*offset)).doing("seeking", &self.tree.at(path))?;
                self.copy(&what, &mut data.take(*length), &mut file, path)?;
            }
        } else {
            self.copy(&what, data, &mut file, path)?;
        }
        self.set_metadata(&OwnedFd::from(file), path, entry)
    }

    fn copy(&self, what: &str, from: &mut impl Read, to: &mut File, path: &TreePath) -> Result<()> {
        let mut buffer = [0; 64 << 10];
        loop {
            let read = match from.read(&mut buffer) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                other => other.map_err(|error| read_error(what, &error))?,
            };
            if read == 0 {
                return Ok(());
            }
            to.write_all(&buffer[..read]).doing("writing", &self.tree.at(path))?;
        }
    }

    fn device(
        &mut self,
        path: &TreePath,
        entry: &TarEntry,
        kind: FileType,
        device: u64,
    ) -> Result<()> {
        if !self.rights.machine {
            self.tree.clear(path)?;
            self.found.left_out += 1;
            return Ok(());
        }
        self.node(path, entry, kind, device)
    }

    fn node(
        &mut self,
        path: &TreePath,
        entry: &TarEntry,
        kind: FileType,
        device: u64,
    ) -> Result<()> {
        let dir = self.tree.create_node(path, kind, device)?;
        self.found.left_out += entry.attributes.len() as u64;
        if self.rights.owners {
            let (user, group) = (Uid::from_raw(entry.user), Gid::from_raw(entry.group));
            let flags = AtFlags::SYMLINK_NOFOLLOW;
            chownat(&dir, path.name(), Some(user), Some(group), flags)
                .doing("owner of", &self.tree.at(path))?;
        }
        let mode = Mode::from_raw_mode(entry.mode);
        chmodat(&dir, path.name(), mode, AtFlags::empty()).doing("mode of", &self.tree.at(path))?;
        utimensat(&dir, path.name(), &times(entry), AtFlags::SYMLINK_NOFOLLOW)
            .doing("time of", &self.tree.at(path))
    }

    /// Owner, attributes, mode and time, in an order in which the kernel keeps them: changing the
    /// owner clears capabilities and the setuid bit.
    fn set_metadata(&mut self, file: &OwnedFd, path: &TreePath, entry: &TarEntry) -> Result<()> {
        if self.rights.owners {
            let (user, group) = (Uid::from_raw(entry.user), Gid::from_raw(entry.group));
            fchown(file, Some(user), Some(group)).doing("owner of", &self.tree.at(path))?;
        }
        fchmod(file, Mode::from_raw_mode(entry.mode)).doing("mode of", &self.tree.at(path))?;
        for (name, value) in &entry.attributes {
            if !allowed_attribute(name) {
                self.found.left_out += 1;
                continue;
            }
            match fsetxattr(file, name.as_slice(), value, XattrFlags::empty()) {
                Ok(()) => {}
                // The file system does not support the attribute, or setting it needs more
                // privileges.
                Err(Errno::NOTSUP | Errno::PERM) => self.found.left_out += 1,
                Err(error) => {
                    return Err(error).doing("attributes of", &self.tree.at(path));
                }
            }
        }
        futimens(file, &times(entry)).doing("time of", &self.tree.at(path))
    }

    fn set_link_metadata(&self, dir: &OwnedFd, path: &TreePath, entry: &TarEntry) -> Result<()> {
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        if self.rights.owners {
            let (user, group) = (Uid::from_raw(entry.user), Gid::from_raw(entry.group));
            chownat(dir, path.name(), Some(user), Some(group), flags)
                .doing("owner of", &self.tree.at(path))?;
        }
        utimensat(dir, path.name(), &times(entry), flags).doing("time of", &self.tree.at(path))
    }

    fn apply_marker(&mut self, marker: Marker) -> Result<()> {
        match marker {
            _ if self.lowest => Ok(()),
            Marker::Ignored => Ok(()),
            Marker::Opaque(dir) => {
                self.tree.parent(&dir.child(b"x"))?;
                self.opaque.insert(dir);
                Ok(())
            }
            Marker::Whiteout(path) => {
                // The marker applies to the layers below; files of this layer stay.
                if let Some(stat) = self.tree.stat(&path)? {
                    if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
                        self.opaque.insert(path);
                    }
                    return Ok(());
                }
                self.tree.create_node(&path, FileType::CharacterDevice, makedev(0, 0))?;
                self.found.whiteouts.insert(path);
                Ok(())
            }
        }
    }

    /// Sets owners, modes and times of directories, the deepest first.
    fn finish(mut self) -> Result<Unpacked> {
        for path in std::mem::take(&mut self.opaque) {
            if let Some(dir) = self.tree.open_dir(&path)? {
                let name = self.rights.opaque_attribute();
                fsetxattr(&dir, name, b"y", XattrFlags::empty())
                    .doing("opaque attribute of", &self.tree.at(&path))?;
            }
        }
        let dirs = std::mem::take(&mut self.dirs);
        let implied = self.tree.take_implied_dirs();
        self.found.implied = implied.into_iter().filter(|path| !dirs.contains_key(path)).collect();
        if !dirs.contains_key(&TreePath::default()) {
            self.found.implied.push(TreePath::default());
        }
        for (path, entry) in dirs.iter().rev() {
            if let Some(dir) = self.tree.open_dir(path)? {
                self.set_metadata(&dir, path, entry)?;
            }
        }
        Ok(self.found)
    }
}

/// An entry that hides files of the layers below.
enum Marker {
    Whiteout(TreePath),
    Opaque(TreePath),
    Ignored,
}

impl Marker {
    fn of(path: &TreePath) -> Result<Option<Self>> {
        let Some((name, dirs)) = path.parts().split_last() else { return Ok(None) };
        if dirs.iter().chain([name]).any(|part| part.starts_with(WHITEOUT_META)) {
            return Ok(Some(if name == OPAQUE {
                Self::Opaque(path.parent())
            } else {
                Self::Ignored
            }));
        }
        let wrong =
            |reason: &str| Error::archive(format!("whiteout {:?}", path.relative()), reason);
        if dirs.iter().any(|part| part.starts_with(WHITEOUT)) {
            return Err(wrong("is a marker and cannot be a folder"));
        }
        match name.strip_prefix(WHITEOUT) {
            None => Ok(None),
            Some(b"" | b"." | b"..") => Err(wrong("names nothing that could be hidden")),
            Some(hidden) => Ok(Some(Self::Whiteout(path.parent().child(hidden)))),
        }
    }
}

/// Attributes that a layer may set on a file: capabilities, ACLs and `user.` attributes, never
/// those that overlayfs or a security module interprets.
pub(crate) fn allowed_attribute(name: &[u8]) -> bool {
    name == b"security.capability"
        || name == b"system.posix_acl_access"
        || name == b"system.posix_acl_default"
        || (name.starts_with(b"user.") && !name.starts_with(b"user.overlay."))
}

fn times(entry: &TarEntry) -> Timestamps {
    let (tv_sec, nanoseconds) = entry.modified;
    let time = Timespec { tv_sec, tv_nsec: nanoseconds.into() };
    Timestamps { last_access: time, last_modification: time }
}
