//! Facts that only a trial shows: a seccomp filter, nftables, mounts and user namespaces as
//! containers need them, and a pod's network.
//!
//! Rule: each trial takes the steps that a pod would take, in a process, thread or namespace that
//! ends with it. They always concern the real machine.

use super::nftables;
use pod_supervisor::kernel_features::KernelFeatures;
use pod_supervisor::launch::SupervisorProgram;
use std::path::{Path, PathBuf};

/// Where images lie by default: mounts are tried on the same file system.
const DEFAULT_IMAGES_DIR: &str = "/var/lib/keelson";

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
        let KernelFeatures { user_namespaces, recursive_read_only } = kernel_features()
            .unwrap_or_else(|why| {
                let why = Err(format!("it could not be tried: {why}"));
                KernelFeatures { user_namespaces: why.clone(), recursive_read_only: why }
            });
        Self {
            seccomp: seccomp_filter::self_check().map(|_| ()).map_err(|error| error.to_string()),
            nftables: nftables::answers(),
            user_namespaces,
            recursive_read_only,
            pod_network: container_runtime::try_built_in_network()
                .map_err(|error| error.to_string()),
        }
    }
}

fn kernel_features() -> Result<KernelFeatures, String> {
    let program = SupervisorProgram::own().map_err(|error| error.to_string())?;
    let near = Path::new(DEFAULT_IMAGES_DIR).ancestors().find(|dir| dir.is_dir());
    let near = near.ok_or_else(|| format!("no directory above {DEFAULT_IMAGES_DIR} exists"))?;
    let dir = TrialDir::make(near)?;
    Ok(KernelFeatures::probe(&program, &dir.0))
}

/// A directory that is removed on drop.
struct TrialDir(PathBuf);

impl TrialDir {
    fn make(near: &Path) -> Result<Self, String> {
        let dir = Self(near.join(format!(".keelson-doctor-{}", std::process::id())));
        for name in ["lower", "upper", "work"] {
            let path = dir.0.join(name);
            std::fs::create_dir_all(&path)
                .map_err(|error| format!("making {}: {error}", path.display()))?;
        }
        Ok(dir)
    }
}

impl Drop for TrialDir {
    fn drop(&mut self) {
        // On an error only empty directories are left.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
