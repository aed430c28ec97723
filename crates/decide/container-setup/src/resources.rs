//! Resource settings of containers and sandboxes for the runtime.
//!
//! Rule: a missing request equals the limit; a limit of zero is none. On cgroup v2 the OOM killer
//! ends the whole container, unless the node is configured to kill single processes.
//!
//! upstream: pkg/kubelet/kuberuntime/kuberuntime_container_linux.go, kuberuntime_sandbox_linux.go

use pod_model::Quantity;
use pod_model::pod::resources::{CPU, MEMORY, ResourceSide};
use pod_model::pod::{Container, Pod};
use ports::runtime_objects::LinuxResources;

use crate::inputs::{NodeSetupInputs, PodSetupInputs};
use crate::pod_resources::{amount, limit_of, without_overhead};
use crate::{cpu, huge_pages, memory_qos, oom_score, swap};

#[cfg(test)]
mod tests;

const WHOLE_CONTAINER_ENDS: (&str, &str) = ("memory.oom.group", "1");

struct Amounts {
    cpu_request: Option<Quantity>,
    cpu_limit: Quantity,
    memory_limit: Quantity,
    /// No quota for exclusive CPUs.
    without_quota: bool,
}

/// `exclusive_cpus`: the container has exclusive CPUs.
pub fn of_container(
    pod: &Pod,
    container: &Container,
    node: &NodeSetupInputs,
    exclusive_cpus: bool,
) -> LinuxResources {
    let mut resources = made(
        &Amounts {
            cpu_request: container.resources.requests.get(CPU).copied(),
            cpu_limit: limit_of(pod, container, &node.gates, CPU),
            memory_limit: limit_of(pod, container, &node.gates, MEMORY),
            without_quota: exclusive_cpus,
        },
        node,
    );
    resources.oom_score_adj = oom_score::of_container(pod, container, node);
    resources.hugepage_limits =
        huge_pages::of_container(pod, container, &node.machine, &node.gates);
    swap::apply(&mut resources, pod, container, node);
    resources.unified.extend(memory_qos::of_container(pod, container, node));
    resources
}

/// The pod's total, without overhead.
pub fn of_sandbox(pod: &Pod, node: &NodeSetupInputs, facts: &PodSetupInputs) -> LinuxResources {
    let requests = without_overhead(pod, &node.gates, ResourceSide::Requests);
    let limits = without_overhead(pod, &node.gates, ResourceSide::Limits);
    let amounts = Amounts {
        cpu_request: requests.get(CPU).copied(),
        cpu_limit: amount(&limits, CPU),
        memory_limit: amount(&limits, MEMORY),
        without_quota: facts.exclusive_cpus,
    };
    made(&amounts, node)
}

/// The pod's overhead, as request and limit alike.
pub fn of_overhead(pod: &Pod, node: &NodeSetupInputs) -> LinuxResources {
    let overhead = &pod.spec.overhead;
    if overhead.is_empty() {
        return LinuxResources::default();
    }
    let cpu = amount(overhead, CPU);
    let amounts = Amounts {
        cpu_request: Some(cpu),
        cpu_limit: cpu,
        memory_limit: amount(overhead, MEMORY),
        without_quota: false,
    };
    made(&amounts, node)
}

/// The period in microseconds that quotas on this node are counted in.
pub(crate) fn cpu_period(node: &NodeSetupInputs) -> i64 {
    if node.gates.custom_cpu_period { node.limits.cpu_period } else { cpu::DEFAULT_PERIOD }
}

fn made(amounts: &Amounts, node: &NodeSetupInputs) -> LinuxResources {
    let request = amounts.cpu_request.unwrap_or(amounts.cpu_limit);
    let mut resources = LinuxResources {
        cpu_shares: cpu::shares(request.milli_value()),
        memory_limit: amounts.memory_limit.value(),
        ..LinuxResources::default()
    };
    if node.limits.cpu_quota {
        resources.cpu_period = cpu_period(node);
        resources.cpu_quota = if amounts.without_quota {
            -1
        } else {
            cpu::quota(amounts.cpu_limit.milli_value(), resources.cpu_period)
        };
    }
    if node.machine.cgroup_v2 && !node.limits.single_process_oom_kill {
        let (file, value) = WHOLE_CONTAINER_ENDS;
        resources.unified.insert(file.to_owned(), value.to_owned());
    }
    resources
}
