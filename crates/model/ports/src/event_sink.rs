//! Sinks for events of pods and of the node: a log line, a ring buffer for local clients, an API
//! server.
//!
//! Rule: never blocks, may drop events that are not consumed; a lost event never affects a pod.

use crate::ApiTime;

/// An event of a pod, with the fields of a v1 Event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodEventRecord {
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
pub struct NodeEventRecord {
    pub at: ApiTime,
    pub node: String,
    /// False: `Normal`.
    pub warning: bool,
    pub reason: String,
    pub message: String,
}

pub trait EventSink: Send + Sync {
    fn emit(&self, record: &PodEventRecord);
    /// The default drops events of the node, for sinks that take events of pods only.
    fn emit_node_event(&self, record: &NodeEventRecord) {
        let _ = record;
    }
}
