//! Limits of huge pages, named as in the kernel's cgroup files.
//!
//! Rule: every page size of the machine gets a limit; without a request it is zero, so that none
//! can be used.
//!
//! upstream: pkg/kubelet/kuberuntime/kuberuntime_container_linux.go, pkg/kubelet/cm

use std::collections::BTreeMap;

use pod_model::Quantity;
use pod_model::pod::resources::HUGE_PAGES_PREFIX;
use pod_model::pod::{Container, Pod, ResourceList};

use crate::inputs::{MachineProperties, SetupGates};
use crate::pod_resources::pod_level;

#[cfg(test)]
mod tests;

/// The limit of cgroups above pods: effectively unlimited.
const UNBOUNDED: u64 = 1 << 62;

/// `2MB` for 2097152 bytes; none for a size that is no whole number of its largest unit.
pub(crate) fn size_name(bytes: i64) -> Option<String> {
    const UNITS: [&str; 6] = ["B", "KB", "MB", "GB", "TB", "PB"];
    let (mut size, mut unit) = (bytes, 0);
    while size % 1024 == 0 && unit < UNITS.len() - 1 {
        size /= 1024;
        unit += 1;
    }
    (size > 0 && size <= 1024).then(|| format!("{size}{}", UNITS[unit]))
}

/// Amounts by the kernel's name of their page size.
fn by_size(list: &ResourceList) -> BTreeMap<String, u64> {
    let mut sizes = BTreeMap::new();
    for (name, amount) in list.iter() {
        let size = name.strip_prefix(HUGE_PAGES_PREFIX).and_then(|size| Quantity::parse(size).ok());
        if let Some(size) = size.and_then(|size| size_name(size.value())) {
            let sum: &mut u64 = sizes.entry(size).or_default();
            *sum = sum.saturating_add(u64::try_from(amount.value()).unwrap_or(0));
        }
    }
    sizes
}

fn for_machine(machine: &MachineProperties, wanted: &BTreeMap<String, u64>) -> Vec<(String, u64)> {
    let sizes = machine.huge_page_sizes.iter();
    sizes.map(|size| (size.clone(), wanted.get(size).copied().unwrap_or(0))).collect()
}

/// A container's own limits override the pod's.
pub fn of_container(
    pod: &Pod,
    container: &Container,
    machine: &MachineProperties,
    gates: &SetupGates,
) -> Vec<(String, u64)> {
    let mut wanted = pod_level(pod, gates)
        .map(|pod_level_resources| by_size(&pod_level_resources.limits))
        .unwrap_or_default();
    wanted.extend(by_size(&container.resources.limits));
    for_machine(machine, &wanted)
}

/// From the pod's total requests.
pub(crate) fn of_requests(
    requests: &ResourceList,
    machine: &MachineProperties,
) -> Vec<(String, u64)> {
    for_machine(machine, &by_size(requests))
}

/// For the cgroups above the pods.
pub(crate) fn unbounded(machine: &MachineProperties) -> Vec<(String, u64)> {
    machine.huge_page_sizes.iter().map(|size| (size.clone(), UNBOUNDED)).collect()
}
