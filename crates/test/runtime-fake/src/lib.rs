//! A container runtime and a host in memory, with injectable faults.
//!
//! Rule: where it matters they behave as containerd does: a stopped sandbox takes its containers
//! with it, stopping what has stopped succeeds, a second container of the same name and attempt in
//! a sandbox is refused. Faults that a test can add: calls that fail or hang, events that are lost
//! or delivered twice, a runtime that is unavailable. Time is the test's clock.

mod behaviour;
mod contents;
mod controls;
mod events;
mod host;
mod kernel_log;
mod manifests;
mod periodic_tasks;
mod programs;
mod runtime;

pub use behaviour::{Behaviour, Fault};
pub use contents::FakeContents;
pub use host::FakeHost;
pub use kernel_log::{FakeKernelLog, FakeOomKill};
pub use manifests::ScriptedManifests;
pub use periodic_tasks::FakePeriodicTasks;
pub use programs::FakeCredentialPrograms;
pub use runtime::FakeRuntime;
