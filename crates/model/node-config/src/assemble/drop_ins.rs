//! Which files below `--config-dir` count, and in which order.
//!
//! The rule it keeps: a walk in the order of names, folder by folder, that takes `*.conf` and
//! passes over everything else. It walks nothing itself: the caller lists the folder.

/// The verdict on a listing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DropInOrder {
    pub taken: Vec<String>,
    /// Not `*.conf`; nothing wrong with them, but worth a word.
    pub skipped: Vec<String>,
}

/// Orders paths relative to the directory (of everything in it that is no directory; links to
/// directories are not followed, so they count as files).
pub fn drop_in_order<Path: AsRef<str>>(relative_paths: &[Path]) -> DropInOrder {
    let mut paths: Vec<&str> = relative_paths.iter().map(AsRef::as_ref).collect();
    // Names are compared folder by folder: `a/z.conf` comes before `a.conf`, as `a` is before it.
    paths.sort_by(|left, right| left.split('/').cmp(right.split('/')));
    let (taken, skipped) =
        paths.into_iter().map(str::to_owned).partition(|path| path.ends_with(".conf"));
    DropInOrder { taken, skipped }
}
