//! The node resources available to pods.
//!
//! Rule: capacity minus the reservations for the system and for the node's own services. That is
//! what the kernel enforces; the scheduler sees that minus the eviction thresholds and, for memory,
//! minus huge pages. Nothing falls below zero.
//!
//! upstream: pkg/kubelet/cm/node_container_manager_linux.go, pkg/kubelet/nodestatus/setters.go

use pod_model::pod::ResourceList;
use pod_model::pod::resources::{HUGE_PAGES_PREFIX, MEMORY};
use pod_model::{Quantity, ThresholdValue};

#[cfg(test)]
mod tests;

const EPHEMERAL_STORAGE: &str = "ephemeral-storage";

/// Reservations.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Reservations {
    /// `systemReserved` and `kubeReserved`.
    pub system: ResourceList,
    pub kube: ResourceList,
    /// The hard eviction threshold `memory.available`.
    pub eviction_memory: Option<ThresholdValue>,
    /// The hard eviction threshold `nodefs.available`.
    pub eviction_storage: Option<ThresholdValue>,
}

impl Reservations {
    fn eviction(&self, name: &str, capacity: &Quantity) -> Option<Quantity> {
        let threshold = match name {
            MEMORY => self.eviction_memory.as_ref(),
            EPHEMERAL_STORAGE => self.eviction_storage.as_ref(),
            _ => None,
        };
        threshold.map(|threshold| threshold.amount_of(capacity))
    }
}

/// The limits of the cgroup of all pods.
pub fn enforced(capacity: &ResourceList, reservations: &Reservations) -> ResourceList {
    less(capacity, |name, _| {
        [reservations.system.get(name).copied(), reservations.kube.get(name).copied(), None]
    })
}

/// The allocatable resources in the node's status.
pub fn reported_allocatable(capacity: &ResourceList, reservations: &Reservations) -> ResourceList {
    let mut allocatable = less(capacity, |name, whole| {
        [
            reservations.system.get(name).copied(),
            reservations.kube.get(name).copied(),
            reservations.eviction(name, whole),
        ]
    });
    let pages = capacity.iter().filter(|(name, _)| name.starts_with(HUGE_PAGES_PREFIX));
    for (_, pages) in pages {
        if let Some(memory) = allocatable.get(MEMORY).copied() {
            allocatable.insert(MEMORY, not_negative(memory.checked_sub(pages), memory));
        }
    }
    allocatable
}

fn less(
    capacity: &ResourceList,
    kept: impl Fn(&str, &Quantity) -> [Option<Quantity>; 3],
) -> ResourceList {
    let left = capacity.iter().map(|(name, whole)| {
        let kept = kept(name, whole).into_iter().flatten();
        let left = kept.fold(*whole, |left, kept| left.checked_sub(&kept).unwrap_or(left));
        (name, not_negative(Some(left), *whole))
    });
    left.collect()
}

fn not_negative(amount: Option<Quantity>, like: Quantity) -> Quantity {
    match amount {
        Some(amount) if amount.sign() >= 0 => amount,
        _ => Quantity::ZERO.with_format(like.format()),
    }
}

/// An error where more is reserved than there is; the agent does not start then.
pub fn check(capacity: &ResourceList, reservations: &Reservations) -> Result<(), String> {
    let mut problems = Vec::new();
    let sums = reserved(capacity, reservations);
    for (name, whole) in capacity.iter() {
        let sum = sums.get(name).copied().unwrap_or(Quantity::ZERO);
        if sum > *whole {
            problems.push(format!(
                "Resource {name:?} has a reservation of {sum} but capacity of {whole}. Expected \
                 capacity >= reservation."
            ));
        }
    }
    if problems.is_empty() {
        return Ok(());
    }
    Err(format!("invalid Node Allocatable configuration. {}", problems.join(" ")))
}

/// The total reserved of each resource: for the system, the node's services and eviction.
pub fn reserved(capacity: &ResourceList, reservations: &Reservations) -> ResourceList {
    let sums = capacity.iter().map(|(name, whole)| {
        let kept = [
            reservations.system.get(name).copied(),
            reservations.kube.get(name).copied(),
            reservations.eviction(name, whole),
        ];
        let sum = kept.into_iter().flatten();
        let zero = Quantity::ZERO.with_format(whole.format());
        (name, sum.fold(zero, |sum, kept| sum.checked_add(&kept).unwrap_or(sum)))
    });
    sums.collect()
}
