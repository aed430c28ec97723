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
mod call_limiter;
mod certificates;
mod cgroup_tree;
mod clock;
mod cluster_node;
mod cluster_pods;
mod contents;
pub mod crash_points;
mod garbage;
mod health;
mod hooks;
mod images;
mod keyed_tasks;
mod log_rotation;
mod loop_heartbeats;
mod metrics;
mod node_checks;
mod node_state;
mod observed;
mod oom_counts;
mod oom_kills;
mod plugins;
mod pod_tasks;
mod pods;
mod probes;
mod reserved_cgroups;
mod resolve_handler;
mod runtime_watch;
mod sources;
mod status_store;
mod task_tree;
mod termination;
mod user_namespaces;
mod volumes;
mod watchdog;
mod worker_events;

pub use agent::{AgentDependencies, AgentExit, run};
pub use certificates::{CertificateDependencies, ManagedClientCertificate};
pub use cluster_node::{ClusterDependencies, ClusterEventQueue, ClusterSettings};
pub use contents::ContentChangeStrategy;
pub use images::PullLimits;
pub use log_rotation::LogRotation;
pub use plugins::{DeviceDependencies, PluginDependencies};
pub use pod_tasks::PodDependencies;
pub use pods::{CgroupSettings, PodPorts, PodSettings, ReservedCgroup};
pub use task_tree::current_task;
