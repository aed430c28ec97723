//! Tears down all of a pod's volumes that this crate provides.
//!
//! Rule: sub-paths first, since they hold volumes; then the mounts below each emptyDir, the deepest
//! first; then its content. What cannot be unmounted stays whole and is named in the error.

use std::path::Path;

use host_paths::{OpenDir, PathError, mounts_beneath, remove_tree};

use crate::layout::{EMPTY_DIR_PLUGIN, PodDirPath, if_exists};
use crate::mounting::unmount_below;
use crate::sub_path::{release, remove_if_empty};

const MAX_NAMES: usize = 1 << 16;

pub(crate) fn tear_down(pod: &PodDirPath) -> Result<(), PathError> {
    release(pod, None)?;
    let Some(dir) = pod.open()? else { return Ok(()) };
    // The mark first: a volume that is half removed must not count as ready.
    remove_children(&dir, "plugins")?;
    let plugin_dir = format!("volumes/{EMPTY_DIR_PLUGIN}");
    for point in mounts_beneath(&dir.path_of(plugin_dir))? {
        unmount_below(&dir, &point)?;
    }
    remove_children(&dir, "volumes")
}

fn remove_children(pod: &OpenDir, kind: &str) -> Result<(), PathError> {
    let Some(plugins) = if_exists(pod.dir(kind))? else { return Ok(()) };
    let Some(ours) = if_exists(plugins.dir(EMPTY_DIR_PLUGIN))? else { return Ok(()) };
    for name in ours.names(MAX_NAMES)? {
        remove_tree(&ours, &name)?;
    }
    remove_if_empty(&plugins, Path::new(EMPTY_DIR_PLUGIN))
}
