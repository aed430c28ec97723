//! What tests on real programs need: isolated environments (beds), upstream programs (parts), test
//! images, and a check for what tests leave behind.
//!
//! - [`parts`]: the upstream programs that tests run on, and how they are built into the cache.
//! - [`bed`]: the isolated environment of a test: its own namespaces and cgroups, removed afterwards.
//! - [`start`]: starts containerd, a control plane, a registry, the reference kubelet.
//! - [`leftovers`]: processes, mounts and files that a run leaves on the machine.
//! - [`images`]: test images made from local files.
//! - [`programs`]: programs of this work tree, built for the tests that run them.
//! - [`machine`]: a virtual machine with cgroup v2, in software emulation.
//!
//! Rule: a missing part, or a machine that cannot provide a bed, fails a test; no test is skipped.
#![allow(
    unsafe_code,
    reason = "a bed is made of namespaces and inherited descriptors: fork hooks and raw descriptors"
)]

pub mod bed;
pub mod cache;
pub mod images;
pub mod leftovers;
pub mod machine;
pub mod parts;
pub mod programs;
pub mod start;
