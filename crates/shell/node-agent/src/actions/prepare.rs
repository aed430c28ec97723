//! Creates a pod's directories and cgroup.

use super::ActionWorld;
use container_setup::inputs::PodFacts;
use container_setup::{cgroups, log_paths};

pub(super) async fn prepare(world: &ActionWorld) -> Result<(), String> {
    let settings = &world.context.settings;
    let ports = &world.context.ports;
    let logs = log_paths::pod_directory(&settings.setup.pod_logs_directory, &world.pod);
    let made = ports.folders.make_pod(world.uid(), &logs).await;
    made.map_err(|error| format!("cannot create the pod's directories: {error}"))?;
    if settings.cgroups.per_qos {
        let name = cgroups::of_pod(&settings.cgroups.root, &world.pod);
        let limits = cgroups::pod_limits(&world.pod, &settings.setup, &PodFacts::default());
        let made = ports.cgroups.apply(&name, &limits).await;
        made.map_err(|error| format!("cannot make the pod's cgroup: {error}"))?;
    }
    Ok(())
}
