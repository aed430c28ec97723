//! Selects the CNI configuration: the first valid file by name.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use cni_documents::NetworkConfigList;

use crate::durable::names_in;
use crate::failure::{CallContext as _, CriError, Result};

const MAX_SIZE: u64 = 1 << 20;
const ENDINGS: &[&str] = &[".conf", ".conflist", ".json"];

/// The content of a configuration directory, up to the first valid file.
#[derive(Debug, Default)]
pub(super) struct FoundConfiguration {
    pub(super) configuration: Option<NetworkConfigList>,
    /// Invalid files before it, and why.
    pub(super) unreadable: Vec<(PathBuf, CriError)>,
}

/// The first valid configuration by file name; invalid files are skipped.
pub(super) fn first_in(dir: &Path) -> Result<FoundConfiguration> {
    let mut found = FoundConfiguration::default();
    for name in names_in(dir)? {
        if !ENDINGS.iter().any(|ending| name.ends_with(ending)) {
            continue;
        }
        let path = dir.join(&name);
        match read(&path) {
            Ok(configuration) => {
                found.configuration = Some(configuration);
                break;
            }
            Err(failure) => found.unreadable.push((path, failure)),
        }
    }
    Ok(found)
}

fn read(path: &Path) -> Result<NetworkConfigList> {
    let shown = path.display();
    let metadata = fs::metadata(path).doing(format!("looking at {shown}"))?;
    if !metadata.is_file() {
        // Opening a pipe would block.
        return Err(CriError::plain(format!("{shown} is no regular file")));
    }
    if metadata.len() > MAX_SIZE {
        return Err(CriError::plain(format!("{shown} has over a megabyte")));
    }
    let text = fs::read(path).doing(format!("reading {shown}"))?;
    Ok(NetworkConfigList::parse(&shown.to_string(), &text)?)
}

/// Which errors of the directory were logged; it is read again and again.
#[derive(Debug, Default)]
pub(super) struct LoggedErrors(BTreeMap<PathBuf, String>);

impl LoggedErrors {
    /// The messages to log now: of files whose error was not logged since they last had none.
    pub(super) fn update(&mut self, unreadable: &[(PathBuf, CriError)]) -> Vec<String> {
        let now: BTreeMap<PathBuf, String> =
            unreadable.iter().map(|(path, failure)| (path.clone(), failure.text.clone())).collect();
        let fresh = now.iter().filter(|(path, text)| self.0.get(*path) != Some(*text));
        let fresh = fresh.map(|(_, text)| text.clone()).collect();
        self.0 = now;
        fresh
    }
}
