//! The node agent's tasks, channels and time.
//!
//! Rule: the shell carries values between ports and decisions; it knows no adapter. Every task has
//! a name, lives in the task tree and ends with it; a panic ends only the task that had it.
//! Now: watching the container runtime, the service manager's watchdog, the health endpoint. Pods
//! are not started yet.

mod agent;
mod back_off;
mod health;
mod runtime_watch;
mod task_tree;
mod watchdog;

pub use agent::{AgentParts, Ended, run};
pub use task_tree::current_task;
