//! The administrator's settings: a JSON file, every field with a default.
//!
//! Rule: an unknown field or a wrong value is an error that names it; the file is read once. Pure:
//! the caller reads the file.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

use crate::failure::{CriError, Result};
use crate::network::{BuiltInSettings, CniSettings};

#[cfg(test)]
mod tests;

/// The names that the built-in handler always has.
pub(crate) const BUILT_IN_HANDLER_NAMES: [&str; 2] = ["", "keelson"];

/// All settings of a runtime.
#[derive(Debug, Clone)]
pub struct RuntimeSettings {
    /// Survives a reboot: images and records.
    pub root: PathBuf,
    /// Does not survive a reboot: sockets, mounts, namespaces.
    pub state: PathBuf,
    pub cni: CniSettings,
    pub built_in_network: BuiltInSettings,
    /// The administrator set the bridge; otherwise it depends on the root (`names`).
    pub bridge_is_set: bool,
    /// The same for the subnets.
    pub subnets_are_set: bool,
    /// The directory of claims on names of the host.
    pub claims: PathBuf,
    /// An agent in this process creates the cgroups of pods below the root's own.
    pub has_agent: bool,
    /// By the host in image names.
    pub registries: BTreeMap<String, RegistrySettings>,
    pub cgroup_driver: CgroupDriver,
    /// Additional names of the built-in handler.
    pub handlers: Vec<String>,
    /// OCI runtimes of the host, by the handler's name.
    pub runtimes: BTreeMap<String, OciRuntime>,
    /// Directories of CDI specifications; later ones take precedence.
    pub device_specifications: Vec<PathBuf>,
    /// A directory of archives and layouts that are imported at startup and never garbage
    /// collected.
    pub preloaded_images: Option<PathBuf>,
    /// The address of the streaming server.
    pub streams: std::net::SocketAddr,
    /// The program that supervises a pod; none for the embedded one.
    pub supervisor: Option<PathBuf>,
    /// The embedded program; none for this program itself.
    pub carried_supervisor: Option<&'static [u8]>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CgroupDriver {
    Cgroupfs,
    Systemd,
}

/// An OCI runtime, such as runc or crun.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OciRuntime {
    /// An absolute path.
    pub program: PathBuf,
    /// Before its command, such as `--debug`.
    #[serde(default)]
    pub arguments: Vec<String>,
}

/// How to reach a registry.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RegistrySettings {
    /// Tried in order before the registry itself, such as `http://127.0.0.1:5000`.
    #[serde(default)]
    pub mirrors: Vec<String>,
    /// A file of certificates to trust beside the host's.
    #[serde(default)]
    pub certificates: Option<PathBuf>,
    /// Plain HTTP; by default only for registries on this host.
    #[serde(default)]
    pub plain_http: Option<bool>,
    /// Do not fall back to the registry itself.
    #[serde(default)]
    pub mirrors_only: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct SettingsFile {
    version: Option<u32>,
    #[serde(default)]
    cni: CniFile,
    #[serde(default)]
    network: NetworkFile,
    #[serde(default)]
    registries: BTreeMap<String, RegistrySettings>,
    cgroup_driver: Option<CgroupDriver>,
    #[serde(default)]
    handlers: Vec<String>,
    #[serde(default)]
    runtimes: BTreeMap<String, OciRuntime>,
    device_specifications: Option<Vec<PathBuf>>,
    preloaded_images: Option<PathBuf>,
    streams: Option<std::net::SocketAddr>,
    supervisor: Option<PathBuf>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct CniFile {
    configurations: Option<PathBuf>,
    plugins: Option<Vec<PathBuf>>,
    results: Option<PathBuf>,
    deadline_seconds: Option<u64>,
    collect_garbage: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct NetworkFile {
    bridge: Option<String>,
    subnets: Option<Vec<String>>,
    mtu: Option<u32>,
}

impl RuntimeSettings {
    /// With defaults for everything but the directories.
    pub fn new(root: PathBuf, state: PathBuf) -> Self {
        Self {
            root,
            state,
            cni: CniSettings::default(),
            built_in_network: BuiltInSettings::default(),
            bridge_is_set: false,
            subnets_are_set: false,
            claims: machine_claims::CLAIMS_DIR.into(),
            has_agent: false,
            registries: BTreeMap::new(),
            cgroup_driver: CgroupDriver::Cgroupfs,
            handlers: Vec::new(),
            runtimes: BTreeMap::new(),
            device_specifications: vec!["/etc/cdi".into(), "/var/run/cdi".into()],
            preloaded_images: None,
            streams: (std::net::Ipv4Addr::LOCALHOST, 0).into(),
            supervisor: None,
            carried_supervisor: None,
        }
    }

    /// Applies a configuration file. `what` names it in errors.
    pub fn with_file(mut self, what: &str, text: &[u8]) -> Result<Self> {
        let wrong = |why: String| CriError::invalid(format!("{what}: {why}"));
        let file: SettingsFile =
            serde_json::from_slice(text).map_err(|error| wrong(error.to_string()))?;
        if file.version.is_some_and(|version| version != 1) {
            return Err(wrong("version: expected 1".to_owned()));
        }
        let SettingsFile { cni, network, .. } = file;
        self.cni.configurations = cni.configurations.unwrap_or(self.cni.configurations);
        self.cni.plugins = cni.plugins.unwrap_or(self.cni.plugins);
        self.cni.results = cni.results.unwrap_or(self.cni.results);
        self.cni.deadline = cni.deadline_seconds.map_or(self.cni.deadline, Duration::from_secs);
        self.cni.collect_garbage = cni.collect_garbage.unwrap_or(self.cni.collect_garbage);
        self.bridge_is_set |= network.bridge.is_some();
        self.built_in_network.bridge = network.bridge.unwrap_or(self.built_in_network.bridge);
        self.built_in_network.mtu = network.mtu;
        if let Some(subnets) = network.subnets {
            self.subnets_are_set = true;
            let subnets: std::result::Result<Vec<_>, String> =
                subnets.iter().map(|text| text.parse()).collect();
            self.built_in_network.subnets =
                subnets.map_err(|why| wrong(format!("network.subnets: {why}")))?;
            if self.built_in_network.subnets.is_empty() {
                return Err(wrong("network.subnets: expected at least one range".to_owned()));
            }
        }
        for (host, registry) in &file.registries {
            for mirror in &registry.mirrors {
                if !mirror.starts_with("http://") && !mirror.starts_with("https://") {
                    return Err(wrong(format!(
                        "registries.{host}.mirrors: {mirror:?} begins with neither http:// nor https://"
                    )));
                }
            }
        }
        self.registries = file.registries;
        self.cgroup_driver = file.cgroup_driver.unwrap_or(self.cgroup_driver);
        for (name, runtime) in &file.runtimes {
            if !runtime.program.is_absolute() {
                return Err(wrong(format!(
                    "runtimes.{name}.program: {:?} is no absolute path",
                    runtime.program
                )));
            }
            if BUILT_IN_HANDLER_NAMES.contains(&name.as_str()) || file.handlers.contains(name) {
                return Err(wrong(format!(
                    "runtimes.{name}: the name is that of the built-in handler"
                )));
            }
        }
        self.handlers = file.handlers;
        self.runtimes = file.runtimes;
        self.preloaded_images = file.preloaded_images;
        if let Some(dirs) = file.device_specifications {
            if let Some(odd) = dirs.iter().find(|dir| !dir.is_absolute()) {
                return Err(wrong(format!("deviceSpecifications: {odd:?} is no absolute path")));
            }
            self.device_specifications = dirs;
        }
        self.supervisor = file.supervisor;
        self.streams = file.streams.unwrap_or(self.streams);
        if !self.streams.ip().is_loopback() {
            return Err(wrong(format!(
                "streams: {} is no loopback address; streams carry no credentials",
                self.streams
            )));
        }
        Ok(self)
    }
}
