//! The machine's control group hierarchies: which there are, where, and with which controllers.
//!
//! Rule: looked at once and then passed around. A hybrid machine counts as version 1, because that
//! is where its controllers are. Does not change anything.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::error::{CgroupError, Result, read};
use crate::group::Cgroup;
use crate::mounts::cgroup_mounts;

#[cfg(test)]
mod tests;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    V1,
    V2,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Controller {
    Cpu,
    CpuAccounting,
    CpuSet,
    Memory,
    Pids,
    BlockIo,
    HugeTlb,
    Devices,
    Freezer,
    NetClass,
    NetPriority,
    PerfEvent,
    Rdma,
    Misc,
    /// Version 1's `name=systemd`: no controller, but where systemd looks for processes.
    Systemd,
}

impl Controller {
    const NAMES: &'static [(Self, &'static str, &'static str)] = &[
        (Self::Cpu, "cpu", "cpu"),
        (Self::CpuAccounting, "cpuacct", ""),
        (Self::CpuSet, "cpuset", "cpuset"),
        (Self::Memory, "memory", "memory"),
        (Self::Pids, "pids", "pids"),
        (Self::BlockIo, "blkio", "io"),
        (Self::HugeTlb, "hugetlb", "hugetlb"),
        (Self::Devices, "devices", ""),
        (Self::Freezer, "freezer", ""),
        (Self::NetClass, "net_cls", ""),
        (Self::NetPriority, "net_prio", ""),
        (Self::PerfEvent, "perf_event", ""),
        (Self::Rdma, "rdma", "rdma"),
        (Self::Misc, "misc", "misc"),
        (Self::Systemd, "name=systemd", ""),
    ];

    /// As version 1 mount options and `/proc/PID/cgroup` name it.
    pub fn v1_name(self) -> &'static str {
        Self::NAMES.iter().find(|(one, ..)| *one == self).map_or("", |(_, v1, _)| v1)
    }

    /// As `cgroup.controllers` names it; empty where version 2 has no such controller.
    pub fn v2_name(self) -> &'static str {
        Self::NAMES.iter().find(|(one, ..)| *one == self).map_or("", |(.., v2)| v2)
    }

    fn from_v1(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(_, v1, _)| *v1 == name).map(|(one, ..)| *one)
    }

    fn from_v2(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(.., v2)| !v2.is_empty() && *v2 == name).map(|(one, ..)| *one)
    }
}

/// All hierarchies of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hierarchy {
    pub(crate) layout: Layout,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Layout {
    V1 {
        /// Where each controller's hierarchy is mounted; several may share one.
        points: BTreeMap<Controller, PathBuf>,
        /// A cgroup2 mount without controllers beside them.
        unified: Option<PathBuf>,
    },
    V2 {
        root: PathBuf,
        controllers: BTreeSet<Controller>,
    },
}

impl Hierarchy {
    /// What this process sees mounted under `/sys/fs/cgroup`.
    pub fn detect() -> Result<Self> {
        Self::from_mounts(&read(Path::new("/proc/self/mountinfo"))?, Path::new("/sys/fs/cgroup"))
    }

    /// What a mountinfo text says is mounted at or beneath `base`.
    pub fn from_mounts(mountinfo: &str, base: &Path) -> Result<Self> {
        let mounts: Vec<_> = cgroup_mounts(mountinfo)
            .into_iter()
            .filter(|mount| mount.point.starts_with(base))
            .collect();
        if let Some(root) = mounts.iter().rfind(|mount| mount.unified && mount.point == base) {
            return Self::unified(&root.point);
        }
        let mut points = BTreeMap::new();
        for mount in mounts.iter().filter(|mount| !mount.unified) {
            for controller in mount.options.iter().filter_map(|name| Controller::from_v1(name)) {
                points.insert(controller, mount.point.clone());
            }
        }
        if points.is_empty() {
            return Err(CgroupError::NotMounted(base.to_owned()));
        }
        let unified = mounts.iter().find(|mount| mount.unified).map(|mount| mount.point.clone());
        Ok(Self { layout: Layout::V1 { points, unified } })
    }

    /// A version 2 hierarchy whose root is this folder.
    pub fn unified(root: &Path) -> Result<Self> {
        let text = read(&root.join("cgroup.controllers"))?;
        let controllers = text.split_whitespace().filter_map(Controller::from_v2).collect();
        Ok(Self { layout: Layout::V2 { root: root.to_owned(), controllers } })
    }

    pub fn version(&self) -> Version {
        match self.layout {
            Layout::V1 { .. } => Version::V1,
            Layout::V2 { .. } => Version::V2,
        }
    }

    /// The controllers that the machine has, whether or not a group uses them.
    pub fn controllers(&self) -> BTreeSet<Controller> {
        match &self.layout {
            Layout::V1 { points, .. } => points.keys().copied().collect(),
            Layout::V2 { controllers, .. } => controllers.clone(),
        }
    }

    /// The mount point of a controller (version 1), or of everything (version 2).
    pub fn point(&self, controller: Controller) -> Option<&Path> {
        match &self.layout {
            Layout::V1 { points, .. } => points.get(&controller).map(PathBuf::as_path),
            Layout::V2 { root, .. } => Some(root),
        }
    }

    /// Every mount point, each once.
    pub fn points(&self) -> Vec<&Path> {
        match &self.layout {
            Layout::V1 { points, .. } => {
                let unique: BTreeSet<&Path> = points.values().map(PathBuf::as_path).collect();
                unique.into_iter().collect()
            }
            Layout::V2 { root, .. } => vec![root],
        }
    }

    /// A group by its path from the root, as in `/proc/PID/cgroup`. It need not exist.
    pub fn group(&self, path: &str) -> Result<Cgroup> {
        Cgroup::new(self, path)
    }

    /// The group that a process is in, as `/proc/PID/cgroup` tells it to us.
    pub fn path_of(&self, pid: u32) -> Result<String> {
        let path = PathBuf::from(format!("/proc/{pid}/cgroup"));
        let text = read(&path)?;
        self.path_in(&text).ok_or(CgroupError::Malformed {
            path,
            text: text.chars().take(80).collect(),
            expected: "a line for one of the mounted hierarchies",
        })
    }

    /// Version 1: of the memory hierarchy, else of any that is mounted.
    fn path_in(&self, text: &str) -> Option<String> {
        let lines: Vec<(&str, &str)> =
            text.lines().filter_map(|line| line.split_once(':')?.1.split_once(':')).collect();
        let of = |wanted: &str| {
            lines
                .iter()
                .find(|(names, _)| names.split(',').any(|name| name == wanted))
                .map(|(_, path)| (*path).to_owned())
        };
        match &self.layout {
            Layout::V2 { .. } => of(""),
            Layout::V1 { points, .. } => of(Controller::Memory.v1_name())
                .or_else(|| points.keys().find_map(|controller| of(controller.v1_name()))),
        }
    }
}
