//! Capacity and allocatable.
//!
//! Rule: capacity is the machine's, the maximum of pods and the devices'; allocatable is capacity
//! without the reservation and, of memory, without huge pages; nothing falls below zero. Resources
//! added to the capacity by others stay as they are.
//!
//! upstream: pkg/kubelet/nodestatus/setters.go (MachineInfo)

use pod_model::{Quantity, QuantityFormat};

use crate::object::{
    DeviceResources, FullNodeStatus, MachineResources, NodeSettings, NodeStatusInputs,
    is_extended_resource, is_huge_page_resource,
};

pub(crate) const CPU: &str = "cpu";
pub(crate) const MEMORY: &str = "memory";
pub(crate) const PODS: &str = "pods";
pub(crate) const EPHEMERAL_STORAGE: &str = "ephemeral-storage";

pub(crate) fn fill(status: &mut FullNodeStatus, settings: &NodeSettings, facts: &NodeStatusInputs) {
    fill_capacity(status, settings, facts);
    fill_allocatable(status, facts);
}

fn fill_capacity(status: &mut FullNodeStatus, settings: &NodeSettings, facts: &NodeStatusInputs) {
    let units = |amount| Quantity::from_units(amount, QuantityFormat::DecimalSi);
    let bytes = |amount| Quantity::from_units(amount, QuantityFormat::BinarySi);
    let capacity = &mut status.capacity;
    let unreadable = MachineResources::default();
    let machine = facts.machine.as_ref();
    let pods = match machine {
        Some(machine) if settings.pods_per_core > 0 => {
            settings.max_pods.min(machine.cpus.saturating_mul(settings.pods_per_core))
        }
        _ => settings.max_pods,
    };
    capacity.insert(PODS.to_owned(), units(pods));
    let MachineResources { cpus, memory, huge_pages, .. } = machine.unwrap_or(&unreadable);
    capacity.insert(CPU.to_owned(), units(*cpus));
    capacity.insert(MEMORY.to_owned(), bytes(*memory));
    for (name, amount) in huge_pages {
        capacity.insert(name.clone(), bytes(*amount));
    }
    if machine.is_none() {
        return;
    }
    if let Some(amount) = facts.ephemeral_storage {
        capacity.insert(EPHEMERAL_STORAGE.to_owned(), bytes(amount));
    }
    let DeviceResources { capacity: devices, removed, .. } = &facts.devices;
    capacity.extend(devices.iter().map(|(name, amount)| (name.clone(), *amount)));
    // Zero rather than absent: the resource is a plugin's and not a cluster's own.
    capacity.extend(removed.iter().map(|name| (name.clone(), Quantity::ZERO)));
}

fn fill_allocatable(status: &mut FullNodeStatus, facts: &NodeStatusInputs) {
    let FullNodeStatus { capacity, allocatable, .. } = status;
    allocatable.retain(|name, _| capacity.contains_key(name) || !is_extended_resource(name));
    for (name, amount) in &*capacity {
        let reserved = facts.reservation.get(name);
        let left = reserved.map_or(*amount, |reserved| without(amount, reserved));
        allocatable.insert(name.clone(), clamp_to_zero(left));
    }
    for (name, amount) in &facts.devices.allocatable {
        allocatable.insert(name.clone(), *amount);
    }
    let huge_pages = capacity.iter().filter(|(name, _)| is_huge_page_resource(name));
    for (_, amount) in huge_pages {
        if let Some(memory) = allocatable.get_mut(MEMORY) {
            *memory = clamp_to_zero(without(memory, amount));
        }
    }
}

fn without(amount: &Quantity, less: &Quantity) -> Quantity {
    amount.checked_sub(less).unwrap_or(Quantity::ZERO).with_format(amount.format())
}

fn clamp_to_zero(amount: Quantity) -> Quantity {
    if amount.sign() < 0 { Quantity::from_units(0, amount.format()) } else { amount }
}

#[cfg(test)]
mod tests;
