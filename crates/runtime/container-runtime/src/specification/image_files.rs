//! Files of an image that determine the container's users and groups.
//!
//! Rule: an image's files are read through a private mount that ends with its descriptor, beneath
//! the image's root whatever its links say, only if they are regular files, and only up to a limit:
//! `/etc/passwd` may be a FIFO, a link to the host, or four gigabytes.

use std::io::Read as _;
use std::os::fd::OwnedFd;

use image_store::OverlayOptions;
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, fstat, open, openat2};

use crate::failure::{CallContext as _, CriError, Result};

/// Real files have a few kilobytes.
const MAX_SIZE: u64 = 8 << 20;

/// An image's files, read-only.
#[derive(Debug)]
pub(crate) struct ImageFiles {
    root: OwnedFd,
}

impl ImageFiles {
    /// Opens the lower layers of an overlay: the image itself.
    pub(crate) fn open(overlay: &OverlayOptions) -> Result<Self> {
        let root = match overlay.lower.as_slice() {
            [] => return Err(CriError::plain("the image has no layer")),
            [only] => {
                let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
                open(only, flags, Mode::empty()).doing(format!("opening {}", only.display()))?
            }
            lower => {
                let lower = OverlayOptions {
                    lower: lower.to_vec(),
                    upper: None,
                    user_attributes: overlay.user_attributes,
                    label: String::new(),
                };
                image_store::detached_overlay(&lower).doing("mounting the image's layers")?
            }
        };
        Ok(Self { root })
    }

    #[cfg(test)]
    pub(crate) fn of_dir(dir: &std::path::Path) -> Self {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Self { root: open(dir, flags, Mode::empty()).unwrap() }
    }

    /// A text file of the image; none if it does not exist.
    pub(crate) fn read(&self, path: &str) -> Result<Option<String>> {
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = match openat2(&self.root, path, flags, Mode::empty(), resolve) {
            Ok(file) => file,
            Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR | rustix::io::Errno::LOOP) => {
                return Ok(None);
            }
            Err(error) => return Err(error).doing(format!("opening {path} of the image")),
        };
        let status = fstat(&file).doing(format!("looking at {path} of the image"))?;
        if FileType::from_raw_mode(status.st_mode) != FileType::RegularFile {
            return Err(CriError::plain(format!("{path} of the image is no plain file")));
        }
        let mut bytes = Vec::new();
        std::fs::File::from(file)
            .take(MAX_SIZE + 1)
            .read_to_end(&mut bytes)
            .doing(format!("reading {path} of the image"))?;
        if bytes.len() as u64 > MAX_SIZE {
            return Err(CriError::plain(format!("{path} of the image has over {MAX_SIZE} bytes")));
        }
        Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_the_image_never_leads_out_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir(at("etc")).unwrap();
        std::fs::write(at("etc/passwd"), "root:x:0:0\n").unwrap();
        std::os::unix::fs::symlink("/proc/self/environ", at("etc/out")).unwrap();
        std::os::unix::fs::symlink("../../../../../../etc/hostname", at("etc/up")).unwrap();
        std::os::unix::fs::symlink("loop", at("etc/loop")).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            at("etc/pipe"),
            FileType::Fifo,
            Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        std::fs::File::create(at("etc/large")).unwrap().set_len(MAX_SIZE + 1).unwrap();
        let files = ImageFiles::of_dir(dir.path());
        assert_eq!(files.read("etc/passwd").unwrap().as_deref(), Some("root:x:0:0\n"));
        for missing in ["etc/out", "etc/up", "etc/loop", "etc/none", "etc/passwd/x"] {
            assert_eq!(files.read(missing).unwrap(), None, "{missing}");
        }
        for refused in ["etc/pipe", "etc/large", "etc"] {
            assert!(files.read(refused).is_err(), "{refused}");
        }
    }
}
