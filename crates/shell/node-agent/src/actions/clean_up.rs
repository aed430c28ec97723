//! Removes what belongs to a container's record or to the whole pod.

use super::ActionInputs;
use super::sandbox::ignore_not_found;
use crate::garbage::remove_log;
use container_setup::cgroups;
use tracing::warn;

pub(super) async fn remove_container(
    action_inputs: &ActionInputs,
    id: &str,
    name: &str,
    keep_logs: bool,
) -> Result<(), String> {
    let ports = &action_inputs.context.ports;
    if !keep_logs {
        let mut all = action_inputs.observed.containers.iter().map(|each| &each.record);
        let log = all.find(|record| record.id == id).map(|record| record.log_path.as_str());
        remove_log(&*ports.dirs, log.unwrap_or_default()).await?;
    }
    ignore_not_found(ports.runtime.remove_container(id).await)?;
    let others = action_inputs.observed.containers.iter().map(|each| &each.record);
    let is_last = !others.into_iter().any(|record| record.name == name && record.id != id);
    if is_last && let Err(error) = ports.volumes.release_sub_paths(action_inputs.uid(), name).await
    {
        warn!(pod_uid = action_inputs.uid(), container = name, err = %error, "Cannot release sub-paths");
    }
    Ok(())
}

/// `forget`: the pod is not desired any more, so its directories are removed too.
pub(super) async fn clean_up(action_inputs: &ActionInputs, forget: bool) -> Result<(), String> {
    let ports = &action_inputs.context.ports;
    let settings = &action_inputs.context.settings.cgroups;
    let down = ports.volumes.tear_down(action_inputs.uid()).await;
    down.map_err(|error| format!("cannot take down the pod's volumes: {error}"))?;
    if settings.per_qos {
        let removed = remove_cgroups(action_inputs).await;
        removed.map_err(|error| format!("cannot remove the pod's cgroup: {error}"))?;
    }
    if !forget {
        return Ok(());
    }
    let removed = ports.dirs.remove_pod(action_inputs.uid()).await;
    removed.map_err(|error| format!("cannot remove the pod's directory: {error}"))
}

/// The QoS class of a pod without a specification is not known: look below every class.
async fn remove_cgroups(action_inputs: &ActionInputs) -> Result<(), ports::pod_host::HostError> {
    use pod_model::pod::QosClass;
    let settings = &action_inputs.context.settings.cgroups;
    let last = format!("pod{}", action_inputs.uid());
    for class in [QosClass::Guaranteed, QosClass::Burstable, QosClass::BestEffort] {
        let mut name = cgroups::of_class(&settings.root, &class);
        name.push(last.clone());
        action_inputs.context.ports.cgroups.remove(&name).await?;
    }
    Ok(())
}
