//! Facts that only a trial shows: a seccomp filter, nftables, mounts and user namespaces as
//! containers need them, and a pod's network.
//!
//! Rule: each trial takes the steps that a pod would take, in a process, thread or namespace that
//! ends with it. They always concern the real machine.

use super::nftables;
use pod_supervisor::abilities::Abilities;
use pod_supervisor::launch::Program;
use std::path::{Path, PathBuf};

/// Where images lie by default: mounts are tried on the same file system.
const IMAGES: &str = "/var/lib/keelson";

/// Ok, or why it does not work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Trials {
    pub(crate) seccomp: Result<(), String>,
    pub(crate) nftables: Result<(), String>,
    pub(crate) user_namespaces: Result<(), String>,
    pub(crate) recursive_read_only: Result<(), String>,
    pub(crate) pod_network: Result<(), String>,
}

impl Trials {
    pub(crate) fn make() -> Self {
        let Abilities { user_namespaces, recursive_read_only } =
            abilities().unwrap_or_else(|why| {
                let why = Err(format!("it could not be tried: {why}"));
                Abilities { user_namespaces: why.clone(), recursive_read_only: why }
            });
        Self {
            seccomp: seccomp_filter::self_check().map(|_| ()).map_err(|error| error.to_string()),
            nftables: nftables::answers(),
            user_namespaces,
            recursive_read_only,
            pod_network: container_runtime::try_built_in_network(),
        }
    }
}

fn abilities() -> Result<Abilities, String> {
    let program = Program::own().map_err(|error| error.to_string())?;
    let near = Path::new(IMAGES).ancestors().find(|folder| folder.is_dir());
    let near = near.ok_or_else(|| format!("no directory above {IMAGES} exists"))?;
    let folder = Folder::make(near)?;
    Ok(Abilities::find_out(&program, &folder.0))
}

/// A directory that is removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn make(near: &Path) -> Result<Self, String> {
        let folder = Self(near.join(format!(".keelson-doctor-{}", std::process::id())));
        for name in ["lower", "upper", "work"] {
            let path = folder.0.join(name);
            std::fs::create_dir_all(&path)
                .map_err(|error| format!("making {}: {error}", path.display()))?;
        }
        Ok(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // On an error only empty directories are left.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
