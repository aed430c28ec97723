//! Rules for a pod as a whole.

use pod_model::pod::spec::{DnsPolicy, PreemptionPolicy, RestartPolicy};
use pod_model::pod::{Pod, PodSpec, ResourceRequirements, VolumeSource};
use pod_model::{check_dns_label, check_dns_subdomain};

use super::findings::{FieldPath, PodFindings};
use super::formats::{check_ip, search_domain};
use super::metadata::check_labels;
use super::resources::NameRules;
use super::{
    ValidationContext, claims, container, operating_system, pod_resources, resources, scheduling,
    security, volumes,
};
use crate::PodGates;

const MAX_NAMESERVERS: usize = 3;
const MAX_SEARCHES: usize = 32;
const MAX_SEARCH_CHARACTERS: usize = 2048;
const LONGEST_HOSTNAME_OVERRIDE: usize = 64;

pub(super) fn check(pod: &Pod, gates: &PodGates, findings: &mut PodFindings) {
    let path = FieldPath::new("spec");
    let spec = &pod.spec;
    if spec.termination_grace_period_seconds.is_none() {
        findings.required(&path.child("terminationGracePeriodSeconds"));
    }
    let around = ValidationContext {
        spec,
        gates,
        volumes: volumes::check(pod, findings, &path.child("volumes")),
        claim_names: spec
            .resource_claims
            .iter()
            .map(|claim| &*claim.name)
            .filter(|name| !name.is_empty())
            .collect(),
    };
    claims::check_resource_claims(pod, findings, &path.child("resourceClaims"));
    container::check_regular(&around, findings, &path.child("containers"));
    container::check_init(&around, findings, &path.child("initContainers"));
    container::check_ephemeral(&around, findings, &path.child("ephemeralContainers"));
    pod_resources::check(&around, findings, &path.child("resources"));
    check_policies(spec, findings, &path);
    if let Some(context) = &spec.security_context {
        security::check_pod(context, &around, findings, &path.child("securityContext"));
    }
    check_placement(spec, gates, findings, &path);
    check_dns(spec, gates, findings, &path);
    check_names(spec, findings, &path);
    check_host(spec, gates, findings, &path);
    operating_system::check(&around, findings, &path);
    check_file_keys(spec, findings, &path);
    check_creation(spec, findings, &path);
}

fn check_policies(spec: &PodSpec, findings: &mut PodFindings, path: &FieldPath) {
    if !spec.restart_policy.is_known() {
        let path = path.child("restartPolicy");
        findings.unsupported(&path, &spec.restart_policy, RestartPolicy::KNOWN);
    }
    if !spec.dns_policy.is_known() {
        findings.unsupported(&path.child("dnsPolicy"), &spec.dns_policy, DnsPolicy::KNOWN);
    }
    if let Some(policy) = spec.preemption_policy.as_ref().filter(|policy| !policy.is_known()) {
        findings.unsupported(&path.child("preemptionPolicy"), policy, PreemptionPolicy::KNOWN);
    }
    if let Some(seconds) = spec.active_deadline_seconds {
        findings.range(&path.child("activeDeadlineSeconds"), seconds, 1..=i32::MAX.into());
    }
    let overhead =
        ResourceRequirements { limits: spec.overhead.clone(), ..ResourceRequirements::default() };
    let path = path.child("overhead");
    resources::check(&overhead, NameRules::Container, None, findings, &path);
}

fn check_placement(spec: &PodSpec, gates: &PodGates, findings: &mut PodFindings, path: &FieldPath) {
    check_labels(&spec.node_selector, findings, &path.child("nodeSelector"));
    if let Some(affinity) = &spec.affinity {
        scheduling::check_affinity(affinity, findings, &path.child("affinity"));
    }
    let tolerations = path.child("tolerations");
    scheduling::check_tolerations(&spec.tolerations, gates, findings, &tolerations);
    let spread = path.child("topologySpreadConstraints");
    scheduling::check_spread(&spec.topology_spread_constraints, findings, &spread);
    scheduling::check_gates(spec, findings, path);
    if let Some(group) = &spec.scheduling_group {
        let path = path.child("schedulingGroup").child("podGroupName");
        match &group.pod_group_name {
            None => findings.required(&path),
            Some(name) => findings.name(&path, name, check_dns_subdomain(name)),
        }
    }
}

fn check_names(spec: &PodSpec, findings: &mut PodFindings, path: &FieldPath) {
    for (name, field) in [
        (&*spec.service_account_name, "serviceAccountName"),
        (&*spec.node_name, "nodeName"),
        (&*spec.priority_class_name, "priorityClassName"),
    ] {
        if !name.is_empty() {
            findings.name(&path.child(field), name, check_dns_subdomain(name));
        }
    }
    if let Some(name) = &spec.runtime_class_name {
        findings.name(&path.child("runtimeClassName"), name, check_dns_subdomain(name));
    }
    for (name, field) in [(&*spec.hostname, "hostname"), (&*spec.subdomain, "subdomain")] {
        if !name.is_empty() {
            findings.name(&path.child(field), name, check_dns_label(name));
        }
    }
    let Some(name) = &spec.hostname_override else { return };
    let path = path.child("hostnameOverride");
    if spec.set_hostname_as_fqdn == Some(true) {
        findings.forbidden(&path, "excludes setHostnameAsFQDN");
    }
    if spec.host_network {
        findings.forbidden(&path, "excludes hostNetwork");
    }
    if name.len() > LONGEST_HOSTNAME_OVERRIDE {
        let why = format!("expected at most {LONGEST_HOSTNAME_OVERRIDE} characters");
        findings.invalid(&path, name, why);
    }
    findings.name(&path, name, check_dns_subdomain(name));
}

fn check_dns(spec: &PodSpec, gates: &PodGates, findings: &mut PodFindings, path: &FieldPath) {
    for (index, alias) in spec.host_aliases.iter().enumerate() {
        let path = path.child("hostAliases").index(index);
        check_ip(findings, &path.child("ip"), &alias.ip, gates.strict_ip_validation);
        for (at, name) in alias.hostnames.iter().enumerate() {
            let path = path.child("hostnames").index(at);
            findings.name(&path, name, check_dns_subdomain(name));
        }
    }
    let path = path.child("dnsConfig");
    let own = spec.dns_policy == DnsPolicy::NoPolicy;
    let Some(config) = &spec.dns_config else {
        if own {
            findings.required(&path);
        }
        return;
    };
    let servers = path.child("nameservers");
    if own && config.nameservers.is_empty() {
        findings.required(&servers);
        return;
    }
    if config.nameservers.len() > MAX_NAMESERVERS {
        let why = format!("expected at most {MAX_NAMESERVERS} nameservers");
        findings.invalid(&servers, config.nameservers.len(), why);
    }
    for (index, server) in config.nameservers.iter().enumerate() {
        check_ip(findings, &servers.index(index), server, gates.strict_ip_validation);
    }
    let searches = path.child("searches");
    if config.searches.len() > MAX_SEARCHES {
        let why = format!("expected at most {MAX_SEARCHES} search domains");
        findings.invalid(&searches, config.searches.len(), why);
    }
    let total = config.searches.iter().map(|each| each.len() + 1).sum::<usize>().saturating_sub(1);
    if total > MAX_SEARCH_CHARACTERS {
        let why = format!("expected at most {MAX_SEARCH_CHARACTERS} characters in all");
        findings.invalid(&searches, total, why);
    }
    for (index, search) in config.searches.iter().enumerate() {
        if &**search != "." {
            let bare = search.strip_suffix('.').unwrap_or(search);
            findings.check_format(&searches.index(index), search, search_domain(bare));
        }
    }
    for (index, option) in config.options.iter().enumerate() {
        findings.require(&option.name, &path.child("options").index(index));
    }
}

/// What sharing the host's namespaces asks of the rest.
fn check_host(spec: &PodSpec, gates: &PodGates, findings: &mut PodFindings, path: &FieldPath) {
    if spec.host_network {
        for (index, container) in spec.containers.iter().enumerate() {
            let ports = path.child("containers").index(index).child("ports");
            for (at, port) in container.ports.iter().enumerate() {
                if port.host_port != port.container_port {
                    let path = ports.index(at).child("hostPort");
                    findings.invalid(
                        &path,
                        port.host_port,
                        "expected containerPort with hostNetwork",
                    );
                }
            }
        }
    }
    if !spec.has_user_namespace() {
        return;
    }
    let why = "excludes hostUsers: false";
    for (given, field) in [
        (spec.host_network && !gates.user_namespaces_host_network, "hostNetwork"),
        (spec.host_pid, "HostPID"),
        (spec.host_ipc, "HostIPC"),
    ] {
        if given {
            findings.forbidden(&path.child(field), why);
        }
    }
    for (list, index, container) in spec.all_containers() {
        if !container.volume_devices.is_empty() {
            let path = path.child(list.field()).index(index);
            findings.forbidden(&path.child("volumeDevices"), why);
        }
    }
}

/// Variables from files are read from an emptyDir, and from nothing else.
fn check_file_keys(spec: &PodSpec, findings: &mut PodFindings, path: &FieldPath) {
    for (list, index, container) in spec.all_containers() {
        for (at, variable) in container.env.iter().enumerate() {
            let source = variable.value_from.as_ref();
            let Some(key) = source.and_then(|source| source.file_key_ref.as_ref()) else {
                continue;
            };
            let path = path.child(list.field()).index(index).child("env").index(at);
            let path = path.child("valueFrom").child("fileKeyRef").child("volumeName");
            match spec.volumes.iter().rfind(|volume| volume.name == key.volume_name) {
                None => findings.not_found(&path, &key.volume_name),
                Some(volume) => {
                    if !matches!(volume.source, Some(VolumeSource::EmptyDir(_))) {
                        findings.invalid(&path, &key.volume_name, "expected an emptyDir");
                    }
                }
            }
        }
    }
}

/// What holds for pods and not for templates of pods.
fn check_creation(spec: &PodSpec, findings: &mut PodFindings, path: &FieldPath) {
    if spec.service_account_name.is_empty() {
        for (index, volume) in spec.volumes.iter().enumerate() {
            let Some(VolumeSource::Projected(projected)) = &volume.source else { continue };
            let path = path.child("volumes").index(index).child("projected").child("sources");
            for (at, source) in projected.sources.iter().enumerate() {
                if source.service_account_token.is_some() {
                    let path = path.index(at).child("serviceAccountToken");
                    findings.forbidden(&path, "needs spec.serviceAccountName");
                }
            }
        }
    }
    for (containers, field) in
        [(&spec.containers, "containers"), (&spec.init_containers, "initContainers")]
    {
        for (index, each) in containers.iter().enumerate() {
            container::check_image_spaces(each, findings, &path.child(field).index(index));
        }
    }
    if !spec.ephemeral_containers.is_empty() {
        let path = path.child("ephemeralContainers");
        findings.forbidden(&path, "may not be set when a pod is created");
    }
}
