//! The kernel parameters that a runtime is told to set for a pod.
//!
//! Rule: all that the pod asks for, under their usual names. Whether it may have them was decided
//! when the pod was admitted.

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
