//! Creates a pod's directories and cgroup.

use super::ActionInputs;
use container_setup::inputs::PodSetupInputs;
use container_setup::{cgroups, log_paths};

pub(super) async fn prepare(action_inputs: &ActionInputs) -> Result<(), String> {
    let settings = &action_inputs.context.settings;
    let ports = &action_inputs.context.ports;
    let logs = log_paths::pod_directory(&settings.setup.pod_logs_directory, &action_inputs.pod);
    let made = ports.dirs.make_pod(action_inputs.uid(), &logs).await;
    made.map_err(|error| format!("cannot create the pod's directories: {error}"))?;
    if settings.cgroups.per_qos {
        let name = cgroups::of_pod(&settings.cgroups.root, &action_inputs.pod);
        let limits =
            cgroups::pod_limits(&action_inputs.pod, &settings.setup, &PodSetupInputs::default());
        let made = ports.cgroups.apply(&name, &limits).await;
        made.map_err(|error| format!("cannot make the pod's cgroup: {error}"))?;
    }
    Ok(())
}
