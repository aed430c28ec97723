//! The machine's cgroup hierarchies: which there are, where, and with which controllers.
//!
//! Rule: detected once and then passed around. A hybrid machine counts as version 1, because that
//! is where its controllers are. Changes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use mount_table::MountTable;

use crate::error::{CgroupError, Result, read, read_bytes};
use crate::group::Cgroup;

#[cfg(test)]
mod tests;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CgroupVersion {
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
    /// Version 1's `name=systemd`: no controller, but the hierarchy in which systemd tracks
    /// processes.
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
pub struct CgroupHierarchies {
    pub(crate) layout: CgroupLayout,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CgroupLayout {
    V1 {
        /// Where each controller's hierarchy is mounted; several may share one.
        points: BTreeMap<Controller, PathBuf>,
        /// A cgroup2 mount without controllers besides them.
        unified: Option<PathBuf>,
    },
    V2 {
        root: PathBuf,
        controllers: BTreeSet<Controller>,
    },
}

impl CgroupHierarchies {
    /// Detects the hierarchies that this process sees mounted under `/sys/fs/cgroup`.
    pub fn detect() -> Result<Self> {
        let path = Path::new(mount_table::PATH);
        let table = MountTable::read()
            .map_err(|source| CgroupError::Read { path: path.to_owned(), source })?;
        Self::from_mounts(&table, Path::new("/sys/fs/cgroup"))
    }

    /// The hierarchies that a mount table has at or beneath `base`.
    pub fn from_mounts(table: &MountTable, base: &Path) -> Result<Self> {
        let below = table.mounts().filter(|mount| mount.point.starts_with(base));
        let (unified, separate): (Vec<_>, Vec<_>) = below
            .filter(|mount| mount.is_of_type("cgroup2") || mount.is_of_type("cgroup"))
            .partition(|mount| mount.is_of_type("cgroup2"));
        if let Some(root) = unified.iter().rfind(|mount| mount.point == base) {
            return Self::unified(&root.point);
        }
        let mut points = BTreeMap::new();
        for mount in &separate {
            let names = mount.options().filter_map(|name| name.to_str());
            for controller in names.filter_map(Controller::from_v1) {
                points.insert(controller, mount.point.to_path_buf());
            }
        }
        if points.is_empty() {
            return Err(CgroupError::NotMounted(base.to_owned()));
        }
        let unified = unified.first().map(|mount| mount.point.to_path_buf());
        Ok(Self { layout: CgroupLayout::V1 { points, unified } })
    }

    /// A version 2 hierarchy whose root is this directory.
    pub fn unified(root: &Path) -> Result<Self> {
        let text = read(&root.join("cgroup.controllers"))?;
        let controllers = text.split_whitespace().filter_map(Controller::from_v2).collect();
        Ok(Self { layout: CgroupLayout::V2 { root: root.to_owned(), controllers } })
    }

    pub fn version(&self) -> CgroupVersion {
        match self.layout {
            CgroupLayout::V1 { .. } => CgroupVersion::V1,
            CgroupLayout::V2 { .. } => CgroupVersion::V2,
        }
    }

    /// The controllers that the machine has, whether or not a cgroup uses them.
    pub fn controllers(&self) -> BTreeSet<Controller> {
        match &self.layout {
            CgroupLayout::V1 { points, .. } => points.keys().copied().collect(),
            CgroupLayout::V2 { controllers, .. } => controllers.clone(),
        }
    }

    /// The mount point of a controller (version 1), or of the one hierarchy (version 2).
    pub fn point(&self, controller: Controller) -> Option<&Path> {
        match &self.layout {
            CgroupLayout::V1 { points, .. } => points.get(&controller).map(PathBuf::as_path),
            CgroupLayout::V2 { root, .. } => Some(root),
        }
    }

    /// Every mount point, each once.
    pub fn points(&self) -> Vec<&Path> {
        match &self.layout {
            CgroupLayout::V1 { points, .. } => {
                let unique: BTreeSet<&Path> = points.values().map(PathBuf::as_path).collect();
                unique.into_iter().collect()
            }
            CgroupLayout::V2 { root, .. } => vec![root],
        }
    }

    /// A cgroup by its path from the root, as in `/proc/PID/cgroup`. It need not exist.
    pub fn group(&self, path: &str) -> Result<Cgroup> {
        Cgroup::new(self, path)
    }

    /// The cgroup that a process is in, from `/proc/PID/cgroup`.
    pub fn path_of(&self, pid: u32) -> Result<String> {
        let path = PathBuf::from(format!("/proc/{pid}/cgroup"));
        let bytes = read_bytes(&path)?;
        self.path_in(&bytes).ok_or_else(|| CgroupError::Malformed {
            path,
            text: String::from_utf8_lossy(&bytes).chars().take(80).collect(),
            expected: "a line for one of the mounted hierarchies",
        })
    }

    /// Version 1: of the memory hierarchy, else of any that is mounted. A path that is not UTF-8 is
    /// ignored, without affecting the other hierarchies.
    fn path_in(&self, table: &[u8]) -> Option<String> {
        let lines: Vec<(&str, &str)> = table
            .split(|byte| *byte == b'\n')
            .filter_map(|line| str::from_utf8(line).ok())
            .filter_map(|line| line.split_once(':')?.1.split_once(':'))
            .collect();
        let of = |wanted: &str| {
            lines
                .iter()
                .find(|(names, _)| names.split(',').any(|name| name == wanted))
                .map(|(_, path)| (*path).to_owned())
        };
        match &self.layout {
            CgroupLayout::V2 { .. } => of(""),
            CgroupLayout::V1 { points, .. } => of(Controller::Memory.v1_name())
                .or_else(|| points.keys().find_map(|controller| of(controller.v1_name()))),
        }
    }
}
