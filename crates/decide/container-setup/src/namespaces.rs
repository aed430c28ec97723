//! The Linux namespaces of a pod.
//!
//! Rule: a user namespace only where the handler supports it and the node has allocated a range;
//! every other pod uses the node's.
//!
//! upstream: pkg/kubelet/kuberuntime/util/util.go, pkg/kubelet/userns/userns_manager.go

use pod_model::pod::Pod;
use ports::runtime_objects::{NamespaceMode, NamespaceOptions, UserNamespace};

use crate::inputs::PodSetupInputs;
use crate::{SetupError, refuse};

#[cfg(test)]
mod tests;

pub fn of_pod(pod: &Pod, facts: &PodSetupInputs) -> Result<NamespaceOptions, SetupError> {
    let spec = &pod.spec;
    let host = |asked: bool| if asked { NamespaceMode::Node } else { NamespaceMode::Pod };
    Ok(NamespaceOptions {
        network: host(spec.host_network),
        pid: if spec.host_pid {
            NamespaceMode::Node
        } else if spec.share_process_namespace == Some(true) {
            NamespaceMode::Pod
        } else {
            NamespaceMode::Container
        },
        ipc: host(spec.host_ipc),
        target_id: String::new(),
        user: Some(users(pod, facts)?),
    })
}

fn users(pod: &Pod, facts: &PodSetupInputs) -> Result<UserNamespace, SetupError> {
    if !pod.spec.has_user_namespace() {
        return Ok(UserNamespace { mode: NamespaceMode::Node, ..UserNamespace::default() });
    }
    let handler = &facts.handler;
    if !handler.user_namespaces && handler.name.is_empty() {
        refuse!("can't set `spec.hostUsers: false`, runtime does not support user namespaces");
    }
    if !handler.user_namespaces {
        refuse!(
            "can't set `spec.hostUsers: false`, RuntimeClass handler {:?} does not support user \
             namespaces",
            handler.name
        );
    }
    match &facts.user_namespace {
        Some(users) => Ok(users.clone()),
        None => refuse!("no users have been set aside for the pod yet"),
    }
}

/// As for the pod; a container with its own PID namespace may join that of another one.
pub fn of_container(
    pod: &Pod,
    facts: &PodSetupInputs,
    target_id: Option<&str>,
) -> Result<NamespaceOptions, SetupError> {
    let mut options = of_pod(pod, facts)?;
    if let Some(target) = target_id
        && options.pid == NamespaceMode::Container
    {
        options.pid = NamespaceMode::Target;
        options.target_id = target.to_owned();
    }
    Ok(options)
}
