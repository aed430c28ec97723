//! What the controller tells about itself: metrics, health, explanations. Values only; rendering is
//! the business of whoever serves them.

use std::fmt;

pub use ports::metrics::{MetricFamily, MetricKind, Sample};

/// One check of the health endpoints, under upstream's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthState {
    pub name: String,
    /// Why it is not well.
    pub problem: Option<String>,
}

/// Why a node is as it is. Its text form is for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    pub node: String,
    /// Whether the answer comes from one that acts; another only knows that it does not lead.
    pub leading: bool,
    /// One sentence each: taints.
    pub taints: Vec<String>,
    /// What holds back, or will bring, its being given up.
    pub outlook: String,
    /// Pods that will go: name with namespace, and when.
    pub pods: Vec<(String, String)>,
    /// Anything else: its zone, its ranges, whether its lease is heard.
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
