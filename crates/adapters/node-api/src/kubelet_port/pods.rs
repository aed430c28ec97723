//! Pods and containers by the names in a request.
//!
//! Rule: looked up in what the agent has published; codes and texts are upstream's
//! (pkg/kubelet/kubelet_pods.go: GetExec, GetAttach, GetPortForward, RunInContainer). As in
//! upstream, a UID in the path is compared for attach and port-forward only.

use ports::LocalApi;
use ports::local_api::{LocalContainer, LocalPod};
use serde_json::Value;

use super::reply::KubeletReply;
use super::route::{ContainerPath, PodRoute};

/// The specification of a container of any kind.
pub(super) fn container_spec<'a>(pod: &'a Value, container: &str) -> Option<&'a Value> {
    let lists = ["containers", "initContainers", "ephemeralContainers"];
    let specs = lists.iter().filter_map(|list| pod["spec"][*list].as_array()).flatten();
    specs.into_iter().find(|spec| spec["name"] == container)
}

pub(super) fn has_container(pod: &Value, container: &str) -> bool {
    container_spec(pod, container).is_some()
}

/// The pod of a path that streams or runs something.
pub(super) fn pod(local: &dyn LocalApi, path: PodRoute<'_>) -> Result<LocalPod, KubeletReply> {
    let pod = local.pod_by_name(path.namespace, path.name, path.uid);
    pod.ok_or_else(|| KubeletReply::text(404, "pod does not exist"))
}

/// Its running container of that name.
pub(super) fn running<'a>(pod: &'a LocalPod, name: &str) -> Option<&'a LocalContainer> {
    pod.containers.iter().find(|container| container.name == name && container.state == "running")
}

/// The running container for exec and run.
pub(super) fn container_to_exec(
    local: &dyn LocalApi,
    path: ContainerPath<'_>,
) -> Result<LocalContainer, KubeletReply> {
    let pod = pod(local, path.pod)?;
    running(&pod, path.container).cloned().ok_or_else(|| {
        KubeletReply::text(500, format!("container not found ({:?})", path.container))
    })
}

/// The running container for attach, and whether it has a terminal.
pub(super) fn container_to_attach(
    local: &dyn LocalApi,
    path: ContainerPath<'_>,
) -> Result<(LocalContainer, bool), KubeletReply> {
    let pod = pod(local, path.pod)?;
    let full_name = format!("{}_{}", pod.name, pod.namespace);
    let no_container = || {
        let text = format!("container {} not found in pod {full_name}", path.container);
        KubeletReply::text(500, text)
    };
    let container = running(&pod, path.container).ok_or_else(no_container)?;
    if path.pod.uid.is_some_and(|uid| uid != pod.uid) {
        return Err(KubeletReply::text(500, format!("pod {full_name} not found")));
    }
    let spec = container_spec(&pod.object, path.container).ok_or_else(no_container)?;
    Ok((container.clone(), spec["tty"] == true))
}

/// The UID of the pod for port-forward.
pub(super) fn pod_to_forward(
    local: &dyn LocalApi,
    path: PodRoute<'_>,
) -> Result<String, KubeletReply> {
    let pod = pod(local, path)?;
    if path.uid.is_some_and(|uid| uid != pod.uid) {
        return Err(KubeletReply::text(404, "pod not found"));
    }
    Ok(pod.uid)
}
