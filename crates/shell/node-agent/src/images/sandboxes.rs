//! What the runtime is told of the pod that a pull is for.
//!
//! Rule: made for each order and gone with it; whoever waits for hours keeps none. CRI-O takes the
//! namespace's signature policy and the cgroup of the pull from it.

use crate::pods::PodSettings;
use container_setup::sandbox;
use pod_model::pod::Pod;
use ports::pod_host::PodCgroups;
use ports::runtime_objects::SandboxConfig;
use std::sync::Arc;
use tracing::warn;

/// Cheap to clone.
#[derive(Clone)]
pub(crate) struct PullSandboxes {
    settings: Arc<PodSettings>,
    cgroups: Arc<dyn PodCgroups>,
}

impl PullSandboxes {
    pub(crate) fn new(settings: Arc<PodSettings>, cgroups: Arc<dyn PodCgroups>) -> Self {
        Self { settings, cgroups }
    }

    /// Without its cgroup where nobody can tell that: no sandbox comes to be then, and that is told
    /// there; the image may be here by the time it does.
    pub(super) async fn of_pod(&self, pod: &Pod, attempt: u32) -> Box<SandboxConfig> {
        let parent = self.settings.cgroups.parent_of(pod, &*self.cgroups).await;
        let parent = parent.unwrap_or_else(|why| {
            warn!(pod_uid = %pod.metadata.uid, err = why, "A pull is not told its pod's cgroup");
            String::new()
        });
        let logs = &self.settings.setup.pod_logs_directory;
        Box::new(sandbox::for_pull(pod, logs, parent, attempt))
    }
}
