//! Tears down all of a pod's volumes that this crate provides.
//!
//! Rule: sub-paths first, since they hold volumes; then the mounts below each emptyDir, the deepest
//! first; then its content. What cannot be unmounted stays whole and is named in the error.

use std::path::Path;

use host_paths::{Folder, Trouble, mounts_beneath, remove_tree};

use crate::layout::{EMPTY_DIRECTORY, PodPlace, present};
use crate::mounting::unmount_below;
use crate::sub_path::{release, remove_if_empty};

const MOST_NAMES: usize = 1 << 16;

pub(crate) fn tear_down(pod: &PodPlace) -> Result<(), Trouble> {
    release(pod, None)?;
    let Some(folder) = pod.open()? else { return Ok(()) };
    // The mark first: a volume that is half removed must not count as ready.
    remove_children(&folder, "plugins")?;
    let place = format!("volumes/{EMPTY_DIRECTORY}");
    for point in mounts_beneath(&folder.path_of(place))? {
        unmount_below(&folder, &point)?;
    }
    remove_children(&folder, "volumes")
}

fn remove_children(pod: &Folder, kind: &str) -> Result<(), Trouble> {
    let Some(plugins) = present(pod.folder(kind))? else { return Ok(()) };
    let Some(ours) = present(plugins.folder(EMPTY_DIRECTORY))? else { return Ok(()) };
    for name in ours.names(MOST_NAMES)? {
        remove_tree(&ours, &name)?;
    }
    remove_if_empty(&plugins, Path::new(EMPTY_DIRECTORY))
}
