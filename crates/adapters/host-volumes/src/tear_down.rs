//! Tears down all of a pod's volumes that this crate provides.
//!
//! Rule: sub-paths first, since they hold volumes; then the mounts below each volume, the deepest
//! first; then its content. What cannot be unmounted stays whole and is named in the error.

use std::path::Path;

use host_paths::{OpenDir, PathError, mounts_beneath, remove_tree};

use crate::layout::{EMPTY_DIR_PLUGIN, PodDirPath, if_exists, own_plugin_dirs};
use crate::mounting::unmount_below;
use crate::sub_path::{release, remove_if_empty};

const MAX_NAMES: usize = 1 << 16;

pub(crate) fn tear_down(pod: &PodDirPath) -> Result<(), PathError> {
    release(pod, None)?;
    let Some(dir) = pod.open()? else { return Ok(()) };
    // The mark first: a volume that is half removed must not count as ready.
    remove_children(&dir, "plugins", EMPTY_DIR_PLUGIN)?;
    for plugin in own_plugin_dirs() {
        let volumes = format!("volumes/{plugin}");
        if dir.stat(&volumes)?.is_none() {
            continue;
        }
        for point in mounts_beneath(&dir.path_of(volumes))? {
            unmount_below(&dir, &point)?;
        }
        remove_children(&dir, "volumes", plugin)?;
    }
    Ok(())
}

fn remove_children(pod: &OpenDir, kind: &str, plugin: &str) -> Result<(), PathError> {
    let Some(plugins) = if_exists(pod.dir(kind))? else { return Ok(()) };
    let Some(ours) = if_exists(plugins.dir(plugin))? else { return Ok(()) };
    for name in ours.names(MAX_NAMES)? {
        remove_tree(&ours, &name)?;
    }
    remove_if_empty(&plugins, Path::new(plugin))
}
