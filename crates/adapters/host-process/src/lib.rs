//! The agent as a process of this machine: locks, systemd's notifications, its limits, signals.
//!
//! Rule: one file per thing that the kernel or the service manager knows about a process. Nothing
//! here reads the environment or decides what an error means; values come in, results go out.

pub mod agent_claim;
pub mod end_signals;
pub mod kernel_tunables;
pub mod limits;
pub mod lock_file;
pub mod process_metrics;
pub mod program_pages;
pub mod root_lock;
pub mod service_notification;
pub mod shared_mount;
pub mod steady_time;
