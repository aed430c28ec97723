//! Rules about memory: what is reserved per NUMA node, swap, throttling, and the id ranges of user
//! namespaces.
//!
//! upstream: validation_reserved_memory.go, validation_linux.go, pkg/kubelet/cm/memorymanager

use std::collections::{BTreeMap, BTreeSet};

use pod_model::{Quantity, ThresholdValue};

use super::allocatable::reserved_total;
use super::{ValidationFindings, ValidationInput};
use crate::document::child_path;
use crate::feature_gates::Gate;
use crate::kubelet_configuration::MemoryReservation;

const RESERVED: &str = "reservedMemory";
const MEMORY: &str = "memory";
const HUGE_PAGES: &str = "hugepages-";
/// A user namespace gets whole ranges of 65536 ids.
const IDS_PER_RANGE: i64 = 65_536;
/// The number of user ids that the kernel has.
const ALL_IDS: i64 = 1 << 32;

pub(super) fn check(input: &ValidationInput<'_>, findings: &mut ValidationFindings) {
    reservations(&input.settings.reserved_memory, findings);
    static_policy(input, findings);
    throttling(input, findings);
    swap(input, findings);
    user_namespaces(input, findings);
}

fn reservations(reservations: &[MemoryReservation], findings: &mut ValidationFindings) {
    let mut seen = BTreeSet::new();
    for (index, reservation) in reservations.iter().enumerate() {
        let node = reservation.numa_node;
        for (resource, amount) in &reservation.limits {
            let path = child_path(&format!("{RESERVED}[{index}].limits"), resource);
            if resource != MEMORY && !resource.starts_with(HUGE_PAGES) {
                findings.refuse(&path, amount, "must be \"memory\" or \"hugepages-<size>\"");
            }
            if amount.is_zero() {
                findings.refuse(&path, amount, "must not be zero");
            }
            if !seen.insert((node, resource)) {
                findings.refuse(
                    &path,
                    amount,
                    format!("reserves {resource} of NUMA node {node} a second time"),
                );
            }
        }
    }
}

/// The static policy requires the reservations of all NUMA nodes to add up to what the node as a
/// whole reserves: the reserved amounts and the hard eviction threshold.
fn static_policy(input: &ValidationInput<'_>, findings: &mut ValidationFindings) {
    let settings = input.settings;
    if settings.memory_manager_policy != "Static" {
        return;
    }
    let mut totals: BTreeMap<&str, Option<Quantity>> = BTreeMap::new();
    for (index, reservation) in settings.reserved_memory.iter().enumerate() {
        if reservation.numa_node < 0 {
            findings.refuse(
                format!("{RESERVED}[{index}].numaNode"),
                reservation.numa_node,
                "must be the number of a NUMA node",
            );
        }
        for (resource, amount) in &reservation.limits {
            let total = totals.entry(resource).or_insert_with(|| Some(Quantity::default()));
            *total = total.as_ref().and_then(|total| total.checked_add(amount));
        }
    }
    let Some(memory) = node_memory_reservation(input) else { return };
    for (resource, total) in &totals {
        // kubeReserved and systemReserved cannot name huge pages, so the node reserves none.
        let none = Quantity::default();
        let expected = if *resource == MEMORY { &memory } else { &none };
        if total.as_ref() != Some(expected) {
            let shown = total.as_ref().map_or_else(|| "too much".to_owned(), ToString::to_string);
            findings.refuse(
                RESERVED,
                shown,
                format!(
                    "the {resource} of all NUMA nodes must add up to {expected} (kubeReserved, \
                     systemReserved and evictionHard together) under memoryManagerPolicy \"Static\""
                ),
            );
        }
    }
    if !totals.contains_key(MEMORY) {
        findings.refuse(
            RESERVED,
            "",
            format!("must reserve {memory} of memory under memoryManagerPolicy \"Static\""),
        );
    }
}

/// The memory that the node reserves; `None` if it cannot be computed here, such as for a threshold
/// in percent of the machine's memory.
fn node_memory_reservation(input: &ValidationInput<'_>) -> Option<Quantity> {
    let mut total = Quantity::default();
    for amount in reserved_total(input, MEMORY) {
        total = total.checked_add(&amount)?;
    }
    let threshold = input.settings.eviction_hard.get("memory.available");
    if input.flags.experimental_allocatable_ignore_eviction {
        return Some(total);
    }
    match threshold.map(|text| ThresholdValue::parse_threshold(text)) {
        Some(Ok(Some(ThresholdValue::Quantity(amount)))) => total.checked_add(&amount),
        Some(Ok(Some(ThresholdValue::Percentage(_))) | Err(_)) => None,
        Some(Ok(None)) | None => Some(total),
    }
}

fn throttling(input: &ValidationInput<'_>, findings: &mut ValidationFindings) {
    const FACTOR: &str = "memoryThrottlingFactor";
    const POLICY: &str = "memoryReservationPolicy";
    let settings = input.settings;
    let gate = input.gate(Gate::MemoryQoS);
    match settings.memory_throttling_factor {
        // Written so that NaN is rejected too.
        Some(factor) if !(factor > 0.0 && factor <= 1.0) => {
            findings.refuse(FACTOR, factor, "must be more than 0 and at most 1");
        }
        None if gate => {
            findings.refuse(FACTOR, "", "must be set while the feature gate MemoryQoS is on");
        }
        _ => {}
    }
    let policy = settings.memory_reservation_policy.as_str();
    findings.one_of(POLICY, policy, &["None", "TieredReservation"]);
    if policy == "TieredReservation" && !gate {
        findings.refuse(POLICY, policy, "needs the feature gate MemoryQoS");
    }
}

fn swap(input: &ValidationInput<'_>, findings: &mut ValidationFindings) {
    const FIELD: &str = "memorySwap.swapBehavior";
    let behaviour = input.settings.memory_swap.swap_behavior.as_str();
    if behaviour.is_empty() {
        return;
    }
    findings.one_of(FIELD, behaviour, &["NoSwap", "LimitedSwap"]);
}

fn user_namespaces(input: &ValidationInput<'_>, findings: &mut ValidationFindings) {
    const FIELD: &str = "userNamespaces.idsPerPod";
    let namespaces = input.settings.user_namespaces.as_ref();
    let count = namespaces.and_then(|namespaces| namespaces.ids_per_pod).unwrap_or(IDS_PER_RANGE);
    if !(IDS_PER_RANGE..=u32::MAX.into()).contains(&count) {
        findings.within(FIELD, count, IDS_PER_RANGE..=u32::MAX.into());
        return;
    }
    if count % IDS_PER_RANGE != 0 {
        findings.refuse(FIELD, count, format!("must be a multiple of {IDS_PER_RANGE}"));
    }
    // The first range belongs to the host.
    let most_pods = (ALL_IDS - count) / count;
    let pods = input.settings.max_pods;
    if i64::from(pods) > most_pods {
        let message = format!("must be at most {most_pods}: each pod gets {count} user ids");
        findings.refuse("maxPods", pods, message);
    }
}
