//! Upstream's node specs under the reference kubelet, over one CRI runtime or another, and what
//! differs between two such runs.
//!
//! Rule: both runs have the same kubelet, images, network and specs; only the runtime is another.

pub mod images;
pub mod results;
pub mod run;
