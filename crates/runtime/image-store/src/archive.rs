//! Reads a tar stream, entry by entry, from an untrusted source.
//!
//! Headers are parsed by the `tar` crate; extended headers are applied here, because they must not
//! use unbounded memory, and because the size in an extended header must apply everywhere or
//! nowhere (readers that disagree about it see different files). Paths are returned as bytes,
//! checked only for length and NUL; resolving them safely is the caller's task.

use std::io::{self, Read};

use tar::{EntryType, Header};

use crate::compression::read_error;
use crate::error::{Error, Result};
use crate::limits::Limits;

mod extension;
#[cfg(test)]
mod tests;

use extension::Extension;

const BLOCK: usize = 512;

/// One entry, with its extended headers applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TarEntry {
    pub path: Vec<u8>,
    pub kind: TarEntryKind,
    pub mode: u32,
    pub user: u32,
    pub group: u32,
    /// Seconds and nanoseconds.
    pub modified: (i64, u32),
    /// The file's size, holes included.
    pub size: u64,
    pub attributes: Vec<(Vec<u8>, Vec<u8>)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TarEntryKind {
    File,
    /// A file with holes: offset and length of each piece of data.
    Sparse(Vec<(u64, u64)>),
    Dir,
    Symlink(Vec<u8>),
    HardLink(Vec<u8>),
    CharacterDevice {
        major: u32,
        minor: u32,
    },
    BlockDevice {
        major: u32,
        minor: u32,
    },
    Fifo,
}

/// The entries of a tar stream. Reading from this value gives the data of the last entry returned.
pub struct TarEntries<'a, R> {
    what: String,
    reader: R,
    limits: &'a Limits,
    count: u64,
    allowed: u64,
    /// For the current entry: unread data, and the padding of its last block.
    left: u64,
    padding: u64,
    ended: bool,
}

impl<'a, R: Read> TarEntries<'a, R> {
    /// `what` names the stream in errors; `allowed` is the maximum number of entries.
    pub fn new(what: &str, reader: R, limits: &'a Limits, allowed: u64) -> Self {
        Self {
            what: what.to_owned(),
            reader,
            limits,
            count: 0,
            allowed,
            left: 0,
            padding: 0,
            ended: false,
        }
    }

    /// The next entry; skips unread data of the current one.
    pub fn next_entry(&mut self) -> Result<Option<TarEntry>> {
        let mut extension = Extension::default();
        loop {
            self.skip(self.left + self.padding)?;
            (self.left, self.padding) = (0, 0);
            let Some(header) = self.header()? else {
                if extension.is_empty() {
                    return Ok(None);
                }
                return Err(self.wrong("ends after an extended header, before its entry"));
            };
            let size = self.field("size", header.entry_size())?;
            match header.entry_type() {
                EntryType::GNULongName => extension.path = Some(self.long_name(size)?),
                EntryType::GNULongLink => extension.link = Some(self.long_name(size)?),
                EntryType::XHeader => {
                    let records = self.small_data("extended header", size)?;
                    extension.read(&records).map_err(|reason| self.wrong(reason))?;
                }
                EntryType::XGlobalHeader => self.expect_data(size)?,
                _ => return self.entry(&header, size, extension).map(Some),
            }
        }
    }

    /// Reads the rest of the stream after the last entry: padding, which the digest covers.
    pub(crate) fn drain(mut self) -> Result<()> {
        io::copy(&mut self.reader, &mut io::sink())
            .map_err(|error| read_error(&self.what, &error))?;
        Ok(())
    }

    fn entry(&mut self, header: &Header, size: u64, extension: Extension) -> Result<TarEntry> {
        self.count += 1;
        Limits::check(|| format!("{}: entries", self.what), self.count, self.allowed)?;
        let path = extension.path.unwrap_or_else(|| header.path_bytes().into_owned());
        self.check_name("path", &path)?;
        let name = String::from_utf8_lossy(&path).into_owned();
        let size = extension.size.unwrap_or(size);
        let link = |this: &Self| {
            let link = extension.link.clone();
            let link = link.or_else(|| header.link_name_bytes().map(std::borrow::Cow::into_owned));
            let link = link.unwrap_or_default();
            this.check_name("link", &link)?;
            Ok::<_, Error>(link)
        };
        let device = |this: &Self| {
            let number = |field, value: io::Result<Option<u32>>| {
                Ok::<_, Error>(this.field(field, value)?.unwrap_or(0))
            };
            Ok::<_, Error>((
                number("major", header.device_major())?,
                number("minor", header.device_minor())?,
            ))
        };
        let mut real_size = 0;
        let kind = match header.entry_type() {
            // Formats without a directory type mark a directory by a final slash.
            EntryType::Regular if path.ends_with(b"/") && size == 0 => TarEntryKind::Dir,
            EntryType::Regular if path.ends_with(b"/") => {
                // Readers disagree whether data follows such an entry.
                return Err(self.wrong(format!("file {name:?} has data and a folder's name")));
            }
            EntryType::Regular | EntryType::Continuous => {
                real_size = size;
                TarEntryKind::File
            }
            EntryType::GNUSparse => {
                let (pieces, whole) = self.sparse_map(header, size)?;
                real_size = whole;
                TarEntryKind::Sparse(pieces)
            }
            EntryType::Directory => TarEntryKind::Dir,
            EntryType::Symlink => TarEntryKind::Symlink(link(self)?),
            EntryType::Link => TarEntryKind::HardLink(link(self)?),
            EntryType::Char => {
                let (major, minor) = device(self)?;
                TarEntryKind::CharacterDevice { major, minor }
            }
            EntryType::Block => {
                let (major, minor) = device(self)?;
                TarEntryKind::BlockDevice { major, minor }
            }
            EntryType::Fifo => TarEntryKind::Fifo,
            other => {
                let byte = char::from(other.as_byte());
                return Err(self.wrong(format!("entry {name:?} is of unknown type {byte:?}")));
            }
        };
        // Links, directories and devices have no data, whatever their size field says.
        if matches!(kind, TarEntryKind::File | TarEntryKind::Sparse(_)) {
            self.expect_data(size)?;
        }
        let owner = |field, extended: Option<u64>, plain: io::Result<u64>| {
            let id = match extended {
                Some(id) => id,
                None => self.field(field, plain)?,
            };
            u32::try_from(id)
                .ok()
                .filter(|id| *id != u32::MAX)
                .ok_or_else(|| self.wrong(format!("entry {name:?}: {field} {id} is no owner")))
        };
        let plain_time = self.field("time", header.mtime())?;
        Ok(TarEntry {
            kind,
            mode: self.field("mode", header.mode())? & 0o7777,
            user: owner("user", extension.user, header.uid())?,
            group: owner("group", extension.group, header.gid())?,
            modified: extension
                .modified
                .unwrap_or_else(|| (i64::try_from(plain_time).unwrap_or(0), 0)),
            size: real_size,
            attributes: extension.attributes,
            path,
        })
    }

    /// The map of a sparse file: four pieces in the header, more in blocks that follow.
    fn sparse_map(&mut self, header: &Header, stored: u64) -> Result<(Vec<(u64, u64)>, u64)> {
        let Some(gnu) = header.as_gnu() else {
            return Err(self.wrong("a sparse entry has no GNU header"));
        };
        let whole = self.field("real size", gnu.real_size())?;
        let mut pieces = Vec::new();
        for piece in gnu.sparse.iter().filter(|piece| !piece.is_empty()) {
            pieces.push((
                self.field("sparse", piece.offset())?,
                self.field("sparse", piece.length())?,
            ));
        }
        let mut more = gnu.is_extended();
        while more {
            let mut block = tar::GnuExtSparseHeader::new();
            self.read_exact(block.as_mut_bytes())?;
            for piece in block.sparse().iter().filter(|piece| !piece.is_empty()) {
                pieces.push((
                    self.field("sparse", piece.offset())?,
                    self.field("sparse", piece.length())?,
                ));
            }
            let map_bytes = pieces.len() as u64 * 16;
            let limit = self.limits.extension_bytes;
            Limits::check(|| format!("{}: map of a sparse file", self.what), map_bytes, limit)?;
            more = block.is_extended();
        }
        let (mut at, mut data) = (0_u64, 0_u64);
        for (offset, length) in &pieces {
            let end = offset.checked_add(*length).filter(|end| *offset >= at && *end <= whole);
            at = end.ok_or_else(|| self.wrong("the map of a sparse file is out of order"))?;
            data += length;
        }
        if data != stored {
            return Err(self.wrong("the map of a sparse file and its data differ in size"));
        }
        Ok((pieces, whole))
    }

    /// The next header block; `None` at the end of the archive.
    fn header(&mut self) -> Result<Option<Header>> {
        if self.ended {
            return Ok(None);
        }
        let Some(block) = self.block()? else {
            // Some writers leave out the end marker; the digest shows whether bytes are missing.
            self.ended = true;
            return Ok(None);
        };
        if block.iter().all(|byte| *byte == 0) {
            self.ended = true;
            return match self.block()? {
                Some(second) if second.iter().any(|byte| *byte != 0) => {
                    Err(self.wrong("has an empty header before its end"))
                }
                _ => Ok(None),
            };
        }
        let header = Header::from_byte_slice(&block).clone();
        let sum: u32 = block
            .iter()
            .enumerate()
            .map(|(at, byte)| if (148..156).contains(&at) { 32 } else { u32::from(*byte) })
            .sum();
        if header.cksum().ok() != Some(sum) {
            return Err(self.wrong("is no tar: a header's checksum is wrong"));
        }
        Ok(Some(header))
    }

    /// A whole block, or `None` at a clean end of the stream.
    fn block(&mut self) -> Result<Option<[u8; BLOCK]>> {
        let mut block = [0; BLOCK];
        let mut filled = 0;
        while filled < BLOCK {
            match self.reader.read(&mut block[filled..]) {
                Ok(0) if filled == 0 => return Ok(None),
                Ok(0) => return Err(self.wrong("ends in the middle: it is truncated")),
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(read_error(&self.what, &error)),
            }
        }
        Ok(Some(block))
    }

    fn expect_data(&mut self, size: u64) -> Result<()> {
        if size > u64::MAX - BLOCK as u64 {
            return Err(self.wrong(format!("an entry claims {size} bytes")));
        }
        self.left = size;
        self.padding = size.next_multiple_of(BLOCK as u64) - size;
        Ok(())
    }

    fn small_data(&mut self, kind: &str, size: u64) -> Result<Vec<u8>> {
        let limit = self.limits.extension_bytes;
        Limits::check(|| format!("{}: {kind}", self.what), size, limit)?;
        self.expect_data(size)?;
        let mut bytes = Vec::new();
        self.read_to_end(&mut bytes).map_err(|error| read_error(&self.what, &error))?;
        Ok(bytes)
    }

    fn long_name(&mut self, size: u64) -> Result<Vec<u8>> {
        let mut name = self.small_data("long name", size)?;
        while name.last() == Some(&0) {
            name.pop();
        }
        Ok(name)
    }

    fn check_name(&self, kind: &str, name: &[u8]) -> Result<()> {
        let shown = || String::from_utf8_lossy(&name[..name.len().min(200)]).into_owned();
        let limit = self.limits.path_bytes as u64;
        Limits::check(
            || format!("{}: {kind} {:?}…: bytes", self.what, shown()),
            name.len() as u64,
            limit,
        )?;
        if name.is_empty() {
            return Err(self.wrong(format!("has an entry with an empty {kind}")));
        }
        if name.contains(&0) {
            return Err(self.wrong(format!("{kind} {:?} has a NUL byte", shown())));
        }
        Ok(())
    }

    fn skip(&mut self, mut count: u64) -> Result<()> {
        let mut buffer = [0; 16 << 10];
        while count > 0 {
            let part = buffer.len().min(usize::try_from(count).unwrap_or(usize::MAX));
            self.read_exact(&mut buffer[..part])?;
            count -= part as u64;
        }
        Ok(())
    }

    fn read_exact(&mut self, buffer: &mut [u8]) -> Result<()> {
        self.reader.read_exact(buffer).map_err(|error| read_error(&self.what, &error))
    }

    fn field<T>(&self, name: &str, value: io::Result<T>) -> Result<T> {
        value.map_err(|error| self.wrong(format!("a header's {name} is wrong: {error}")))
    }

    fn wrong(&self, reason: impl Into<String>) -> Error {
        Error::archive(&self.what, reason)
    }
}

/// The data of the current entry.
impl<R: Read> Read for TarEntries<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 || buffer.is_empty() {
            return Ok(0);
        }
        let end = buffer.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let read = self.reader.read(&mut buffer[..end])?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.left -= read as u64;
        Ok(read)
    }
}
