//! Which CNI configuration counts: the first file by name that is one.

use std::fs;
use std::path::Path;

use cni_documents::Configuration;

use crate::durable::names_in;
use crate::failure::{Doing as _, Failure, Result};

const LARGEST: u64 = 1 << 20;
const ENDINGS: &[&str] = &[".conf", ".conflist", ".json"];

/// The first file by name that is a configuration; what does not read is told and passed over.
pub(super) fn first_in(folder: &Path) -> Result<Option<Configuration>> {
    let mut last = None;
    for name in names_in(folder)? {
        if !ENDINGS.iter().any(|ending| name.ends_with(ending)) {
            continue;
        }
        let path = folder.join(&name);
        let parsed = fs::metadata(&path)
            .doing(format!("looking at {}", path.display()))
            .and_then(|metadata| match metadata.len() {
                0..=LARGEST => Ok(()),
                _ => Err(Failure::plain(format!("{} has over a megabyte", path.display()))),
            })
            .and_then(|()| fs::read(&path).doing(format!("reading {}", path.display())))
            .and_then(|text| Ok(Configuration::parse(&path.display().to_string(), &text)?));
        match parsed {
            Ok(configuration) => return Ok(Some(configuration)),
            Err(failure) => last = Some(failure),
        }
    }
    last.map_or(Ok(None), Err)
}
