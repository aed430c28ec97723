//! Upstream's node suite as an independent test: with the reference kubelet or the agent, over one
//! CRI runtime or another, and the differences between two such runs.
//!
//! Rule: runs that are compared have the same images, network and specs; only the agent or the
//! runtime differs.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub mod images;
pub mod record;
pub mod results;
pub mod run;

/// The node agent that the suite runs against.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AgentUnderTest {
    Reference,
    Keelson,
}

/// The CRI runtime that the agent uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RuntimeUnderTest {
    Containerd,
    Keelson,
}

/// Settings of one run of the suite, from the command line of `cargo xtask conformance node`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunSettings {
    pub agent: AgentUnderTest,
    pub runtime: RuntimeUnderTest,
    /// The Keelson binary, for the agent, the runtime or both.
    pub keelson: PathBuf,
    /// The file that keeps the results of the newest run.
    pub results: PathBuf,
    /// A label filter of ginkgo; without one, every spec that is not flaky, slow or serial.
    pub labels: Option<String>,
    /// A regular expression on the text of a spec.
    pub focus: Option<String>,
    /// Run only what failed in the stored results; the other specs keep their results.
    pub rerun_failed: bool,
    /// How many specs run in parallel.
    pub at_once: u32,
}
