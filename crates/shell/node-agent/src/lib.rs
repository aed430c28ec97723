//! The node agent's tasks, channels and time.
//!
//! Rule: the shell carries values between ports and decisions; it knows no adapter. Every task has
//! a name, lives in the task tree and ends with it; a panic ends only the task that panicked.
//!
//! ```text
//! sources ─> pods ─> a worker for each pod ─> actions
//!              ▲        ▲  ▲  ▲
//!   observed-pods ──────┘  │  └─ images, volumes, probes, admission
//!   runtime-watch ─> node-state
//! ```

mod actions;
mod admission;
mod agent;
mod back_off;
mod board;
mod branch;
mod cgroup_tree;
mod clock;
mod cluster_node;
mod counted_kills;
pub mod crash_points;
mod garbage;
mod health;
mod hooks;
mod images;
mod log_rotation;
mod loop_beats;
mod memory_kills;
mod metrics;
mod news;
mod node_checks;
mod node_state;
mod observed;
mod own_users;
mod pods;
mod probes;
mod reach;
mod reserved_cgroups;
mod runtime_watch;
mod sources;
mod standalone;
mod task_tree;
mod termination;
mod turns;
mod volumes;
mod watchdog;

pub use agent::{AgentParts, Ended, run};
pub use cluster_node::{ClusterEvents, ClusterParts, ClusterSettings};
pub use images::PullLimits;
pub use log_rotation::LogRotation;
pub use pods::{CgroupSettings, PodPorts, PodSettings, ReservedCgroup};
pub use standalone::PodParts;
pub use task_tree::current_task;
