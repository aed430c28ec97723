//! The requests that a runtime receives for pods: from the reference kubelet, and from the agent.
//!
//! The rule it keeps: both use the CRI with the same recording runtime, so that the agent's
//! decisions and its client are compared together. What depends on the machine (its memory, its
//! page sizes) is stored with the recording; what depends on chance (times, random names, the order
//! of the reference's maps) is removed from both. Nothing else is.

mod ours;
pub mod pods;
pub mod recorder;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use cri_wire::v1;
use serde::{Deserialize, Serialize};

pub use ours::{record, waiting};

/// Paths on the machine where the recording was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedPaths {
    pub root: String,
    pub logs: String,
}

/// The machine's properties that appear in requests to a runtime.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedMachine {
    pub memory_bytes: i64,
    pub huge_page_sizes: Vec<String>,
    pub thermal_throttle_paths: Vec<String>,
    pub cgroup_v2: bool,
    pub swap_controller: bool,
}

impl RecordedMachine {
    /// The properties of this machine.
    pub fn here() -> Result<Self> {
        let meminfo = fs::read_to_string("/proc/meminfo").context("/proc/meminfo")?;
        let total = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"));
        let kilobytes: i64 = total
            .and_then(|rest| rest.split_whitespace().next())
            .and_then(|number| number.parse().ok())
            .context("/proc/meminfo: no MemTotal")?;
        let cgroup_v2 = Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
        Ok(Self {
            memory_bytes: kilobytes * 1024,
            huge_page_sizes: huge_page_sizes()?,
            thermal_throttle_paths: thermal_throttle_paths()?,
            cgroup_v2,
            swap_controller: cgroup_files::can_limit_swap(Path::new("/")),
        })
    }
}

fn names_in(dir: &str) -> Result<Vec<String>> {
    if !Path::new(dir).exists() {
        return Ok(Vec::new());
    }
    let entries = fs::read_dir(dir).with_context(|| dir.to_owned())?;
    let mut names = Vec::new();
    for entry in entries {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

fn huge_page_sizes() -> Result<Vec<String>> {
    let names = names_in("/sys/kernel/mm/hugepages")?;
    let sizes = names.iter().filter_map(|name| {
        let kilobytes: u64 = name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
        let sizes = [(1 << 20, "GB"), (1 << 10, "MB"), (1, "KB")];
        let (unit, word) = sizes.into_iter().find(|(unit, _)| kilobytes.is_multiple_of(*unit))?;
        Some(format!("{}{word}", kilobytes / unit))
    });
    Ok(sizes.collect())
}

fn thermal_throttle_paths() -> Result<Vec<String>> {
    let dir = "/sys/devices/system/cpu";
    let mut numbers: Vec<u32> =
        names_in(dir)?.iter().filter_map(|name| name.strip_prefix("cpu")?.parse().ok()).collect();
    numbers.sort_unstable();
    let paths = numbers.into_iter().map(|cpu| format!("{dir}/cpu{cpu}/thermal_throttle"));
    Ok(paths.filter(|path| Path::new(path).exists()).collect())
}

/// One recording, as stored in a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recording {
    pub machine: RecordedMachine,
    /// The requests that the runtime received, by pod and then by sandbox or container.
    #[serde(rename = "told")]
    pub setup: BTreeMap<String, BTreeMap<String, Vec<String>>>,
    /// The waiting reason of containers that cannot be set up, by pod.
    pub waiting: BTreeMap<String, String>,
}

/// The requests for one pod, without what depends on chance.
pub fn deterministic_setup(
    mut sandbox: v1::PodSandboxConfig,
    containers: Vec<v1::ContainerConfig>,
    places: &RecordedPaths,
) -> BTreeMap<String, Vec<String>> {
    for name in ["kubernetes.io/config.hash", "kubernetes.io/config.seen"] {
        sandbox.annotations.remove(name);
    }
    if let Some(dns) = &mut sandbox.dns_config {
        dns.options.sort();
    }
    let mut setup = BTreeMap::from([("sandbox".to_owned(), lines(&sandbox, places))]);
    for mut container in containers {
        container.envs.sort_by(|one, other| one.key.cmp(&other.key));
        // The kernel lists the directory in no particular order.
        if let Some(resources) = container.linux.as_mut().and_then(|it| it.resources.as_mut()) {
            resources.hugepage_limits.sort_by(|one, other| one.page_size.cmp(&other.page_size));
        }
        for mount in &mut container.mounts {
            if let Some((dir, _)) = mount.host_path.rsplit_once('/')
                && dir.contains("/containers/")
            {
                mount.host_path = format!("{dir}/<random>");
            }
        }
        let name = container.metadata.clone().unwrap_or_default().name;
        let env: Vec<String> = container
            .envs
            .drain(..)
            .map(|entry| format!("env {}={}", entry.key, String::from_utf8_lossy(&entry.value)))
            .collect();
        setup.insert(name, [env, lines(&container, places)].concat());
    }
    setup
}

/// One line per value; default values are left out.
fn lines(value: &impl std::fmt::Debug, places: &RecordedPaths) -> Vec<String> {
    let text =
        format!("{value:#?}").replace(&places.root, "<root>").replace(&places.logs, "<logs>");
    let empty = [": \"\",", ": [],", ": {},", ": None,", ": false,", ": 0,"];
    let lines = text.lines().filter(|line| !empty.iter().any(|end| line.ends_with(end)));
    lines.map(ToOwned::to_owned).collect()
}
