//! Rules about what a node reserves: reserved CPUs and amounts, the cgroups that hold them, and
//! what is enforced.
//!
//! Whether the CPUs and cgroups exist, and whether the machine is large enough, is checked on the
//! machine.

use std::collections::{BTreeMap, BTreeSet};

use pod_model::{CpuSet, Quantity};

use super::{ValidationFindings, ValidationInput, quoted_list};
use crate::document::child_path;

const ENFORCE: &str = "enforceNodeAllocatable";
const PODS: &str = "pods";
const NONE: &str = "none";
/// Each side has a full and a CPU-only enforcement; the two exclude each other.
const SIDES: [(&str, &str, &str); 2] = [
    ("system-reserved", "system-reserved-compressible", "systemReservedCgroup"),
    ("kube-reserved", "kube-reserved-compressible", "kubeReservedCgroup"),
];
const RESERVABLE: &[&str] = &["cpu", "memory", "ephemeral-storage", "pid"];

pub(super) fn check(input: &ValidationInput<'_>, findings: &mut ValidationFindings) {
    enforcement(input, findings);
    reserved_cpus(input, findings);
    reserved_amounts(input, findings);
    quality_of_service_reservations(&input.settings.qos_reserved, findings);
    cgroup_names(input, findings);
}

fn enforcement(input: &ValidationInput<'_>, findings: &mut ValidationFindings) {
    let levels = &input.settings.enforce_node_allocatable;
    let mut seen = BTreeSet::new();
    for (index, level) in levels.iter().enumerate() {
        let field = format!("{ENFORCE}[{index}]");
        if seen.insert(level.as_str()) {
            enforcement_level(input, findings, &field, level);
        } else {
            findings.refuse(field, level, "must not appear twice");
        }
    }
    for (full, cpu_only, _) in SIDES {
        if seen.contains(full) && seen.contains(cpu_only) {
            findings.refuse(
                ENFORCE,
                levels.join(", "),
                format!("must not hold both {full:?} and {cpu_only:?}"),
            );
        }
    }
}

fn enforcement_level(
    input: &ValidationInput<'_>,
    findings: &mut ValidationFindings,
    field: &str,
    level: &str,
) {
    let settings = input.settings;
    if level == NONE {
        if settings.enforce_node_allocatable.len() > 1 {
            findings.refuse(field, level, "must stand alone");
        }
        return;
    }
    let side = SIDES.iter().find(|(full, cpu_only, _)| level == *full || level == *cpu_only);
    if side.is_none() && level != PODS {
        let mut known = vec![PODS];
        known.extend(SIDES.iter().flat_map(|(full, cpu_only, _)| [*full, *cpu_only]));
        known.push(NONE);
        findings.refuse(field, level, format!("must be one of {}", quoted_list(&known)));
        return;
    }
    if let Some((_, _, cgroup_field)) = side {
        let cgroup = if *cgroup_field == "systemReservedCgroup" {
            &settings.system_reserved_cgroup
        } else {
            &settings.kube_reserved_cgroup
        };
        if cgroup.is_empty() {
            findings.refuse(
                *cgroup_field,
                "",
                format!("must be set because {ENFORCE} has {level:?}"),
            );
        }
    }
    if !settings.cgroups_per_qos {
        findings.refuse(
            "cgroupsPerQOS",
            false,
            format!("must be true because {ENFORCE} has {level:?}"),
        );
    }
}

fn reserved_cpus(input: &ValidationInput<'_>, findings: &mut ValidationFindings) {
    const FIELD: &str = "reservedSystemCPUs";
    let settings = input.settings;
    let text = settings.reserved_system_cp_us.as_str();
    if text.is_empty() {
        return;
    }
    if !settings.system_reserved_cgroup.is_empty() || !settings.kube_reserved_cgroup.is_empty() {
        findings.refuse(
            FIELD,
            text,
            "cannot be combined with systemReservedCgroup (--system-reserved-cgroup) or \
             kubeReservedCgroup (--kube-reserved-cgroup)",
        );
    }
    if CpuSet::parse(text).is_err() {
        findings.refuse(FIELD, text, "must be a list of CPU numbers and ranges, such as 0-1,4");
    }
}

/// Whether `reservedSystemCPUs` names CPUs; it then replaces every other CPU reservation.
pub(super) fn cpus_are_named(input: &ValidationInput<'_>) -> bool {
    let named = CpuSet::parse(&input.settings.reserved_system_cp_us);
    named.is_ok_and(|cpus| !cpus.is_empty())
}

fn reserved_amounts(input: &ValidationInput<'_>, findings: &mut ValidationFindings) {
    let settings = input.settings;
    let cpus_are_named = cpus_are_named(input);
    for (field, amounts) in
        [("kubeReserved", &settings.kube_reserved), ("systemReserved", &settings.system_reserved)]
    {
        for (resource, amount) in amounts {
            let path = child_path(field, resource);
            if cpus_are_named && resource == "cpu" {
                findings.warn(path, amount, "is replaced by the count of reservedSystemCPUs");
                continue;
            }
            if !RESERVABLE.contains(&resource.as_str()) {
                let known = quoted_list(RESERVABLE);
                findings.refuse(path, amount, format!("cannot be reserved; known are {known}"));
                continue;
            }
            match Quantity::parse(amount) {
                Ok(quantity) if quantity.sign() < 0 => {
                    findings.refuse(path, amount, "must not be negative");
                }
                Ok(_) => {}
                Err(error) => {
                    findings.refuse(path, amount, error.to_string());
                }
            }
        }
    }
}

/// The sum of what both sides reserve of one resource; a value that does not parse counts as zero,
/// it has been rejected already.
pub(super) fn reserved_total(input: &ValidationInput<'_>, resource: &str) -> Vec<Quantity> {
    let settings = input.settings;
    [&settings.kube_reserved, &settings.system_reserved]
        .into_iter()
        .filter_map(|amounts| Quantity::parse(amounts.get(resource)?).ok())
        .collect()
}

fn quality_of_service_reservations(
    reservations: &BTreeMap<String, String>,
    findings: &mut ValidationFindings,
) {
    for (resource, share) in reservations {
        let path = child_path("qosReserved", resource);
        if resource != "memory" {
            findings.refuse(path, share, "cannot be reserved; only memory can");
            continue;
        }
        // Upstream drops every trailing percent sign, so 50%% is 50%.
        let number = share.ends_with('%').then(|| share.trim_end_matches('%'));
        let percent = number.and_then(|number| number.parse::<i64>().ok());
        if !percent.is_some_and(|percent| (0..=100).contains(&percent)) {
            findings.refuse(path, share, "must be a whole percentage between 0% and 100%");
        }
    }
}

fn cgroup_names(input: &ValidationInput<'_>, findings: &mut ValidationFindings) {
    let settings = input.settings;
    if !settings.system_cgroups.is_empty() && settings.cgroup_root.is_empty() {
        findings.refuse(
            "systemCgroups",
            &settings.system_cgroups,
            "needs cgroupRoot (--cgroup-root) to be set too",
        );
    }
    let (own, reserved) = (&settings.kubelet_cgroups, &settings.kube_reserved_cgroup);
    if !own.is_empty() && !reserved.is_empty() && !own.starts_with(reserved.as_str()) {
        findings.warn(
            "kubeletCgroups",
            own,
            format!("should lie within kubeReservedCgroup, which is {reserved:?}"),
        );
    }
}
