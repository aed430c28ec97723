//! Builds the configurations of sandboxes and containers, and cgroup limits, from a pod's
//! specification.
//!
//! Rule: functions from values to values. The pod comes with its defaults filled in and validated;
//! the node's data comes in [`inputs`]; paths that had to be created come in as text. Names, orders
//! and texts are those of the reference, since log shippers, monitors and another kubelet on the
//! same runtime read them. Does not decide when anything happens.
//!
//! For a container: [`contents::wanted`] lists the ConfigMaps and Secrets to fetch,
//! [`environment::make`] builds its variables, [`mounts::wanted_sub_paths`] lists the sub-paths to
//! pin, and [`container::config`] puts everything together. For a sandbox: [`sandbox::config`].

pub mod allocatable;
pub mod cgroups;
pub mod container;
pub mod contents;
pub mod cpu;
pub mod devices;
pub mod dns;
pub mod downward_files;
pub mod env_file;
pub mod environment;
pub mod expansion;
pub mod fields;
pub mod host_name;
pub mod hosts_file;
pub mod huge_pages;
pub mod identity;
pub mod inputs;
pub mod log_paths;
pub mod memory_qos;
pub mod memory_volumes;
pub mod mounts;
pub mod namespaces;
pub mod oom_score;
pub mod pod_resources;
pub mod port_mappings;
pub mod profiles;
pub mod resolv_conf;
pub mod resource_fields;
pub mod resources;
pub mod sandbox;
pub mod security;
pub mod service_environment;
pub mod swap;
pub mod sysctls;
pub mod termination;
pub mod user;

#[cfg(test)]
mod testing;

/// Why a sandbox or a container cannot be set up, for the status and the event, with the
/// reference's text. For a container it is the message beside `CreateContainerConfigError`, for a
/// sandbox the one of the event `FailedCreatePodSandBox`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SetupError(pub String);

/// The waiting reason of a container that cannot be set up.
pub const CONTAINER_CONFIG_REASON: &str = "CreateContainerConfigError";

macro_rules! refuse {
    ($($text:tt)*) => {
        return Err($crate::SetupError(format!($($text)*)))
    };
}
pub(crate) use refuse;

/// `name_namespace(uid)`, as messages call a pod.
// upstream: pkg/kubelet/util/format/pod.go
pub fn pod_text(pod: &pod_model::pod::Pod) -> String {
    let meta = &pod.metadata;
    format!("{}_{}({})", meta.name, meta.namespace, meta.uid)
}
