//! An OCI layout directory: an index, and the blobs that an image needs.
//!
//! Blobs are opened below the directory; a symlink that leads out of it is not followed.

use std::io::{Read, Seek as _, SeekFrom};
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, fstat, open, openat2};

use super::{ImportContext, ImportOptions, Imported, parse_index};
use crate::assemble::ContentSource;
use crate::error::{Error, PathContext as _, Result};
use crate::limits::Limits;
use crate::progress::ProgressListener;
use crate::spec::Descriptor;
use crate::store::ImageStore;

struct LayoutDir<'a> {
    place: &'a Path,
    dir: OwnedFd,
}

pub(super) fn import(
    store: &ImageStore,
    place: &Path,
    options: &ImportOptions,
    progress: &dyn ProgressListener,
) -> Result<Vec<Imported>> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = open(place, flags, Mode::empty()).doing("opening", place)?;
    let layout = LayoutDir { place, dir };
    let what = format!("{}: index.json", place.display());
    let mut bytes = Vec::new();
    let limit = store.limits.document_bytes;
    let file = layout.open("index.json")?;
    file.take(limit + 1).read_to_end(&mut bytes).doing("reading", &place.join("index.json"))?;
    Limits::check(|| format!("{what}: bytes"), bytes.len() as u64, limit)?;
    let index = parse_index(store, &what, &bytes)?;
    let context = ImportContext { options, progress };
    store.import_index(&place.display().to_string(), &index, &layout, context)
}

impl LayoutDir<'_> {
    fn open(&self, name: &str) -> Result<std::fs::File> {
        let place = self.place.join(name);
        // Opening a FIFO would block; the file type is checked before any read.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let file = openat2(&self.dir, name, flags, Mode::empty(), resolve);
        let file = file.doing("opening", &place)?;
        let stat = fstat(&file).doing("looking at", &place)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(Error::archive(place.display().to_string(), "is no regular file"));
        }
        Ok(file.into())
    }
}

impl ContentSource for LayoutDir<'_> {
    fn fetch(&self, descriptor: &Descriptor, offset: u64) -> Result<Box<dyn Read + '_>> {
        let name = format!("blobs/sha256/{}", descriptor.digest.hex());
        let mut file = self.open(&name)?;
        file.seek(SeekFrom::Start(offset)).doing("seeking", &self.place.join(&name))?;
        Ok(Box::new(file))
    }
}
