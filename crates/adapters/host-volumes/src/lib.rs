//! Volumes that the machine itself provides: emptyDir on disk, in memory and on huge pages,
//! hostPath, files that the agent writes, and the sub-paths of any volume.
//!
//! Rule: paths and files are laid out as upstream lays them out, so that either agent can adopt the
//! other's volumes. Nothing below a volume is trusted: the kernel resolves beneath it, and what was
//! found is pinned by its descriptor, not by its name. Nothing is removed through a mount.
//!
//! Where it runs: a step that touches only the agent's own directories runs on a thread of its own.
//! A step that touches other file systems (a hostPath on a dead server) runs in a process, because
//! a thread that hangs in the kernel cannot be killed and would keep the whole agent from exiting;
//! the binary executes itself as that process and calls [`answer_step`] there.

mod driver;
mod empty_dir;
mod host_path;
mod layout;
mod mounting;
mod ownership;
mod payload;
mod step_error;
mod steps;
mod sub_path;
mod tear_down;

#[cfg(test)]
mod tests;

pub use driver::{HostVolumes, StepProgram};
pub use steps::answer_step;
