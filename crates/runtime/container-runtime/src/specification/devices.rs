//! Host devices in a container: the nodes, and the device rules that allow them.
//!
//! upstream: containerd pkg/oci/utils_unix.go (DeviceFromPath, getDevices)

use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use container_create::spec::{DeviceNode, DeviceRuleSpec};
use cri_wire::v1;
use rustix::fs::{major, minor};

use crate::failure::{CallContext as _, CriError, Result};

/// The upper limit of devices in a directory.
const MAX_COUNT: usize = 4096;
/// Never copied from the host: each container has its own.
const CONTAINER_OWN_DEVICES: &[&str] =
    &["ptmx", "pts", "shm", "fd", "mqueue", "console", ".lxc", ".lxd-mounts", ".udev"];

#[derive(Debug, Default)]
pub(super) struct RequestedDevices {
    pub(super) nodes: Vec<DeviceNode>,
    pub(super) rules: Vec<DeviceRuleSpec>,
}

/// The devices that the caller requests.
pub(super) fn asked(list: &[v1::Device]) -> Result<RequestedDevices> {
    let mut all = RequestedDevices::default();
    for device in list {
        let access = if device.permissions.is_empty() { "rwm" } else { &device.permissions };
        if !access.chars().all(|letter| "rwm".contains(letter)) {
            return Err(CriError::invalid(format!(
                "device permissions {access:?} of {}; expected letters of rwm",
                device.host_path
            )));
        }
        let source =
            fs::canonicalize(&device.host_path).doing(format!("device {}", device.host_path))?;
        let mut found = Vec::new();
        if source.is_dir() {
            collect(&source, Path::new(&device.container_path), &mut found)?;
        } else {
            found.extend(node(&source, &device.container_path)?);
            if found.is_empty() {
                return Err(CriError::plain(format!("{} is not a device node", device.host_path)));
            }
        }
        for node in found {
            all.rules.push(DeviceRuleSpec {
                allow: true,
                kind: node.kind.clone(),
                major: Some(node.major),
                minor: Some(node.minor),
                access: access.to_owned(),
            });
            all.nodes.push(node);
        }
    }
    Ok(all)
}

/// All devices of the host, for privileged containers.
pub(super) fn of_the_host() -> Result<Vec<DeviceNode>> {
    let mut found = Vec::new();
    collect(Path::new("/dev"), Path::new("/dev"), &mut found)?;
    Ok(found)
}

fn collect(dir: &Path, target: &Path, found: &mut Vec<DeviceNode>) -> Result<()> {
    let entries = fs::read_dir(dir).doing(format!("listing {}", dir.display()))?;
    for entry in entries {
        // It may be removed while the directory is read.
        let Ok(entry) = entry else { continue };
        let name = entry.file_name();
        let Some(name) = name.to_str().filter(|name| !CONTAINER_OWN_DEVICES.contains(name)) else {
            continue;
        };
        let Ok(metadata) = entry.path().symlink_metadata() else { continue };
        let inside: PathBuf = target.join(name);
        if metadata.is_dir() {
            // Other file systems contain no devices.
            if fs::metadata(dir).is_ok_and(|parent| parent.dev() == metadata.dev()) {
                collect(&entry.path(), &inside, found)?;
            }
        } else {
            found.extend(node(&entry.path(), &inside.display().to_string())?);
        }
        if found.len() > MAX_COUNT {
            return Err(CriError::plain(format!("{} has too many devices", dir.display())));
        }
    }
    Ok(())
}

/// None if it is not a device.
fn node(source: &Path, target: &str) -> Result<Option<DeviceNode>> {
    let metadata =
        fs::symlink_metadata(source).doing(format!("looking at {}", source.display()))?;
    let kind = match metadata.file_type() {
        kind if kind.is_char_device() => "c",
        kind if kind.is_block_device() => "b",
        _ => return Ok(None),
    };
    Ok(Some(DeviceNode {
        path: target.to_owned(),
        kind: kind.to_owned(),
        major: major(metadata.rdev()),
        minor: minor(metadata.rdev()),
        mode: metadata.mode() & 0o7777,
        uid: metadata.uid(),
        gid: metadata.gid(),
        source: source.display().to_string(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(host: &str, permissions: &str) -> v1::Device {
        v1::Device {
            container_path: "/dev/in".into(),
            host_path: host.into(),
            permissions: permissions.into(),
        }
    }

    #[test]
    fn a_device_is_a_node_and_a_rule() {
        let all = asked(&[device("/dev/null", "rw")]).unwrap();
        assert_eq!((all.nodes[0].major, all.nodes[0].minor, &*all.nodes[0].kind), (1, 3, "c"));
        assert_eq!((&*all.nodes[0].path, &*all.rules[0].access), ("/dev/in", "rw"));
    }

    #[test]
    fn a_path_that_is_no_device_is_refused() {
        for (host, permissions) in [("/dev/nowhere", ""), ("/proc/version", ""), ("/dev/null", "x")]
        {
            assert!(asked(&[device(host, permissions)]).is_err(), "{host}");
        }
    }
}
