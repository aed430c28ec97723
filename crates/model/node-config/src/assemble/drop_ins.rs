//! Which files below `--config-dir` are drop-ins, and in which order.
//!
//! The rule it keeps: a walk in the order of names, directory by directory, that takes `*.conf` and
//! ignores everything else. It does not walk itself: the caller lists the directory.

/// The drop-ins of a listing, in order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DropInOrder {
    pub taken: Vec<String>,
    /// Not `*.conf`; ignored, but worth a warning.
    pub skipped: Vec<String>,
}

/// Orders paths relative to the directory (of everything in it except directories; symlinks to
/// directories are not followed, so they count as files).
pub fn drop_in_order<Path: AsRef<str>>(relative_paths: &[Path]) -> DropInOrder {
    let mut paths: Vec<&str> = relative_paths.iter().map(AsRef::as_ref).collect();
    // Paths are compared component by component: `a/z.conf` comes before `a.conf`, as `a` sorts
    // before it.
    paths.sort_by(|left, right| left.split('/').cmp(right.split('/')));
    let (taken, skipped) =
        paths.into_iter().map(str::to_owned).partition(|path| path.ends_with(".conf"));
    DropInOrder { taken, skipped }
}
