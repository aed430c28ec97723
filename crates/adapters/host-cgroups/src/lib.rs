//! Pods' control groups, made as the configured driver makes them, and what the kernel says of
//! processes that it killed for memory.
//!
//! Rule: names, slices and files are the reference's; a limit is written as it is given. Decides no
//! limit and no quality of service. Calls run apart from the runtime's threads under a limit.

mod groups;
mod kernel_log;
mod kill_counts;
mod memory_kill;
mod operation_times;
mod slices;
mod weight;

pub use cgroup_files::names::Driver;
pub use groups::{CgroupSetup, HostCgroups};
pub use kernel_log::{KernelLog, KernelLogError, Since};
