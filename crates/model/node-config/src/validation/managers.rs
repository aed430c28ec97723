//! Rules about the CPU, memory and topology policies and their options.
//!
//! Whether the machine has the CPUs and the NUMA nodes is not checked here.
//!
//! upstream: pkg/kubelet/cm/{cpumanager,memorymanager,topologymanager}

use std::collections::BTreeMap;

use pod_model::Quantity;

use super::allocatable::{cpus_are_named, reserved_total};
use super::text_forms::go_boolean;
use super::{ValidationFindings, ValidationInput, quoted_list};
use crate::document::child_path;
use crate::feature_gates::Gate;

const SINGLE_NUMA_NODE: &str = "single-numa-node";
const TOPOLOGY_POLICIES: &[&str] = &["none", "best-effort", "restricted", SINGLE_NUMA_NODE];
const TOPOLOGY_SCOPES: &[&str] = &["container", "pod"];
/// The default maximum; a policy that considers more NUMA nodes is slow.
const NUMA_NODES_BY_DEFAULT: i64 = 8;

const FULL_CORES: &str = "full-pcpus-only";
const SPREAD_OVER_NUMA: &str = "distribute-cpus-across-numa";
const BY_SOCKET: &str = "align-by-socket";
const SPREAD_OVER_CORES: &str = "distribute-cpus-across-cores";
const BY_CACHE: &str = "prefer-align-cpus-by-uncorecache";
/// Each CPU option with the gate that it needs, if any.
const CPU_OPTIONS: &[(&str, Option<Gate>)] = &[
    (FULL_CORES, None),
    ("strict-cpu-reservation", None),
    (BY_CACHE, None),
    (SPREAD_OVER_NUMA, Some(Gate::CPUManagerPolicyBetaOptions)),
    (BY_SOCKET, Some(Gate::CPUManagerPolicyAlphaOptions)),
    (SPREAD_OVER_CORES, Some(Gate::CPUManagerPolicyAlphaOptions)),
];
const EXCLUSIVE_CPU_OPTIONS: &[(&str, &str)] = &[
    (FULL_CORES, SPREAD_OVER_CORES),
    (SPREAD_OVER_NUMA, SPREAD_OVER_CORES),
    (BY_CACHE, SPREAD_OVER_CORES),
    (BY_CACHE, SPREAD_OVER_NUMA),
];

pub(super) fn check(input: &ValidationInput<'_>, findings: &mut ValidationFindings) {
    topology(input, findings);
    cpu_policy(input, findings);
    memory_policy_name(input, findings);
}

fn topology(input: &ValidationInput<'_>, findings: &mut ValidationFindings) {
    let settings = input.settings;
    let policy = settings.topology_manager_policy.as_str();
    findings.one_of("topologyManagerPolicy", policy, TOPOLOGY_POLICIES);
    findings.one_of("topologyManagerScope", &settings.topology_manager_scope, TOPOLOGY_SCOPES);
    let options = &settings.topology_manager_policy_options;
    for (name, value) in options {
        let path = child_path("topologyManagerPolicyOptions", name);
        if policy == "none" {
            findings.warn(path, value, "has no effect while topologyManagerPolicy is \"none\"");
            continue;
        }
        match name.as_str() {
            "prefer-closest-numa-nodes" => expect_boolean(findings, &path, value),
            "max-allowable-numa-nodes" => numa_node_limit(findings, &path, value),
            _ => findings.refuse(
                path,
                value,
                "is no known option; known are \"prefer-closest-numa-nodes\" and \
                 \"max-allowable-numa-nodes\"",
            ),
        }
    }
}

fn numa_node_limit(findings: &mut ValidationFindings, path: &str, value: &str) {
    match value.parse::<i64>() {
        Ok(limit) if limit > NUMA_NODES_BY_DEFAULT => findings.warn(
            path,
            value,
            "is more than the recommended 8: placing a pod may become slow",
        ),
        Ok(NUMA_NODES_BY_DEFAULT) => {}
        _ => findings.refuse(path, value, "must be a whole number, 8 or more"),
    }
}

fn cpu_policy(input: &ValidationInput<'_>, findings: &mut ValidationFindings) {
    const FIELD: &str = "cpuManagerPolicy";
    let settings = input.settings;
    let options = &settings.cpu_manager_policy_options;
    let policy = settings.cpu_manager_policy.as_str();
    findings.one_of(FIELD, policy, &["none", "static"]);
    if policy == "none" {
        for (name, value) in options {
            findings.refuse(
                child_path("cpuManagerPolicyOptions", name),
                value,
                format!("cannot be set while {FIELD} is \"none\""),
            );
        }
    }
    if policy != "static" {
        return;
    }
    let reserved = reserved_total(input, "cpu");
    if !cpus_are_named(input) && reserved.iter().all(Quantity::is_zero) {
        findings.refuse(
            FIELD,
            policy,
            "needs reserved CPU: set kubeReserved.cpu, systemReserved.cpu or reservedSystemCPUs",
        );
    }
    cpu_options(input, options, findings);
}

fn cpu_options(
    input: &ValidationInput<'_>,
    options: &BTreeMap<String, String>,
    findings: &mut ValidationFindings,
) {
    const FIELD: &str = "cpuManagerPolicyOptions";
    for (name, value) in options {
        let path = child_path(FIELD, name);
        match CPU_OPTIONS.iter().find(|(known, _)| known == name) {
            None => {
                let known: Vec<&str> = CPU_OPTIONS.iter().map(|(known, _)| *known).collect();
                findings.refuse(
                    path,
                    value,
                    format!("is no known option; known are {}", quoted_list(&known)),
                );
            }
            Some((_, Some(gate))) if !input.gate(*gate) => {
                findings.refuse(path, value, format!("needs the feature gate {}", gate.name()));
            }
            Some(_) => expect_boolean(findings, &path, value),
        }
    }
    let on = |name: &str| options.get(name).and_then(|value| go_boolean(value)) == Some(true);
    for (one, other) in EXCLUSIVE_CPU_OPTIONS {
        if on(one) && on(other) {
            findings.refuse(
                child_path(FIELD, one),
                true,
                format!("cannot be combined with {other:?}"),
            );
        }
    }
    if on(BY_SOCKET) && input.settings.topology_manager_policy == SINGLE_NUMA_NODE {
        findings.refuse(
            child_path(FIELD, BY_SOCKET),
            true,
            format!("cannot be combined with topologyManagerPolicy {SINGLE_NUMA_NODE:?}"),
        );
    }
}

fn expect_boolean(findings: &mut ValidationFindings, path: &str, value: &str) {
    if go_boolean(value).is_none() {
        findings.refuse(path, value, "must be true or false, as a string");
    }
}

fn memory_policy_name(input: &ValidationInput<'_>, findings: &mut ValidationFindings) {
    let policy = input.settings.memory_manager_policy.as_str();
    findings.one_of("memoryManagerPolicy", policy, &["None", "Static"]);
}
