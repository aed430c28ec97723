//! The whole controller on a fake cluster and paused time, rule by rule.
//!
//! The tests check the cluster: what was written, recorded and deleted, by which instance and when.

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
