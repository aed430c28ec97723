//! Rules for containers: those that hold for all three kinds, and those of each kind.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use pod_model::check_dns_label;
use pod_model::pod::container::{
    ContainerPort, ContainerResizePolicy, ContainerRestartPolicy, ExitCodeOperator, PortProtocol,
    PullPolicy, ResizeRestartPolicy, TerminationMessagePolicy,
};
use pod_model::pod::spec::RestartPolicy;
use pod_model::pod::{Container, EphemeralContainer};

use super::findings::{FieldPath, PodFindings};
use super::resources::NameRules;
use super::{ValidationContext, environment, formats, handlers, mounts, resources, security};

const MAX_RESTART_RULES: usize = 20;
const MAX_EXIT_CODES: usize = 255;
const PORTS: RangeInclusive<i64> = 1..=65535;

pub(super) fn check_regular(
    around: &ValidationContext<'_>,
    findings: &mut PodFindings,
    path: &FieldPath,
) {
    let containers = &around.spec.containers;
    if containers.is_empty() {
        findings.required(path);
    }
    for (index, container) in containers.iter().enumerate() {
        let path = path.index(index);
        check_common(container, around, findings, &path);
        if containers.iter().take(index).any(|earlier| earlier.name == container.name) {
            findings.duplicate(&path.child("name"), &container.name);
        }
        handlers::check_container(container, around, findings, &path);
        if around.gates.container_restart_rules {
            check_restart_policy(container, around, findings, &path);
        } else if container.restart_policy.is_some() {
            findings.forbidden(&path.child("restartPolicy"), "may be set for init containers only");
        }
    }
    check_host_ports(containers, findings, path);
}

pub(super) fn check_init(
    around: &ValidationContext<'_>,
    findings: &mut PodFindings,
    path: &FieldPath,
) {
    let spec = around.spec;
    let mut names: BTreeSet<&str> = spec.containers.iter().map(|each| &*each.name).collect();
    for (index, container) in spec.init_containers.iter().enumerate() {
        let path_here = path.index(index);
        check_common(container, around, findings, &path_here);
        check_init_restart_policy(container, around, findings, &path_here);
        if names.contains(&*container.name) {
            findings.duplicate(&path_here.child("name"), &container.name);
        } else if !container.name.is_empty() {
            names.insert(&container.name);
        }
        check_host_ports(std::slice::from_ref(container), findings, path);
        if container.is_restarted_always() {
            handlers::check_container(container, around, findings, &path_here);
        } else {
            forbid_handlers(container, findings, &path_here);
            for (at, policy) in container.resize_policy.iter().enumerate() {
                if policy.restart_policy == ResizeRestartPolicy::RestartContainer {
                    let path = path_here.child("resizePolicy").index(at).child("restartPolicy");
                    let why = "an init container that ends is not restarted";
                    findings.invalid(&path, &policy.restart_policy, why);
                }
            }
        }
    }
}

fn forbid_handlers(container: &Container, findings: &mut PodFindings, path: &FieldPath) {
    for (given, field) in [
        (container.lifecycle.is_some(), "lifecycle"),
        (container.liveness_probe.is_some(), "livenessProbe"),
        (container.readiness_probe.is_some(), "readinessProbe"),
        (container.startup_probe.is_some(), "startupProbe"),
    ] {
        if given {
            let why = "an init container has this only with restartPolicy: Always";
            findings.forbidden(&path.child(field), why);
        }
    }
}

pub(super) fn check_ephemeral(
    around: &ValidationContext<'_>,
    findings: &mut PodFindings,
    path: &FieldPath,
) {
    let spec = around.spec;
    let others: BTreeSet<&str> =
        spec.containers.iter().chain(&spec.init_containers).map(|each| &*each.name).collect();
    let mut names = others.clone();
    for (index, ephemeral) in spec.ephemeral_containers.iter().enumerate() {
        let path = path.index(index);
        check_common(&ephemeral.container, around, findings, &path);
        check_image_spaces(&ephemeral.container, findings, &path);
        if !names.insert(&ephemeral.container.name) {
            findings.duplicate(&path.child("name"), &ephemeral.container.name);
        }
        let target = &*ephemeral.target_container_name;
        if !target.is_empty() && !others.contains(target) {
            findings.not_found(&path.child("targetContainerName"), target);
        }
        check_ephemeral_fields(ephemeral, findings, &path);
    }
}

fn check_ephemeral_fields(
    ephemeral: &EphemeralContainer,
    findings: &mut PodFindings,
    path: &FieldPath,
) {
    let container = &ephemeral.container;
    let why = "may not be set for an ephemeral container";
    for (given, field) in [
        (!container.ports.is_empty(), "ports"),
        (container.resources != Default::default(), "resources"),
        (!container.resize_policy.is_empty(), "resizePolicy"),
        (container.restart_policy.is_some(), "restartPolicy"),
        (!container.restart_policy_rules.is_empty(), "restartPolicyRules"),
        (container.liveness_probe.is_some(), "livenessProbe"),
        (container.readiness_probe.is_some(), "readinessProbe"),
        (container.startup_probe.is_some(), "startupProbe"),
        (container.lifecycle.is_some(), "lifecycle"),
    ] {
        if given {
            findings.forbidden(&path.child(field), why);
        }
    }
    for (index, mount) in container.volume_mounts.iter().enumerate() {
        let path = path.child("volumeMounts").index(index);
        for (text, field) in [(&mount.sub_path, "subPath"), (&mount.sub_path_expr, "subPathExpr")] {
            if !text.is_empty() {
                findings.forbidden(&path.child(field), why);
            }
        }
    }
}

fn check_common(
    container: &Container,
    around: &ValidationContext<'_>,
    findings: &mut PodFindings,
    path: &FieldPath,
) {
    if findings.require(&container.name, &path.child("name")) {
        findings.name(&path.child("name"), &container.name, check_dns_label(&container.name));
    }
    findings.require(&container.image, &path.child("image"));
    let policy = &container.termination_message_policy;
    if !policy.is_known() {
        let path = path.child("terminationMessagePolicy");
        findings.unsupported(&path, policy, TerminationMessagePolicy::KNOWN);
    }
    check_ports(&container.ports, findings, &path.child("ports"));
    environment::check(container, findings, path);
    mounts::check(container, around, findings, path);
    check_pull_policy(&container.image_pull_policy, findings, &path.child("imagePullPolicy"));
    let claims = Some(&around.claim_names);
    let path_resources = path.child("resources");
    resources::check(&container.resources, NameRules::Container, claims, findings, &path_resources);
    check_resize(&container.resize_policy, around, findings, &path.child("resizePolicy"));
    if let Some(context) = &container.security_context {
        security::check_container(context, around, findings, &path.child("securityContext"));
    }
}

pub(super) fn check_pull_policy(policy: &PullPolicy, findings: &mut PodFindings, path: &FieldPath) {
    if !policy.is_known() {
        findings.unsupported(path, policy, PullPolicy::KNOWN);
    }
}

/// An image with spaces around it is taken in templates, not in pods.
pub(super) fn check_image_spaces(
    container: &Container,
    findings: &mut PodFindings,
    path: &FieldPath,
) {
    if container.image.trim() != &*container.image {
        findings.invalid(&path.child("image"), &container.image, "has spaces around it");
    }
}

fn check_ports(ports: &[ContainerPort], findings: &mut PodFindings, path: &FieldPath) {
    let mut names = BTreeSet::new();
    for (index, port) in ports.iter().enumerate() {
        let path = path.index(index);
        if !port.name.is_empty() {
            let name = path.child("name");
            match formats::port_name(&port.name) {
                Err(why) => findings.invalid(&name, &port.name, why),
                Ok(()) if !names.insert(&*port.name) => findings.duplicate(&name, &port.name),
                Ok(()) => {}
            }
        }
        findings.range(&path.child("containerPort"), port.container_port.into(), PORTS);
        if port.host_port != 0 {
            findings.range(&path.child("hostPort"), port.host_port.into(), PORTS);
        }
        if !port.protocol.is_known() {
            findings.unsupported(&path.child("protocol"), &port.protocol, PortProtocol::KNOWN);
        }
    }
}

fn check_host_ports(containers: &[Container], findings: &mut PodFindings, path: &FieldPath) {
    let mut taken = BTreeSet::new();
    for (index, container) in containers.iter().enumerate() {
        for (at, port) in container.ports.iter().enumerate() {
            let key = (&port.protocol, &*port.host_ip, port.host_port);
            if port.host_port != 0 && !taken.insert(key) {
                let path = path.index(index).child("ports").index(at).child("hostPort");
                let shown = format!("{}/{}/{}", port.protocol, port.host_ip, port.host_port);
                findings.duplicate(&path, shown);
            }
        }
    }
}

fn check_resize(
    policies: &[ContainerResizePolicy],
    around: &ValidationContext<'_>,
    findings: &mut PodFindings,
    path: &FieldPath,
) {
    let mut seen = BTreeSet::new();
    for (index, policy) in policies.iter().enumerate() {
        if !seen.insert(&*policy.resource_name) {
            findings.duplicate(&path.index(index), &policy.resource_name);
        }
        if !matches!(&*policy.resource_name, "cpu" | "memory") {
            findings.unsupported(path, &policy.resource_name, &["cpu", "memory"]);
        }
        let restart = &policy.restart_policy;
        if !restart.is_known() {
            findings.unsupported(path, restart, ResizeRestartPolicy::KNOWN);
        }
        if around.spec.restart_policy == RestartPolicy::Never
            && *restart != ResizeRestartPolicy::NotRequired
        {
            findings.invalid(path, restart, "expected NotRequired in a pod that never restarts");
        }
    }
}

fn check_init_restart_policy(
    container: &Container,
    around: &ValidationContext<'_>,
    findings: &mut PodFindings,
    path: &FieldPath,
) {
    let gates = around.gates;
    let Some(policy) = &container.restart_policy else {
        if !container.restart_policy_rules.is_empty() {
            findings.required(&path.child("restartPolicy"));
        }
        return;
    };
    let always = *policy == ContainerRestartPolicy::Always;
    if !gates.container_restart_rules {
        if !always {
            findings.unsupported(&path.child("restartPolicy"), policy, &["Always"]);
        }
    } else if always && !gates.restart_all_containers {
        if !container.restart_policy_rules.is_empty() {
            let why = "a container that always restarts has no rules";
            findings.forbidden(&path.child("restartPolicyRules"), why);
        }
    } else {
        check_restart_policy(container, around, findings, path);
    }
}

fn check_restart_policy(
    container: &Container,
    around: &ValidationContext<'_>,
    findings: &mut PodFindings,
    path: &FieldPath,
) {
    let rules = &container.restart_policy_rules;
    match &container.restart_policy {
        None if rules.is_empty() => return,
        None => findings.required(&path.child("restartPolicy")),
        Some(policy) if !policy.is_known() => {
            let path = path.child("restartPolicy");
            findings.unsupported(&path, policy, ContainerRestartPolicy::KNOWN);
        }
        Some(_) => {}
    }
    let path = path.child("restartPolicyRules");
    if rules.len() > MAX_RESTART_RULES {
        findings.invalid(&path, rules.len(), format!("expected at most {MAX_RESTART_RULES} rules"));
    }
    let actions: &[&str] = match around.gates.restart_all_containers {
        true => &["Restart", "RestartAllContainers"],
        false => &["Restart"],
    };
    for (index, rule) in rules.iter().enumerate() {
        let path = path.index(index);
        if !actions.contains(&rule.action.as_str()) {
            findings.unsupported(&path.child("action"), &rule.action, actions);
        }
        let codes_path = path.child("exitCodes");
        let Some(codes) = &rule.exit_codes else {
            findings.required(&codes_path);
            continue;
        };
        if !codes.operator.is_known() {
            let known = ExitCodeOperator::KNOWN;
            findings.unsupported(&codes_path.child("operator"), &codes.operator, known);
        }
        if codes.values.len() > MAX_EXIT_CODES {
            let why = format!("expected at most {MAX_EXIT_CODES} codes");
            findings.invalid(&codes_path.child("values"), codes.values.len(), why);
        }
    }
}
