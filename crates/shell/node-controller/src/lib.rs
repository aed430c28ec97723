//! The node controller's tasks, channels and time.
//!
//! Rule: one task owns all state and makes all decisions; writes are values that it hands to other
//! tasks and whose outcomes come back to it. It acts only while it leads, and never on a view that
//! it cannot prove complete. Depends on ports and decisions, never on an adapter.

mod api_gate;
mod clock;
mod config;
mod controller;
mod convert;
mod counters;
pub mod crash_points;
mod election;
mod engine;
mod events;
mod lease_freshness;
mod names;
mod pods;
mod report;
mod uid;
mod writes;

pub use clock::SystemEnvironment;
pub use config::{
    ClusterRange, ConfigError, ControllerConfig, EnabledControllers, HealthConfig, LeaderConfig,
    PodCleanupConfig, RangesConfig, WriteConfig,
};
pub use controller::{ApiClients, NodeController};
pub use report::{Explanation, HealthState, MetricFamily, MetricKind, Sample};
