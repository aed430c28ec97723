//! Beds, real parts and images for tests; the check for what tests leave behind.
//!
//! - [`parts`]: the upstream programs that tests run on, and how they are built into the cache.
//! - [`bed`]: where a real-part test runs: namespaces and cgroups of its own, gone afterwards.
//! - [`start`]: starters of containerd, a control plane, a registry, the reference kubelet.
//! - [`leftovers`]: what a machine holds before and after a run, and the difference.
//! - [`images`]: test images made from local files.
//! - [`programs`]: programs of this work tree, built for the tests that run them.
//! - [`machine`]: the cgroup v2 machine in software emulation.
//!
//! Rule: a part that is missing, or a machine that cannot give a bed, fails a test; it never skips.
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
