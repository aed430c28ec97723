//! The whole controller on a fake cluster and paused time, rule by rule.
//!
//! What is looked at is the cluster: what was written, told and deleted, by whom and when.

mod bad_input;
mod cloud;
mod health;
mod leadership;
mod no_execute;
mod pod_cleanup;
mod range_fence;
mod ranges;
mod stage;
mod zones;
