//! The machine's mounts, as far as propagation goes. Reading is apart from parsing.
//!
//! upstream: proc_pid_mountinfo(5)

use std::path::{Path, PathBuf};

use crate::failure::{Doing as _, Result};

/// How a mount takes part in propagation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sharing {
    Private,
    Slave,
    Shared,
}

#[derive(Debug)]
pub(crate) struct MountTable {
    mounts: Vec<(PathBuf, Sharing)>,
}

impl MountTable {
    pub(crate) fn read() -> Result<Self> {
        let path = "/proc/self/mountinfo";
        // Others may mount at names that are no text.
        let bytes = std::fs::read(path).doing(format!("reading {path}"))?;
        Ok(Self::parse(&String::from_utf8_lossy(&bytes)))
    }

    pub(crate) fn parse(text: &str) -> Self {
        let mounts = text
            .lines()
            .filter_map(|line| {
                let mut words = line.split(' ').skip(4);
                let place = PathBuf::from(unescaped(words.next()?));
                let optional: Vec<&str> = words.skip(1).take_while(|word| *word != "-").collect();
                let has = |tag: &str| optional.iter().any(|word| word.starts_with(tag));
                let sharing = match (has("shared:"), has("master:")) {
                    (true, _) => Sharing::Shared,
                    (false, true) => Sharing::Slave,
                    (false, false) => Sharing::Private,
                };
                Some((place, sharing))
            })
            .collect();
        Self { mounts }
    }

    /// The places at and below a path, the innermost first; one that is mounted on twice is there
    /// twice.
    pub(crate) fn beneath(&self, path: &Path) -> Vec<&Path> {
        let all = self.mounts.iter().map(|(place, _)| place.as_path());
        let mut places: Vec<&Path> = all.filter(|place| place.starts_with(path)).collect();
        places.sort_by_key(|place| std::cmp::Reverse(place.as_os_str().len()));
        places
    }

    /// The mount that a path is on, and its sharing; the last one at a place counts.
    pub(crate) fn of(&self, path: &Path) -> (PathBuf, Sharing) {
        let mut best = (PathBuf::from("/"), Sharing::Private);
        let mut longest = 0;
        for (place, sharing) in &self.mounts {
            let length = place.components().count();
            if path.starts_with(place) && length >= longest {
                longest = length;
                best = (place.clone(), *sharing);
            }
        }
        best
    }
}

/// Spaces and the like are written as octal numbers.
fn unescaped(text: &str) -> String {
    let mut out = Vec::new();
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let number = (bytes[at] == b'\\')
            .then(|| text.get(at + 1..at + 4))
            .flatten()
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match number {
            Some(byte) => {
                out.push(byte);
                at += 4;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_place_counts_and_the_last_of_equals() {
        let table = MountTable::parse(
            "1 0 8:1 / / rw - ext4 x rw\n\
             2 1 8:2 / /mnt rw shared:5 - ext4 x rw\n\
             3 2 8:3 / /mnt/a\\040b rw master:7 - ext4 x rw\n\
             4 1 8:4 / /twice rw shared:1 - t t rw\n\
             5 4 8:5 / /twice rw - t t rw\n",
        );
        for (path, place, sharing) in [
            ("/etc", "/", Sharing::Private),
            ("/mnt/x", "/mnt", Sharing::Shared),
            ("/mnt/a b/c", "/mnt/a b", Sharing::Slave),
            ("/mntx", "/", Sharing::Private),
            ("/twice/x", "/twice", Sharing::Private),
        ] {
            assert_eq!(table.of(Path::new(path)), (PathBuf::from(place), sharing), "{path}");
        }
        assert_eq!(table.beneath(Path::new("/mnt")), ["/mnt/a b", "/mnt"].map(Path::new));
        assert_eq!(table.beneath(Path::new("/twice")), ["/twice"; 2].map(Path::new));
    }
}
