//! Tests on real parts: they need root, and build the parts they use.

pub mod cluster;
pub mod cold_program;
pub mod config_cases;
pub mod container_setup;
pub mod could_not_run;
pub mod cri_bench;
pub mod embedded;
pub mod leftover_check;
pub mod metric_families;
pub mod node_controller;
pub mod node_specs;
pub mod pod_differential;
pub mod promises;
pub mod standalone;
pub mod version_only_runtime;
