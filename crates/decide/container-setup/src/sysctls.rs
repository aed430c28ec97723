//! The sysctls that a runtime sets for a pod.
//!
//! Rule: all that the pod asks for, by their usual names. Whether they are allowed was decided at
//! admission.

use pod_model::pod::Pod;
use pod_model::pod::security::sysctl_name;
use ports::runtime_objects::Labels;

#[cfg(test)]
mod tests;

pub fn of_pod(pod: &Pod) -> Labels {
    let shared = pod.spec.security_context.as_deref();
    let sysctls = shared.into_iter().flat_map(|it| &it.sysctls);
    sysctls.map(|sysctl| (sysctl_name(&sysctl.name), sysctl.value.to_string())).collect()
}
