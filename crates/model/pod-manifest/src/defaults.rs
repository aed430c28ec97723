//! What an API server fills in when a pod is created.
//!
//! The rule it keeps: the same values in the same order as the reference, since some follow from
//! others (requests from limits, then the pod's requests from its containers'); applying it twice
//! changes nothing more. It does not validate.
//!
//! upstream: pkg/apis/core/v1/defaults.go, zz_generated.defaults.go, conversion.go

use pod_model::pod::container::TerminationMessagePolicy;
use pod_model::pod::container::{Container, ObjectFieldSelector, PortProtocol, PullPolicy};
use pod_model::pod::handler::{HttpGetAction, Probe, UriScheme};
use pod_model::pod::resources::{
    HUGE_PAGES_PREFIX, ResourceList, ResourceSide, containers_total, is_pod_level_resource,
};
use pod_model::pod::spec::{DnsPolicy, RestartPolicy};
use pod_model::pod::{Pod, PodSpec};

use crate::PodGates;
use crate::validation::is_overcommit_allowed;

mod image;
mod rounding;
mod volumes;

#[cfg(test)]
mod tests;

pub use image::with_default_tag;
use rounding::round_up_to_milli;

const TERMINATION_MESSAGE_PATH: &str = "/dev/termination-log";
const GRACE_PERIOD_SECONDS: i64 = 30;
const SCHEDULER: &str = "default-scheduler";
/// Annotations of long gone versions, which do not survive reading.
const DROPPED_ANNOTATIONS: [&str; 4] = [
    "pod.beta.kubernetes.io/init-containers",
    "pod.alpha.kubernetes.io/init-containers",
    "pod.beta.kubernetes.io/init-container-statuses",
    "pod.alpha.kubernetes.io/init-container-statuses",
];

/// Fills in defaults.
pub fn apply_defaults(pod: &mut Pod, gates: &PodGates) {
    let spec: &mut PodSpec = &mut pod.spec;
    for container in spec.containers.iter_mut().chain(&mut spec.init_containers) {
        let resources = &mut container.resources;
        for (name, amount) in resources.limits.iter() {
            if !resources.requests.contains(name) {
                resources.requests.insert(name, *amount);
            }
        }
    }
    if gates.pod_level_resources {
        default_pod_level_limits(spec);
        default_pod_level_requests(spec);
    }
    spec.enable_service_links.get_or_insert(true);
    if spec.host_network {
        for container in spec.containers.iter_mut().chain(&mut spec.init_containers) {
            for port in &mut container.ports {
                if port.host_port == 0 {
                    port.host_port = port.container_port;
                }
            }
        }
    }
    default_spec(spec);
    for volume in &mut spec.volumes {
        volumes::default_volume(volume);
    }
    for container in spec.all_containers_mut() {
        default_container(container);
    }
    round_up_to_milli(&mut spec.overhead);
    if let Some(resources) = &mut spec.resources {
        round_up_to_milli(&mut resources.limits);
        round_up_to_milli(&mut resources.requests);
    }
    for key in DROPPED_ANNOTATIONS {
        pod.metadata.annotations.remove(key);
    }
}

fn default_spec(spec: &mut PodSpec) {
    if spec.dns_policy.is_empty() {
        spec.dns_policy = DnsPolicy::ClusterFirst;
    }
    if spec.restart_policy.is_empty() {
        spec.restart_policy = RestartPolicy::Always;
    }
    spec.security_context.get_or_insert_default();
    // A negative period could never be stored, and meant "at once" when it could.
    let grace = spec.termination_grace_period_seconds.get_or_insert(GRACE_PERIOD_SECONDS);
    if *grace < 0 {
        *grace = 1;
    }
    set_text(&mut spec.scheduler_name, SCHEDULER);
    // The older of the two names is an alias: it is read when the newer one is absent.
    if spec.service_account_name.is_empty() {
        spec.service_account_name.clone_from(&spec.service_account);
    }
    spec.service_account.clone_from(&spec.service_account_name);
}

fn default_container(container: &mut Container) {
    if container.image_pull_policy.is_empty() {
        container.image_pull_policy = pull_policy_for(&container.image);
    }
    set_text(&mut container.termination_message_path, TERMINATION_MESSAGE_PATH);
    if container.termination_message_policy.is_empty() {
        container.termination_message_policy = TerminationMessagePolicy::File;
    }
    for port in &mut container.ports {
        if port.protocol.is_empty() {
            port.protocol = PortProtocol::Tcp;
        }
    }
    for source in container.env.iter_mut().filter_map(|each| each.value_from.as_deref_mut()) {
        if let Some(selector) = &mut source.field_ref {
            default_field_selector(selector);
        }
        if let Some(selector) = &mut source.file_key_ref {
            selector.optional.get_or_insert(false);
        }
    }
    round_up_to_milli(&mut container.resources.limits);
    round_up_to_milli(&mut container.resources.requests);
    let probes = [
        &mut container.liveness_probe,
        &mut container.readiness_probe,
        &mut container.startup_probe,
    ];
    for probe in probes.into_iter().flatten() {
        default_probe(probe);
    }
    if let Some(lifecycle) = &mut container.lifecycle {
        for hook in [&mut lifecycle.post_start, &mut lifecycle.pre_stop].into_iter().flatten() {
            if let Some(get) = &mut hook.http_get {
                default_http_get(get);
            }
        }
    }
}

fn default_probe(probe: &mut Probe) {
    for (number, default) in [
        (&mut probe.timeout_seconds, 1),
        (&mut probe.period_seconds, 10),
        (&mut probe.success_threshold, 1),
        (&mut probe.failure_threshold, 3),
    ] {
        if *number == 0 {
            *number = default;
        }
    }
    if let Some(get) = &mut probe.http_get {
        default_http_get(get);
    }
    if let Some(grpc) = &mut probe.grpc {
        grpc.service.get_or_insert_default();
    }
}

fn default_http_get(get: &mut HttpGetAction) {
    set_text(&mut get.path, "/");
    if get.scheme.is_empty() {
        get.scheme = UriScheme::Http;
    }
}

fn default_field_selector(selector: &mut ObjectFieldSelector) {
    set_text(&mut selector.api_version, "v1");
}

fn set_text(slot: &mut Box<str>, default: &str) {
    if slot.is_empty() {
        *slot = Box::from(default);
    }
}

/// A mutable tag is pulled each time.
fn pull_policy_for(image: &str) -> PullPolicy {
    if image::is_latest(image) { PullPolicy::Always } else { PullPolicy::IfNotPresent }
}

/// With pod-level resources, the pod's limits include the huge pages of its containers.
fn default_pod_level_limits(spec: &mut PodSpec) {
    let Some(resources) = spec.resources.as_deref() else { return };
    if resources.limits.is_empty() && resources.requests.is_empty() {
        return;
    }
    let mut limits = resources.limits.clone();
    for (name, amount) in containers_total(spec, ResourceSide::Limits).iter() {
        let wanted = name.starts_with(HUGE_PAGES_PREFIX) && !resources.requests.contains(name);
        if wanted && !limits.contains(name) {
            limits.insert(name, *amount);
        }
    }
    set_pod_level(spec, ResourceSide::Limits, limits);
}

/// With pod-level limits, the pod's requests default to its containers' total, then to its limits.
fn default_pod_level_requests(spec: &mut PodSpec) {
    let Some(resources) = spec.resources.as_deref() else { return };
    if resources.limits.is_empty() {
        return;
    }
    let mut requests = resources.requests.clone();
    let total = containers_total(spec, ResourceSide::Requests);
    let from_containers = total.iter().filter(|(name, _)| is_overcommit_allowed(name));
    for (name, amount) in from_containers.chain(resources.limits.iter()) {
        if is_pod_level_resource(name) && !requests.contains(name) {
            requests.insert(name, *amount);
        }
    }
    set_pod_level(spec, ResourceSide::Requests, requests);
}

fn set_pod_level(spec: &mut PodSpec, side: ResourceSide, list: ResourceList) {
    let Some(resources) = spec.resources.as_deref_mut() else { return };
    match side {
        ResourceSide::Limits => resources.limits = list,
        ResourceSide::Requests => resources.requests = list,
    }
}
