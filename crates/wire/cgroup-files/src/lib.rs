//! Cgroups as files: create, add a process, limit, kill, watch and measure, on version 1, hybrid
//! and version 2 machines.
//!
//! Rule: every function takes the [`CgroupHierarchies`] that it works on, so a directory of plain files can
//! stand in for the kernel in a test; every error names the file and the value. Decides no limit
//! and knows no pod; does not talk to systemd (it knows how systemd names a cgroup, see [`names`]).

mod devices;
mod error;
mod events;
mod group;
mod hierarchy;
mod limits;
pub mod names;
mod stats;
mod swap;

pub use devices::{DeviceAccess, DeviceKind, DeviceRule};
pub use error::{CgroupError, Result};
pub use events::MemoryEventsWatch;
pub use group::{Cgroup, CgroupProcsFiles};
pub use hierarchy::{CgroupHierarchies, CgroupVersion, Controller};
pub use limits::{CgroupResources, HugePageLimit, weight_of_shares};
pub use stats::{
    CgroupStats, CpuStats, DeviceIo, HugePageStats, MemoryStats, PidsStats, PsiData, PsiStats,
};
pub use swap::can_limit_swap;
