//! Probes what this kernel supports for containers, by trying it.
//!
//! Rule: runs in a process of its own with one thread: it creates namespaces and mounts, all of
//! which end with it. Each probe performs the steps that a container's creation would perform.

use std::os::fd::AsFd;
use std::path::Path;

use crate::error::{During, Result};
use crate::mounts::{detached_copy, enter_mount_namespace, overlay};
use crate::paths::open_source;
use crate::spec::{IdMappings, IdRange, OverlaySpec, RootFilesystem};
use crate::system::{MountChange, change_mount};
use crate::user_namespace;

/// The program name (`argv[0]`) that selects the probe.
pub const NAME: &str = "keelson-abilities";

/// Any ids: nothing is written.
const FIRST_ID: u32 = 1 << 20;
const IDS: u32 = 1 << 16;

/// Prints a line for each feature: its name, and the error where it does not work. `dir` is on
/// the filesystem of the containers' layers and has the empty directories `lower`, `upper` and
/// `work`.
pub fn report(dir: &Path) {
    let dir = dir.display().to_string();
    // Last: the second one enters a new mount namespace.
    for (name, outcome) in [
        ("recursive-read-only", recursive_read_only(&dir)),
        ("user-namespaces", overlay_with_mapped_ids(&dir)),
    ] {
        match outcome {
            Ok(()) => println!("{name}"),
            Err(error) => println!("{name} {}", error.message.replace('\n', " ")),
        }
    }
}

fn recursive_read_only(dir: &str) -> Result<()> {
    let source = open_source(dir, "", false)?;
    let tree = detached_copy(&source, true).during("copying a mount")?;
    let change =
        MountChange { set: libc::MOUNT_ATTR_RDONLY, recursive: true, ..MountChange::default() };
    change_mount(tree.as_fd(), change).during("making mounts read-only, with those beneath")
}

/// Creates a user namespace and an overlay with id-mapped layers.
fn overlay_with_mapped_ids(dir: &str) -> Result<()> {
    let range = || vec![IdRange { inside: 0, outside: FIRST_ID, count: IDS }];
    let namespace = user_namespace::holding(&IdMappings { users: range(), groups: range() })?;
    let root = RootFilesystem {
        overlay: Some(OverlaySpec {
            lower: vec![format!("{dir}/lower")],
            upper: format!("{dir}/upper"),
            work: format!("{dir}/work"),
            options: Vec::new(),
        }),
        map_ids: true,
        ..RootFilesystem::default()
    };
    enter_mount_namespace()?;
    overlay::prepare_root(&root, Some(namespace.as_fd()), Some((FIRST_ID, FIRST_ID)), "").map(drop)
}
