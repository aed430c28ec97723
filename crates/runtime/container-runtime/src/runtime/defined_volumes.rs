//! Volumes that an image defines: a private directory of the container for each, filled from the
//! image.
//!
//! Rule: the image's files at the path are copied with their owners and modes, and changes are
//! removed with the container: the next one starts from the image's files again. A mount of the
//! caller at the same path wins. The directories are removed with the container's.
//!
//! upstream: containerd internal/cri/server/container_create.go (volumeMounts)

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use cri_wire::v1;
use image_store::OverlayOptions;

use crate::durable;
use crate::failure::{CallContext as _, Result};
use crate::specification::clean;

/// The mode of `mkdir`: the path does not exist in the image.
const PLAIN: u32 = 0o755;

pub(super) fn defined_volumes(
    image: &OverlayOptions,
    dir: &Path,
    config: &v1::ContainerConfig,
    defined: &[String],
) -> Result<Vec<v1::Mount>> {
    let mut all = Vec::new();
    for (at, target) in defined.iter().enumerate() {
        let container_path = format!("/{}", target.trim_start_matches('/'));
        let mut mounted = config.mounts.iter().map(|mount| clean(&mount.container_path));
        if mounted.any(|path| path == clean(&container_path)) {
            continue;
        }
        let place = dir.join("volumes").join(at.to_string());
        durable::make_dir(&place)?;
        let doing = || format!("filling the volume {target:?} of the image");
        if !image_store::copy_volume(image, &container_path, &place).doing(doing())? {
            std::fs::set_permissions(&place, Permissions::from_mode(PLAIN)).doing(doing())?;
        }
        let host_path = place.display().to_string();
        let selinux_relabel = true;
        all.push(v1::Mount { container_path, host_path, selinux_relabel, ..Default::default() });
    }
    Ok(all)
}
