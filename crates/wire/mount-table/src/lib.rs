//! The kernel's mount table (`/proc/PID/mountinfo`), and its only parser.
//!
//! Rule: the table is bytes. A mount point may have any name, and one that is not UTF-8 hides no
//! other mount. A line that does not parse is skipped. Needs only std, since the pod supervisor
//! links it; decides nothing.
//!
//! upstream: `proc_pid_mountinfo(5)`

use std::borrow::Cow;
use std::cmp::Reverse;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

#[cfg(test)]
mod tests;

/// Where a process finds its own table.
pub const PATH: &str = "/proc/self/mountinfo";

/// A whole table, as the kernel wrote it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MountTable {
    bytes: Vec<u8>,
}

/// One mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountInfo<'table> {
    /// The part of the file system that is mounted.
    pub root: Cow<'table, Path>,
    /// Where it is mounted.
    pub point: Cow<'table, Path>,
    /// Its propagation.
    pub propagation_type: PropagationType,
    /// The file system's type, such as `tmpfs`.
    pub kind: Cow<'table, OsStr>,
    /// The device or name that was mounted; may be empty.
    pub source: Cow<'table, OsStr>,
    /// The file system's own options, separated by commas.
    options: Cow<'table, OsStr>,
}

/// Propagation of a mount.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PropagationType {
    #[default]
    Private,
    /// Receives from its master, and does not propagate.
    Slave,
    /// Propagates to its peers; it may have a master as well.
    Shared,
}

impl MountTable {
    /// The mounts that this process sees.
    pub fn read() -> io::Result<Self> {
        std::fs::read(PATH).map(Self::from)
    }

    /// The mounts in the table's order: of several at one point the last is on top.
    pub fn mounts(&self) -> impl Iterator<Item = MountInfo<'_>> {
        self.bytes.split(|byte| *byte == b'\n').filter_map(MountInfo::parse)
    }

    /// Mount points at and below a real path, the deepest and latest first: the order to unmount
    /// them in. A point that is mounted on twice is listed twice.
    pub fn beneath(&self, path: &Path) -> Vec<PathBuf> {
        let points = self.mounts().map(|mount| mount.point);
        let below = points.filter(|point| point.starts_with(path));
        let mut found: Vec<PathBuf> = below.map(Cow::into_owned).collect();
        found.reverse();
        found.sort_by_key(|point| Reverse(point.as_os_str().len()));
        found
    }

    /// The mount that a real path is on: the longest mount point above it, and of several at one
    /// point the last.
    pub fn containing_mount(&self, path: &Path) -> Option<MountInfo<'_>> {
        let above = self.mounts().filter(|mount| path.starts_with(&mount.point));
        above.max_by_key(|mount| mount.point.components().count())
    }
}

impl<Bytes: Into<Vec<u8>>> From<Bytes> for MountTable {
    fn from(bytes: Bytes) -> Self {
        Self { bytes: bytes.into() }
    }
}

impl<'table> MountInfo<'table> {
    /// `36 35 98:0 /root /point rw,noatime shared:1 master:2 - ext3 /dev/root rw,errors=continue`,
    /// where the optional fields before the dash may be missing.
    fn parse(line: &'table [u8]) -> Option<Self> {
        let mut fields = line.split(|byte| *byte == b' ').skip(3);
        let root = path(fields.next()?);
        let point = path(fields.next()?);
        let optional: Vec<&[u8]> = fields.by_ref().skip(1).take_while(|f| *f != b"-").collect();
        let has = |tag: &[u8]| optional.iter().any(|field| field.starts_with(tag));
        let propagation_type = match (has(b"shared:"), has(b"master:")) {
            (true, _) => PropagationType::Shared,
            (false, true) => PropagationType::Slave,
            (false, false) => PropagationType::Private,
        };
        let kind = text(fields.next()?);
        let mut rest = || fields.next().map(text).unwrap_or_default();
        let (source, options) = (rest(), rest());
        Some(Self { root, point, propagation_type, kind, source, options })
    }

    /// Whether the file system's type has this name.
    pub fn is_of_type(&self, name: &str) -> bool {
        *self.kind == *name
    }

    /// The file system's own options, those with a value as `name=value`.
    pub fn options(&self) -> impl Iterator<Item = &OsStr> {
        self.options.as_bytes().split(|byte| *byte == b',').map(OsStr::from_bytes)
    }
}

fn path(field: &[u8]) -> Cow<'_, Path> {
    match text(field) {
        Cow::Borrowed(plain) => Cow::Borrowed(Path::new(plain)),
        Cow::Owned(plain) => Cow::Owned(PathBuf::from(plain)),
    }
}

/// Unescapes a field: space, tab, newline, backslash and hash are three octal digits.
fn text(field: &[u8]) -> Cow<'_, OsStr> {
    if !field.contains(&b'\\') {
        return Cow::Borrowed(OsStr::from_bytes(field));
    }
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let escaped = (*first == b'\\').then(|| octal(after)).flatten();
        let (byte, next) = escaped.unwrap_or((*first, after));
        plain.push(byte);
        rest = next;
    }
    Cow::Owned(OsString::from_vec(plain))
}

/// The byte of three octal digits, and the rest.
fn octal(text: &[u8]) -> Option<(u8, &[u8])> {
    let (digits, rest) = text.split_first_chunk::<3>()?;
    let value = digits.iter().try_fold(0_u16, |value, digit| {
        matches!(digit, b'0'..=b'7').then(|| value * 8 + u16::from(digit - b'0'))
    })?;
    Some((u8::try_from(value).ok()?, rest))
}
