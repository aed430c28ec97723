//! Pods' cgroups, created as the configured driver does, and the kernel's reports of OOM kills.
//!
//! Rule: names, slices and files are upstream's; a limit is written as it is given. Decides no
//! limit and no QoS class. Calls run on threads of their own, apart from the async runtime's, with
//! a limit.

mod groups;
mod kernel_log;
mod oom_kill_counts;
mod oom_kill_log;
mod operation_times;
mod slices;
mod weight;

pub use cgroup_files::names::CgroupManager;
pub use groups::{CgroupSetup, HostCgroups};
pub use kernel_log::{KernelLog, KernelLogError, KernelLogStart};
