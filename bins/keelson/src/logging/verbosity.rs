//! Which events are written: `-v` and `--vmodule`.
//!
//! Rule: as klog: an event of verbosity N is written when `-v` is at least N, or when a pattern of
//! `--vmodule` matches its file's name (without the extension) and has a level of at least N.

use super::glob;
use tracing::{Level, Metadata};

/// One `pattern=N` of `--vmodule`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FilePattern {
    pub(crate) pattern: String,
    pub(crate) level: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Verbosity {
    pub(crate) level: u64,
    pub(crate) files: Vec<FilePattern>,
}

impl Verbosity {
    /// The highest verbosity that is written for events of this source file.
    pub(crate) fn of_file(&self, file: &str) -> u64 {
        let name = file.rsplit('/').next().unwrap_or(file);
        let name = name.strip_suffix(".rs").unwrap_or(name);
        let first_match =
            self.files.iter().find(|candidate| glob::matches(&candidate.pattern, name));
        self.level.max(first_match.map_or(0, |matched| matched.level))
    }

    /// Whether an event (or span) of this callsite may be written at all.
    pub(crate) fn may_write(&self, metadata: &Metadata<'_>) -> bool {
        implied(metadata) <= self.of_file(metadata.file().unwrap_or_default())
    }

    /// The most detailed level that can matter.
    pub(crate) fn most_detailed(&self) -> Level {
        let files = self.files.iter().map(|pattern| pattern.level).max().unwrap_or(0);
        match self.level.max(files) {
            0..4 => Level::INFO,
            4..6 => Level::DEBUG,
            _ => Level::TRACE,
        }
    }
}

/// The verbosity that an event has by its level alone.
pub(crate) fn implied(metadata: &Metadata<'_>) -> u64 {
    // Files of this workspace have relative names, those of dependencies absolute ones.
    let foreign = metadata.file().is_some_and(|file| file.starts_with('/'));
    match (*metadata.level(), foreign) {
        (Level::ERROR | Level::WARN, _) | (Level::INFO, false) => 0,
        (Level::INFO, true) | (Level::DEBUG, false) => 4,
        (Level::TRACE, false) => 6,
        (Level::DEBUG, true) => 8,
        (Level::TRACE, true) => 10,
    }
}
