//! A plain directory as an image of one layer.
//!
//! The directory is packed into a tar that depends only on its content (sorted, no access times),
//! so the same directory gives the same image. Symlinks are kept, hard links are packed once;
//! sockets are left out, as in every image.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File, Metadata};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{lgetxattr, llistxattr, major, minor};
use tar::{Builder, EntryType, Header};

use super::{ImportOptions, Imported};
use crate::assemble::{ImageAssembly, NoSource};
use crate::error::{Error, PathContext as _, Result};
use crate::progress::{ProgressListener, ProgressStep};
use crate::spec::{Descriptor, OCI_LAYER};
use crate::store::ImageStore;

/// Longer attributes do not occur in images.
const MAX_ATTRIBUTE_LENGTH: usize = 64 << 10;

pub(super) fn import(
    store: &ImageStore,
    place: &Path,
    options: &ImportOptions,
    progress: &dyn ProgressListener,
) -> Result<Vec<Imported>> {
    let Some(name) = &options.name else {
        return Err(Error::archive(
            place.display().to_string(),
            "is a plain directory without an image name: give one",
        ));
    };
    let session = store.session()?;
    let mut ingest = store.content.begin_without_digest()?;
    pack(place, &mut ingest)?;
    let (manifest, size) = {
        // No collection may run between placing and protecting.
        let _held = store.shared_lock()?;
        let (digest, size) = ingest.commit()?;
        let config = serde_json::json!({
            "architecture": store.platform.architecture,
            "variant": store.platform.variant,
            "os": store.platform.os,
            "config": {},
            "rootfs": { "type": "layers", "diff_ids": [digest] },
        });
        let config = config.to_string().into_bytes();
        let config = (store.content.put(&config)?, config.len() as u64);
        let layer = Descriptor {
            media_type: OCI_LAYER.to_owned(),
            digest,
            size,
            platform: None,
            annotations: BTreeMap::new(),
        };
        let manifest = store.write_manifest(config, &[layer])?;
        session.protect(&[digest, config.0, manifest.digest])?;
        (manifest, size)
    };
    progress.step(ProgressStep::Received { digest: None, done: size, total: Some(size) });
    let names = vec![name.clone()];
    let naming = store.naming(&names, options);
    let record = ImageAssembly::new(store, &NoSource, progress)?.run(&manifest, &naming)?;
    Ok(vec![Imported { names, record }])
}

fn pack(place: &Path, into: impl Write) -> Result<()> {
    let builder = Builder::new(BufWriter::new(into));
    let mut packing = DirPacker { builder, links: BTreeMap::new() };
    packing.dir(place, Path::new(""))?;
    let finished = packing.builder.into_inner().and_then(|mut writer| writer.flush());
    finished.doing("packing", place)
}

struct DirPacker<W: Write> {
    builder: Builder<W>,
    /// Files with several links, by inode, with the first path found.
    links: BTreeMap<(u64, u64), PathBuf>,
}

impl<W: Write> DirPacker<W> {
    fn dir(&mut self, place: &Path, inside: &Path) -> Result<()> {
        let metadata = fs::symlink_metadata(place).doing("looking at", place)?;
        let mut header = header(&metadata, EntryType::Directory);
        let name = if inside.as_os_str().is_empty() { Path::new("./") } else { inside };
        self.attributes(place)?;
        self.builder.append_data(&mut header, name, io::empty()).doing("packing", place)?;
        let mut names: Vec<OsString> = Vec::new();
        for entry in fs::read_dir(place).doing("listing", place)? {
            names.push(entry.doing("listing", place)?.file_name());
        }
        names.sort();
        for name in names {
            let (place, inside) = (place.join(&name), inside.join(&name));
            let metadata = fs::symlink_metadata(&place).doing("looking at", &place)?;
            if metadata.is_dir() {
                self.dir(&place, &inside)?;
            } else if !metadata.file_type().is_socket() {
                self.other(&place, &inside, &metadata)?;
            }
        }
        Ok(())
    }

    fn other(&mut self, place: &Path, inside: &Path, metadata: &Metadata) -> Result<()> {
        if metadata.nlink() > 1 {
            let identity = (metadata.dev(), metadata.ino());
            if let Some(first) = self.links.get(&identity) {
                let mut header = header(metadata, EntryType::Link);
                let linked = self.builder.append_link(&mut header, inside, first);
                return linked.doing("packing", place);
            }
            self.links.insert(identity, inside.to_owned());
        }
        let kind = metadata.file_type();
        self.attributes(place)?;
        let packed = if kind.is_symlink() {
            let target = fs::read_link(place).doing("reading the link", place)?;
            let mut header = header(metadata, EntryType::Symlink);
            self.builder.append_link(&mut header, inside, target)
        } else if kind.is_file() {
            let mut header = header(metadata, EntryType::Regular);
            header.set_size(metadata.len());
            let file = File::open(place).doing("opening", place)?;
            self.builder.append_data(
                &mut header,
                inside,
                ExactReader { file, left: metadata.len() },
            )
        } else {
            let entry_type = match () {
                () if kind.is_char_device() => EntryType::Char,
                () if kind.is_block_device() => EntryType::Block,
                () => EntryType::Fifo,
            };
            let mut header = header(metadata, entry_type);
            header
                .set_device_major(major(metadata.rdev()))
                .and_then(|()| header.set_device_minor(minor(metadata.rdev())))
                .doing("packing", place)?;
            self.builder.append_data(&mut header, inside, io::empty())
        };
        packed.doing("packing", place)
    }

    /// Capabilities and `user.` attributes, as records before the entry.
    fn attributes(&mut self, place: &Path) -> Result<()> {
        let mut list = Vec::with_capacity(MAX_ATTRIBUTE_LENGTH);
        // The file system does not support attributes.
        if llistxattr(place, rustix::buffer::spare_capacity(&mut list)).is_err() {
            return Ok(());
        }
        let mut records = Vec::new();
        for name in list.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
            let kept = name == b"security.capability"
                || (name.starts_with(b"user.") && !name.starts_with(b"user.overlay."));
            let mut value = Vec::with_capacity(MAX_ATTRIBUTE_LENGTH);
            if kept
                && lgetxattr(place, name, rustix::buffer::spare_capacity(&mut value)).is_ok()
                && let Ok(name) = std::str::from_utf8(name)
            {
                records.push((format!("SCHILY.xattr.{name}"), value));
            }
        }
        records.sort();
        let records = records.iter().map(|(name, value)| (name.as_str(), value.as_slice()));
        if records.len() > 0 {
            self.builder.append_pax_extensions(records).doing("packing", place)?;
        }
        Ok(())
    }
}

fn header(metadata: &Metadata, kind: EntryType) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(metadata.mode() & 0o7777);
    header.set_uid(metadata.uid().into());
    header.set_gid(metadata.gid().into());
    header.set_mtime(u64::try_from(metadata.mtime()).unwrap_or(0));
    header.set_size(0);
    header
}

/// Reads exactly the size in the header: a file that changes meanwhile would shift all later
/// entries.
struct ExactReader {
    file: File,
    left: u64,
}

impl io::Read for ExactReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let end = buffer.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        if end == 0 {
            return Ok(0);
        }
        let read = self.file.read(&mut buffer[..end])?;
        if read == 0 {
            return Err(io::Error::other("the file became shorter while it was packed"));
        }
        self.left -= read as u64;
        Ok(read)
    }
}
