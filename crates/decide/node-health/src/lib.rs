//! The node controller's decisions: who is silent, what is tainted, who goes and when.
//!
//! Every step takes facts and `now` as values and returns actions as values; nothing here reads a
//! clock, talks to an API server or keeps a task. Three rules hold throughout. Silence is measured
//! only while we were looking, so a controller that was away, or could not see, condemns nobody for
//! that time. A node's own clock is never compared with ours: only that a stamp changed counts. And
//! nothing acts on a view that is older than our own last write.
//!
//! [`lifecycle::NodeLifecycle`] puts health, taints, zones and the eviction queue together;
//! [`no_execute`], [`pod_cleanup`], [`cidr`], [`leader`] and [`cloud`] stand alone; [`explain`] puts
//! their state into sentences.

pub mod attention;
pub mod cidr;
pub mod cloud;
pub mod eviction_queue;
pub mod explain;
pub mod facts;
pub mod health;
pub mod leader;
pub mod lifecycle;
pub mod no_execute;
pub mod pod_cleanup;
pub mod taints;
pub mod time;
pub mod zones;

pub use facts::{
    Condition, ConditionKind, Conditions, NodeFacts, NodeId, PodId, Taint, TaintKey, Truth,
};
pub use time::{Moment, Stamp};
