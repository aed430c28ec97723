//! Devices of the Container Device Interface: the files, the device behind each name, and what a
//! container gets with it.
//!
//! Rule: an unreadable or invalid file hides only its own devices; a device defined by two files of
//! one directory is not available; a later directory overrides an earlier one. A name that cannot
//! be resolved is an error with the defects of the files that may define it. Reads the directories
//! again each time, with limits; changes nothing.
//!
//! upstream: CDI SPEC.md; container-device-interface pkg/cdi/cache.go

mod document;
mod names;
mod yaml;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

pub use document::{ContainerEdits, DeviceNode, Hook, Mount};
pub use names::is_qualified;

use document::CdiDocument;

#[cfg(test)]
mod tests;

/// A CDI file has a few kilobytes.
const MAX_FILE_SIZE: u64 = 4 << 20;
const MAX_FILES: usize = 1024;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// With the errors of files that were left out.
    #[error("unresolvable CDI devices {}{}", names.join(", "), list_errors(errors))]
    Unresolvable { names: Vec<String>, errors: Vec<String> },
}

fn list_errors(errors: &[String]) -> String {
    if errors.is_empty() { String::new() } else { format!(" ({})", errors.join("; ")) }
}

/// All devices of some directories.
#[derive(Debug, Default)]
pub struct CdiRegistry {
    documents: Vec<LoadedDocument>,
    /// By qualified name: index of the document, and of the device in it.
    devices: BTreeMap<String, (usize, usize)>,
    errors: Vec<String>,
}

#[derive(Debug)]
struct LoadedDocument {
    path: PathBuf,
    dir: usize,
    document: CdiDocument,
}

impl CdiRegistry {
    /// Reads the directories; a missing one is empty.
    pub fn read(dirs: &[PathBuf]) -> Self {
        let mut all = Self::default();
        for (number, dir) in dirs.iter().enumerate() {
            match files(dir) {
                Ok(paths) => {
                    for path in paths {
                        let text = contents(&path);
                        all.add(number, path, text.map_err(|error| error.to_string()));
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => all.note(&format!("{}: {error}", dir.display())),
            }
        }
        all.index();
        all
    }

    fn add(&mut self, dir: usize, path: PathBuf, text: Result<Vec<u8>, String>) {
        let yaml = path.extension().is_some_and(|extension| extension == "yaml");
        match text.and_then(|text| CdiDocument::parse(&text, yaml)) {
            Ok(document) => self.documents.push(LoadedDocument { path, dir, document }),
            Err(reason) => self.note(&format!("{}: {reason}", path.display())),
        }
    }

    fn index(&mut self) {
        let mut conflicts = Vec::new();
        for (at, loaded) in self.documents.iter().enumerate() {
            for (number, device) in loaded.document.devices.iter().enumerate() {
                let name = format!("{}={}", loaded.document.kind, device.name);
                let other = self.devices.get(&name).map(|(other, _)| &self.documents[*other]);
                if let Some(other) = other.filter(|other| other.dir == loaded.dir) {
                    self.errors.push(format!(
                        "conflicting device {name:?} (specs {:?}, {:?})",
                        other.path, loaded.path
                    ));
                    conflicts.push((name, loaded.dir));
                    continue;
                }
                // Directories are ordered by ascending precedence.
                self.devices.insert(name, (at, number));
            }
        }
        for (name, dir) in conflicts {
            if self.devices.get(&name).is_some_and(|(at, _)| self.documents[*at].dir == dir) {
                self.devices.remove(&name);
            }
        }
    }

    /// What a container with these devices gets, in order: for each device, first the edits that
    /// its file has for all its devices, once.
    pub fn edits(&self, names: &[String]) -> Result<ContainerEdits, Error> {
        let mut all = ContainerEdits::default();
        let mut seen: Vec<usize> = Vec::new();
        let mut missing = Vec::new();
        for name in names {
            let Some((at, number)) = self.devices.get(name) else {
                missing.push(name.clone());
                continue;
            };
            let document = &self.documents[*at].document;
            if !seen.contains(at) {
                seen.push(*at);
                all.append(&document.container_edits);
            }
            all.append(&document.devices[*number].container_edits);
        }
        if missing.is_empty() {
            return Ok(all);
        }
        Err(Error::Unresolvable { names: missing, errors: self.errors.clone() })
    }

    /// Adds one line; control characters in a file's keys are replaced.
    fn note(&mut self, message: &str) {
        let plain = |letter: char| if letter.is_control() { ' ' } else { letter };
        self.errors.push(message.chars().map(plain).collect());
    }

    /// Errors of files that were left out, and of devices.
    pub fn errors(&self) -> &[String] {
        &self.errors
    }
}

/// Files directly in the directory, by name.
fn files(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let known = path.extension().is_some_and(|one| one == "json" || one == "yaml");
        if known && !path.is_dir() {
            all.push(path);
        }
        if all.len() > MAX_FILES {
            return Err(io::Error::other(format!("it has over {MAX_FILES} files")));
        }
    }
    all.sort();
    Ok(all)
}

fn contents(path: &Path) -> io::Result<Vec<u8>> {
    // Opening a FIFO would wait for its writer for ever.
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is no plain file"));
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_FILE_SIZE + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_FILE_SIZE {
        return Err(io::Error::other(format!("it has over {MAX_FILE_SIZE} bytes")));
    }
    Ok(bytes)
}
