//! The tree of cgroups above containers: names and limits.
//!
//! Rule: `kubepods`, beneath it a cgroup for each pod and one for each of the two lower QoS classes
//! with their pods in it. A class weighs as much as its pods request.
//!
//! upstream: pkg/kubelet/cm/qos_container_manager_linux.go, pod_container_manager_linux.go,
//! node_container_manager_linux.go

use pod_model::pod::resources::{CPU, MEMORY, qos_class};
use pod_model::pod::{Pod, QosClass, ResourceList};
use ports::pod_host::CgroupLimits;

use crate::inputs::{NodeSetupInputs, PodSetupInputs};
use crate::pod_resources::{amount, limits, pod_level, requests};
use crate::{cpu, huge_pages, memory_qos, resources};

#[cfg(test)]
mod tests;

/// The name of the cgroup of all pods beneath the root that was configured.
pub const ALL_PODS: &str = "kubepods";
const BURSTABLE: &str = "burstable";
const BEST_EFFORT: &str = "besteffort";
const POD_PREFIX: &str = "pod";
/// The resource name under which process numbers are reserved.
pub const PIDS: &str = "pid";

/// A cgroup's name as a list of its parts.
pub type PodCgroupName = Vec<String>;

/// The cgroup of all pods; `root` is the parts of `cgroupRoot`.
pub fn all_pods(root: &[String]) -> PodCgroupName {
    with(root, ALL_PODS)
}

/// The cgroup of a QoS class.
pub fn of_class(root: &[String], class: &QosClass) -> PodCgroupName {
    match class {
        QosClass::Burstable => with(&all_pods(root), BURSTABLE),
        QosClass::BestEffort => with(&all_pods(root), BEST_EFFORT),
        QosClass::Guaranteed | QosClass::Other(_) => all_pods(root),
    }
}

/// A pod's own cgroup.
pub fn of_pod(root: &[String], pod: &Pod) -> PodCgroupName {
    with(&of_class(root, &qos_class(pod)), &format!("{POD_PREFIX}{}", pod.metadata.uid))
}

/// The UID in the last part of a pod's cgroup name.
pub fn uid_of_name(last: &str) -> Option<&str> {
    last.strip_prefix(POD_PREFIX).filter(|uid| !uid.is_empty())
}

fn with(parent: &[String], last: &str) -> PodCgroupName {
    parent.iter().cloned().chain([last.to_owned()]).collect()
}

/// The limits of a pod's cgroup.
pub fn pod_limits(pod: &Pod, node: &NodeSetupInputs, facts: &PodSetupInputs) -> CgroupLimits {
    let asked = requests(pod, &node.gates);
    let allowed = limits(pod, &node.gates);
    let class = qos_class(pod);
    let period = resources::cpu_period(node);
    let shares = match class {
        QosClass::BestEffort => cpu::MIN_SHARES,
        _ => cpu::shares(amount(&asked, CPU).milli_value()),
    };
    let is_limited = |name: &str| match class {
        QosClass::Guaranteed => true,
        QosClass::BestEffort => false,
        QosClass::Burstable | QosClass::Other(_) => is_limit_declared(pod, node, name),
    };
    let has_quota = node.limits.cpu_quota && !facts.exclusive_cpus;
    let quota =
        if has_quota { cpu::quota(amount(&allowed, CPU).milli_value(), period) } else { -1 };
    CgroupLimits {
        cpu_shares: u64::try_from(shares).ok(),
        cpu_quota: is_limited(CPU).then_some(quota),
        cpu_period: u64::try_from(period).ok().filter(|_| is_limited(CPU)),
        memory_bytes: is_limited(MEMORY).then(|| amount(&allowed, MEMORY).value()),
        pids: Some(node.limits.pod_pids).filter(|most| *most > 0),
        hugepages: huge_pages::of_requests(&asked, &node.machine),
        unified: memory_qos::of_pod(pod, node),
    }
}

/// Whether the pod as a whole has a limit: it sets one, or each of its containers does. An init
/// container counts together with the sidecars before it, since it runs beside them.
fn is_limit_declared(pod: &Pod, node: &NodeSetupInputs, name: &str) -> bool {
    let has = |list: &ResourceList| !amount(list, name).is_zero();
    if pod_level(pod, &node.gates)
        .is_some_and(|pod_level_resources| has(&pod_level_resources.limits))
    {
        return true;
    }
    let mut is_sidecar_limited = false;
    pod.spec.containers.iter().all(|container| has(&container.resources.limits))
        && pod.spec.init_containers.iter().all(|container| {
            let is_limited = is_sidecar_limited || has(&container.resources.limits);
            is_sidecar_limited |= container.is_restarted_always() && is_limited;
            is_limited
        })
}

/// The limits of the QoS classes' cgroups.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClassLimits {
    /// For the cgroup of all pods, beside [`all_pods_limits`].
    pub guaranteed: CgroupLimits,
    pub burstable: CgroupLimits,
    pub best_effort: CgroupLimits,
}

/// `pods` are those that were admitted and have not terminated.
pub fn class_limits<'p>(
    pods: impl IntoIterator<Item = &'p Pod>,
    node: &NodeSetupInputs,
) -> ClassLimits {
    let (mut burstable_cpu, mut burstable_memory, mut guaranteed_memory) = (0_i64, 0_i64, 0_i64);
    for pod in pods {
        let asked = requests(pod, &node.gates);
        let memory = amount(&asked, MEMORY).value();
        match qos_class(pod) {
            QosClass::Burstable => {
                burstable_cpu = burstable_cpu.saturating_add(amount(&asked, CPU).milli_value());
                burstable_memory = burstable_memory.saturating_add(memory);
            }
            QosClass::Guaranteed => guaranteed_memory = guaranteed_memory.saturating_add(memory),
            QosClass::BestEffort | QosClass::Other(_) => {}
        }
    }
    let (all, burstable) = memory_qos::of_classes(node, guaranteed_memory, burstable_memory);
    let hugepages = huge_pages::unbounded(&node.machine);
    let made = |shares: Option<i64>, unified| CgroupLimits {
        cpu_shares: shares.and_then(|shares| u64::try_from(shares).ok()),
        hugepages: hugepages.clone(),
        unified,
        ..CgroupLimits::default()
    };
    ClassLimits {
        guaranteed: made(None, all),
        burstable: made(Some(cpu::shares(burstable_cpu)), burstable),
        best_effort: made(Some(cpu::MIN_SHARES), Vec::new()),
    }
}

/// The cgroup of all pods: what they may use together (see `allocatable::enforced`).
pub fn all_pods_limits(allocatable: &ResourceList, node: &NodeSetupInputs) -> CgroupLimits {
    CgroupLimits {
        hugepages: huge_pages::unbounded(&node.machine),
        ..from_amounts(allocatable, false)
    }
}

/// The cgroup in which something is reserved for the system or the node's own services;
/// `only_compressible` leaves memory and processes alone.
pub fn reserved_limits(
    reserved: &ResourceList,
    only_compressible: bool,
    node: &NodeSetupInputs,
) -> CgroupLimits {
    let mut limits = from_amounts(reserved, only_compressible);
    if let Some(memory) = limits.memory_bytes {
        limits.unified = memory_qos::of_reserved(node, memory);
    }
    if !only_compressible {
        limits.hugepages = huge_pages::of_requests(reserved, &node.machine);
    }
    limits
}

fn from_amounts(list: &ResourceList, only_compressible: bool) -> CgroupLimits {
    let whole =
        |name: &str| list.get(name).filter(|_| !only_compressible).map(pod_model::Quantity::value);
    let shares = list.get(CPU).map(|amount| cpu::shares(amount.milli_value()));
    CgroupLimits {
        cpu_shares: shares.and_then(|shares| u64::try_from(shares).ok()),
        memory_bytes: whole(MEMORY),
        pids: whole(PIDS),
        ..CgroupLimits::default()
    }
}
