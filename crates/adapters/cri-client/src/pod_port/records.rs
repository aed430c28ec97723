//! Translates what a runtime reports.
//!
//! Rule: an unknown state is `Unknown`, a missing part is the empty one, and a text that a
//! container can influence is cut to what is ever shown. Nothing is interpreted.

use std::net::IpAddr;

use cri_wire::v1;
use ports::container_runtime::ContainerRuntimeError;
use ports::runtime_objects::{
    CgroupDriver, ContainerRecord, ContainerState, ContainerUsage, FilesystemUsage,
    HandlerFeatures, IdMapping, LinuxUser, Mount, Propagation, RuntimeEvent, RuntimeEventKind,
    SandboxRecord,
};

use super::image::spec_from_wire;
use super::malformed_response;
use super::security::resources_from_wire;

#[cfg(test)]
mod tests;

/// The label by which sandboxes and containers belong to a pod.
pub(super) const POD_UID_LABEL: &str = "io.kubernetes.pod.uid";
pub(super) const POD_NAME_LABEL: &str = "io.kubernetes.pod.name";
pub(super) const POD_NAMESPACE_LABEL: &str = "io.kubernetes.pod.namespace";

/// A pod's status never shows more than this of all its containers' messages together.
// upstream: pkg/kubelet/status/status_manager.go
const MESSAGE_CAP: usize = 12 * 1024;

fn capped(mut text: String) -> String {
    if text.len() > MESSAGE_CAP {
        text.truncate(text.floor_char_boundary(MESSAGE_CAP));
        text.shrink_to_fit();
    }
    text
}

pub(super) fn sandbox(status: v1::PodSandboxStatus) -> SandboxRecord {
    let metadata = status.metadata.unwrap_or_default();
    let namespaces = status.linux.and_then(|linux| linux.namespaces);
    let network = namespaces.and_then(|namespaces| namespaces.options).map(|it| it.network);
    let host_network = network.map(|mode| mode == i32::from(v1::NamespaceMode::Node));
    SandboxRecord {
        id: status.id,
        name: metadata.name,
        namespace: metadata.namespace,
        uid: metadata.uid,
        attempt: metadata.attempt,
        ready: status.state == i32::from(v1::PodSandboxState::SandboxReady),
        created_at: status.created_at,
        ips: match host_network {
            Some(true) => Vec::new(),
            _ => addresses(status.network.unwrap_or_default()),
        },
        host_network,
        runtime_handler: status.runtime_handler,
        labels: status.labels,
        annotations: status.annotations,
    }
}

/// All of them or, if one is no address, none: part of a pod's addresses would be announced as all
/// of them.
// upstream: pkg/kubelet/kuberuntime/kuberuntime_sandbox.go
fn addresses(network: v1::PodSandboxNetworkStatus) -> Vec<String> {
    let further = network.additional_ips.into_iter().map(|further| further.ip);
    let main = Some(network.ip).filter(|ip| !ip.is_empty());
    let all: Vec<String> = main.into_iter().chain(further).collect();
    if all.iter().all(|ip| ip.parse::<IpAddr>().is_ok()) { all } else { Vec::new() }
}

/// A container's status does not name its sandbox; the listing does.
pub(super) fn container(status: v1::ContainerStatus, sandbox_id: String) -> ContainerRecord {
    let metadata = status.metadata.unwrap_or_default();
    ContainerRecord {
        id: status.id,
        sandbox_id,
        name: metadata.name,
        attempt: metadata.attempt,
        state: state(status.state),
        created_at: status.created_at,
        started_at: status.started_at,
        finished_at: status.finished_at,
        exit_code: status.exit_code,
        reason: capped(status.reason),
        message: capped(status.message),
        image: status.image.unwrap_or_default().image,
        image_ref: status.image_ref,
        image_id: status.image_id,
        log_path: status.log_path,
        labels: status.labels,
        annotations: status.annotations,
        resources: status.resources.and_then(|it| it.linux).map(resources_from_wire),
        user: status.user.and_then(|user| user.linux).map(|user| LinuxUser {
            uid: user.uid,
            gid: user.gid,
            supplemental_groups: user.supplemental_groups,
        }),
        mounts: status.mounts.into_iter().map(mount).collect(),
        stop_signal: stop_signal(status.stop_signal),
    }
}

fn stop_signal(signal: i32) -> String {
    match v1::Signal::try_from(signal) {
        Ok(v1::Signal::RuntimeDefault) | Err(_) => String::new(),
        Ok(known) => known.as_str_name().replace("PLUS", "+").replace("MINUS", "-"),
    }
}

pub(super) fn state(state: i32) -> ContainerState {
    match v1::ContainerState::try_from(state) {
        Ok(v1::ContainerState::ContainerCreated) => ContainerState::Created,
        Ok(v1::ContainerState::ContainerRunning) => ContainerState::Running,
        Ok(v1::ContainerState::ContainerExited) => ContainerState::Exited,
        Ok(v1::ContainerState::ContainerUnknown) | Err(_) => ContainerState::Unknown,
    }
}

fn id_mapping(mapping: v1::IdMapping) -> IdMapping {
    let v1::IdMapping { host_id, container_id, length } = mapping;
    IdMapping { host_id, container_id, length }
}

fn mount(mount: v1::Mount) -> Mount {
    let propagation = match v1::MountPropagation::try_from(mount.propagation) {
        Ok(v1::MountPropagation::PropagationHostToContainer) => Propagation::HostToContainer,
        Ok(v1::MountPropagation::PropagationBidirectional) => Propagation::Bidirectional,
        Ok(v1::MountPropagation::PropagationPrivate) | Err(_) => Propagation::Private,
    };
    Mount {
        container_path: mount.container_path,
        host_path: mount.host_path,
        readonly: mount.readonly,
        selinux_relabel: mount.selinux_relabel,
        propagation,
        recursive_read_only: mount.recursive_read_only,
        uid_mappings: mount.uid_mappings.into_iter().map(id_mapping).collect(),
        gid_mappings: mount.gid_mappings.into_iter().map(id_mapping).collect(),
        image: mount.image.map(spec_from_wire),
        image_sub_path: mount.image_sub_path,
    }
}

pub(super) fn event(event: v1::ContainerEventResponse) -> RuntimeEvent {
    use v1::ContainerEventType as Wire;
    let kind = match Wire::try_from(event.container_event_type) {
        Ok(Wire::ContainerCreatedEvent) => RuntimeEventKind::Created,
        Ok(Wire::ContainerStartedEvent) => RuntimeEventKind::Started,
        Ok(Wire::ContainerStoppedEvent) => RuntimeEventKind::Stopped,
        Ok(Wire::ContainerDeletedEvent) => RuntimeEventKind::Deleted,
        Err(_) => RuntimeEventKind::Other,
    };
    let sandbox = event.pod_sandbox_status.unwrap_or_default();
    // A container's end is not taken from an event whose sandbox is missing or not ready.
    let is_ready =
        sandbox.state == i32::from(v1::PodSandboxState::SandboxReady) && !sandbox.id.is_empty();
    let by_label = || {
        let mut labels = event.containers_statuses.iter().map(|status| &status.labels);
        labels.find_map(|labels| labels.get(POD_UID_LABEL).cloned())
    };
    let pod_uid = sandbox.metadata.map(|metadata| metadata.uid).filter(|uid| !uid.is_empty());
    let pod_uid = pod_uid.or_else(by_label).unwrap_or_default();
    let is_it = |status: &v1::ContainerStatus| status.id == event.container_id;
    let ended = match kind {
        RuntimeEventKind::Stopped if is_ready => event.containers_statuses.into_iter().find(is_it),
        _ => None,
    };
    let ended = ended.map(|status| container(status, String::new()));
    let is_end =
        |record: &ContainerRecord| record.state == ContainerState::Exited && record.finished_at > 0;
    let ended = ended.filter(is_end).map(Box::new);
    RuntimeEvent { kind, id: event.container_id, pod_uid, created_at: event.created_at, ended }
}

fn count(value: Option<v1::UInt64Value>) -> u64 {
    value.unwrap_or_default().value
}

pub(super) fn usage(stats: v1::ContainerStats) -> ContainerUsage {
    let cpu = stats.cpu.unwrap_or_default();
    let memory = stats.memory.unwrap_or_default();
    let layer = stats.writable_layer.unwrap_or_default();
    ContainerUsage {
        container_id: stats.attributes.unwrap_or_default().id,
        timestamp: cpu.timestamp.max(memory.timestamp),
        cpu_core_nanoseconds: count(cpu.usage_core_nano_seconds),
        working_set_bytes: count(memory.working_set_bytes),
        writable_layer_bytes: count(layer.used_bytes),
    }
}

pub(super) fn filesystem(usage: v1::FilesystemUsage) -> FilesystemUsage {
    FilesystemUsage {
        mountpoint: usage.fs_id.unwrap_or_default().mountpoint,
        used_bytes: count(usage.used_bytes),
        inodes_used: count(usage.inodes_used),
        timestamp: usage.timestamp,
    }
}

pub(super) fn handler(handler: v1::RuntimeHandler) -> HandlerFeatures {
    let features = handler.features.unwrap_or_default();
    HandlerFeatures {
        name: handler.name,
        recursive_read_only_mounts: features.recursive_read_only_mounts,
        user_namespaces: features.user_namespaces,
    }
}

/// An empty response would decode to the first enum value, so a response without its Linux part is
/// an error.
pub(super) fn cgroup_driver(
    answer: v1::RuntimeConfigResponse,
) -> Result<CgroupDriver, ContainerRuntimeError> {
    const CALL: &str = "RuntimeConfig";
    let Some(linux) = answer.linux else {
        let message = "the answer has no part for Linux".to_owned();
        return Err(ContainerRuntimeError::Unimplemented { call: CALL, message });
    };
    match v1::CgroupDriver::try_from(linux.cgroup_driver) {
        Ok(v1::CgroupDriver::Systemd) => Ok(CgroupDriver::Systemd),
        Ok(v1::CgroupDriver::Cgroupfs) => Ok(CgroupDriver::Cgroupfs),
        Err(_) => {
            Err(malformed_response(CALL, format!("unknown cgroup driver {}", linux.cgroup_driver)))
        }
    }
}
