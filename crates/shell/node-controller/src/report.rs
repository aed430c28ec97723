//! The controller's output: metrics, health, explanations. Values only; the server renders them.

use std::fmt;

pub use ports::metrics::{MetricFamily, MetricKind, Sample};

/// One check of the health endpoints, under upstream's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthState {
    pub name: String,
    /// Why the check fails.
    pub problem: Option<String>,
}

/// The explanation of a node's state. Its text form is for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    pub node: String,
    /// Whether this instance leads; another knows only that it does not.
    pub leading: bool,
    /// One sentence per taint.
    pub taints: Vec<String>,
    /// How far it is from its NoExecute taint, and what delays that.
    pub outlook: String,
    /// Pods to be evicted: namespace and name, and when.
    pub pods: Vec<(String, String)>,
    /// Anything else: its zone, its pod CIDRs, whether its lease is renewed.
    pub notes: Vec<String>,
}

impl fmt::Display for Explanation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "Node {}", self.node)?;
        for taint in &self.taints {
            writeln!(out, "  {taint}")?;
        }
        writeln!(out, "  {}", self.outlook)?;
        for note in &self.notes {
            writeln!(out, "  {note}")?;
        }
        for (pod, when) in &self.pods {
            writeln!(out, "  Pod {pod}: {when}")?;
        }
        Ok(())
    }
}
