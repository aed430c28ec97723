//! Removes what belongs to a container's record or to the whole pod.

use super::ActionWorld;
use super::sandbox::gone_is_fine;
use crate::garbage::remove_log;
use container_setup::cgroups;
use tracing::warn;

pub(super) async fn remove_container(
    world: &ActionWorld,
    id: &str,
    name: &str,
    keep_logs: bool,
) -> Result<(), String> {
    let ports = &world.context.ports;
    if !keep_logs {
        let mut all = world.observed.containers.iter().map(|each| &each.record);
        let log = all.find(|record| record.id == id).map(|record| record.log_path.as_str());
        remove_log(&*ports.folders, log.unwrap_or_default()).await?;
    }
    gone_is_fine(ports.runtime.remove_container(id).await)?;
    let others = world.observed.containers.iter().map(|each| &each.record);
    let is_last = !others.into_iter().any(|record| record.name == name && record.id != id);
    if is_last && let Err(error) = ports.volumes.release_sub_paths(world.uid(), name).await {
        warn!(pod_uid = world.uid(), container = name, err = %error, "Cannot release sub-paths");
    }
    Ok(())
}

/// `forget`: the pod is not desired any more, so its directories are removed too.
pub(super) async fn clean_up(world: &ActionWorld, forget: bool) -> Result<(), String> {
    let ports = &world.context.ports;
    let settings = &world.context.settings.cgroups;
    let down = ports.volumes.tear_down(world.uid()).await;
    down.map_err(|error| format!("cannot take down the pod's volumes: {error}"))?;
    if settings.per_qos {
        let removed = remove_cgroups(world).await;
        removed.map_err(|error| format!("cannot remove the pod's cgroup: {error}"))?;
    }
    if !forget {
        return Ok(());
    }
    let removed = ports.folders.remove_pod(world.uid()).await;
    removed.map_err(|error| format!("cannot remove the pod's directory: {error}"))
}

/// The QoS class of a pod without a specification is not known: look below every class.
async fn remove_cgroups(world: &ActionWorld) -> Result<(), ports::pod_host::HostError> {
    use pod_model::pod::QosClass;
    let settings = &world.context.settings.cgroups;
    let last = format!("pod{}", world.uid());
    for class in [QosClass::Guaranteed, QosClass::Burstable, QosClass::BestEffort] {
        let mut name = cgroups::of_class(&settings.root, &class);
        name.push(last.clone());
        world.context.ports.cgroups.remove(&name).await?;
    }
    Ok(())
}
