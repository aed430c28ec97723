//! Upstream's node suite as the outside judge: with the reference kubelet or with ours, over one CRI
//! runtime or another, and what differs between two such runs.
//!
//! Rule: runs that are compared have the same images, network and specs; only the agent or the
//! runtime differs.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub mod images;
pub mod record;
pub mod results;
pub mod run;

/// The program that runs in the kubelet's place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Agent {
    Reference,
    Keelson,
}

/// The CRI runtime below it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Runtime {
    Containerd,
    Keelson,
}

/// One run of the suite, as the verb asks for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunSettings {
    pub agent: Agent,
    pub runtime: Runtime,
    /// Our program, for the agent, the runtime or both.
    pub keelson: PathBuf,
    /// The file that keeps the results of the newest run.
    pub results: PathBuf,
    /// A label filter of ginkgo; without one, every spec that is not flaky, slow or serial.
    pub labels: Option<String>,
    /// A regular expression on the text of a spec.
    pub focus: Option<String>,
    /// Only what failed in the results that are kept, whose other specs stay as they are.
    pub rerun_failed: bool,
    pub at_once: u32,
}
