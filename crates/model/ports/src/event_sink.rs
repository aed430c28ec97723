//! Where events of pods and of the node go: a log line, a ring for people at this machine, an API server.
//!
//! Rule: quick, never waits, may lose what nobody takes; a lost event never matters to a pod.

use crate::ApiTime;

/// An event of a pod, as v1 events have it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodOccurrence {
    pub at: ApiTime,
    pub namespace: String,
    pub name: String,
    pub uid: String,
    /// False: `Normal`.
    pub warning: bool,
    pub reason: String,
    pub message: String,
    /// Such as `spec.containers{web}`.
    pub field_path: Option<String>,
}

/// An event of the node itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeOccurrence {
    pub at: ApiTime,
    pub node: String,
    /// False: `Normal`.
    pub warning: bool,
    pub reason: String,
    pub message: String,
}

pub trait EventSink: Send + Sync {
    fn tell(&self, occurrence: &PodOccurrence);
    /// Who is there for pods alone hears nothing of the node.
    fn tell_of_node(&self, occurrence: &NodeOccurrence) {
        let _ = occurrence;
    }
}
