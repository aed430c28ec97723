//! One CDI file: parsed strictly, fully validated. Pure.

use serde::Deserialize;
use std::collections::BTreeMap;

use super::{names, yaml};

/// Supported versions.
const VERSIONS: [&str; 8] =
    ["0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0", "1.1.0"];
const HOOKS: [&str; 6] =
    ["prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"];

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct CdiDocument {
    cdi_version: String,
    pub(super) kind: String,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) devices: Vec<CdiDeviceEntry>,
    #[serde(default)]
    pub(super) container_edits: ContainerEdits,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct CdiDeviceEntry {
    pub(super) name: String,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) container_edits: ContainerEdits,
}

/// What a container gets.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ContainerEdits {
    /// `NAME=value`
    pub env: Vec<String>,
    pub device_nodes: Vec<DeviceNode>,
    pub mounts: Vec<Mount>,
    pub hooks: Vec<Hook>,
    #[serde(rename = "additionalGids")]
    pub additional_groups: Vec<u32>,
    pub intel_rdt: Option<serde_json::Value>,
    pub net_devices: Vec<serde_json::Value>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeviceNode {
    pub path: String,
    /// Empty: the same as `path`.
    #[serde(default)]
    pub host_path: String,
    /// `b`, `c`, `u`, `p`; empty: the type of the host's device.
    #[serde(default, rename = "type")]
    pub kind: String,
    #[serde(default)]
    pub major: i64,
    #[serde(default)]
    pub minor: i64,
    pub file_mode: Option<u32>,
    /// A subset of `rwm`; empty: all.
    #[serde(default)]
    pub permissions: String,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Mount {
    pub host_path: String,
    pub container_path: String,
    #[serde(default)]
    pub options: Vec<String>,
    #[serde(default, rename = "type")]
    pub kind: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Hook {
    #[serde(rename = "hookName")]
    pub point: String,
    pub path: String,
    #[serde(default)]
    pub args: Vec<String>,
    #[serde(default)]
    pub env: Vec<String>,
    pub timeout: Option<u32>,
}

impl CdiDocument {
    pub(super) fn parse(text: &[u8], is_yaml: bool) -> Result<Self, String> {
        let document: Self = if is_yaml {
            let text = std::str::from_utf8(text).map_err(|_| "it is no UTF-8 text".to_owned())?;
            let value = yaml::parse(text)?;
            serde_json::from_value(value).map_err(|error| error.to_string())?
        } else {
            serde_json::from_slice(text).map_err(|error| error.to_string())?
        };
        document.check()?;
        Ok(document)
    }

    fn check(&self) -> Result<(), String> {
        let version = self.cdi_version.as_str();
        if !VERSIONS.contains(&version) {
            return Err(format!("cdiVersion {version:?} is none of {}", VERSIONS.join(", ")));
        }
        names::check_kind(&self.kind)?;
        self.container_edits.check()?;
        if self.devices.is_empty() {
            return Err("devices: there are none".to_owned());
        }
        for (at, device) in self.devices.iter().enumerate() {
            let wrong = |reason: String| format!("devices[{at}]: {reason}");
            names::check_device(&device.name).map_err(wrong)?;
            device.container_edits.check().map_err(wrong)?;
            if device.container_edits == ContainerEdits::default() {
                return Err(wrong(format!("{:?} has no containerEdits", device.name)));
            }
            if self.devices[..at].iter().any(|other| other.name == device.name) {
                return Err(wrong(format!("{:?} is there twice", device.name)));
            }
        }
        Ok(())
    }
}

impl ContainerEdits {
    pub(super) fn append(&mut self, more: &Self) {
        self.env.extend(more.env.iter().cloned());
        self.device_nodes.extend(more.device_nodes.iter().cloned());
        self.mounts.extend(more.mounts.iter().cloned());
        self.hooks.extend(more.hooks.iter().cloned());
        self.additional_groups.extend(&more.additional_groups);
        self.net_devices.extend(more.net_devices.iter().cloned());
        if more.intel_rdt.is_some() {
            self.intel_rdt.clone_from(&more.intel_rdt);
        }
    }

    fn check(&self) -> Result<(), String> {
        for entry in &self.env {
            if entry.split_once('=').is_none_or(|(name, _)| name.is_empty()) {
                return Err(format!("env {entry:?}: expected NAME=value"));
            }
        }
        for node in &self.device_nodes {
            let wrong = |reason: String| format!("deviceNodes {:?}: {reason}", node.path);
            if !node.path.starts_with('/') {
                return Err(wrong("path: expected an absolute path".to_owned()));
            }
            if !matches!(node.kind.as_str(), "" | "b" | "c" | "u" | "p") {
                return Err(wrong(format!("type {:?}: expected b, c, u or p", node.kind)));
            }
            if !node.permissions.chars().all(|letter| "rwm".contains(letter)) {
                return Err(wrong(format!("permissions {:?}: expected of rwm", node.permissions)));
            }
        }
        for mount in &self.mounts {
            if mount.host_path.is_empty() || !mount.container_path.starts_with('/') {
                return Err(format!(
                    "mounts: expected a hostPath and an absolute containerPath, got {:?} and {:?}",
                    mount.host_path, mount.container_path
                ));
            }
        }
        for hook in &self.hooks {
            if !HOOKS.contains(&hook.point.as_str()) {
                return Err(format!("hookName {:?} is none of {}", hook.point, HOOKS.join(", ")));
            }
            if !hook.path.starts_with('/') {
                return Err(format!("hooks: path {:?} is no absolute path", hook.path));
            }
            if hook.timeout == Some(0) {
                return Err(format!("hooks: timeout of {:?} is zero", hook.path));
            }
        }
        Ok(())
    }
}
