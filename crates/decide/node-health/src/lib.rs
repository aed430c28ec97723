//! The node controller's decisions: node health, taints, evictions, pod CIDRs, leader election.
//!
//! Every function takes facts and `now` as values and returns actions as values; nothing here reads
//! a clock, calls an API server or runs a task. Three rules hold throughout. Silence is measured
//! only while the view is complete, so a controller that was away or disconnected holds that time
//! against no node. A node's own clock is never compared with ours: only the change of a timestamp
//! counts. And nothing is decided on a view older than our own last write.
//!
//! [`lifecycle::NodeLifecycle`] combines health, taints, zones and the eviction queue;
//! [`no_execute`], [`pod_cleanup`], [`cidr`], [`leader`] and [`cloud`] stand alone; [`explain`]
//! prints their state as sentences.

pub mod cidr;
pub mod cloud;
pub mod eviction_queue;
pub mod explain;
pub mod facts;
pub mod health;
pub mod leader;
pub mod lifecycle;
pub mod no_execute;
pub mod observation_clock;
pub mod pod_cleanup;
pub mod taints;
pub mod time;
pub mod zones;

pub use facts::{
    ConditionKind, ConditionState, Conditions, NodeConditionFacts, NodeHealthFacts, NodeId, PodId,
    Taint, TaintKey,
};
pub use time::{ControllerTime, RemoteTime};
