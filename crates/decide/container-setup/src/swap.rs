//! How much swap a container may use.
//!
//! Rule: none, unless the node allows it, the kernel can limit it, and the container is in a
//! burstable pod and requests memory below its limit; then it gets the same share of the node's
//! swap as of the node's memory.
//!
//! upstream: pkg/kubelet/kuberuntime/kuberuntime_container_linux.go

use pod_model::pod::resources::{MEMORY, qos_class};
use pod_model::pod::{Container, Pod, QosClass};
use ports::runtime_objects::LinuxResources;

use crate::inputs::{NodeSetupInputs, SwapBehavior};
use crate::pod_resources::amount;

#[cfg(test)]
mod tests;

const SWAP_FILE: &str = "memory.swap.max";

/// Sets the limit where the kernel supports it.
pub fn apply(
    resources: &mut LinuxResources,
    pod: &Pod,
    container: &Container,
    node: &NodeSetupInputs,
) {
    let machine = &node.machine;
    if !machine.swap_controller {
        return;
    }
    if !machine.cgroup_v2 {
        // The limit of memory and swap together; equal to that of memory it leaves no swap.
        resources.memory_swap_limit = resources.memory_limit;
        return;
    }
    let swap = if is_limited(pod, container, node) { part_of(container, node) } else { 0 };
    resources.unified.insert(SWAP_FILE.to_owned(), swap.to_string());
}

fn is_limited(pod: &Pod, container: &Container, node: &NodeSetupInputs) -> bool {
    let request = amount(&container.resources.requests, MEMORY);
    let limit = amount(&container.resources.limits, MEMORY);
    node.limits.swap == SwapBehavior::LimitedSwap
        && !pod.is_critical()
        && qos_class(pod) == QosClass::Burstable
        && !(request.is_zero() && limit.is_zero())
        && request != limit
}

/// In whole bytes; exact, where the reference uses floating point.
fn part_of(container: &Container, node: &NodeSetupInputs) -> i64 {
    let request = amount(&container.resources.requests, MEMORY).value();
    let (memory, swap) = (node.machine.memory_bytes, node.machine.swap_bytes);
    if memory <= 0 || request > memory {
        return 0;
    }
    let part = i128::from(request) * i128::from(swap) / i128::from(memory);
    i64::try_from(part).unwrap_or(i64::MAX)
}
