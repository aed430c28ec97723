//! The sandbox configuration that the runtime gets with a pull.
//!
//! Rule: made for each order and dropped with it, so that waiting requests keep none. CRI-O takes
//! the namespace's signature policy and the cgroup of the pull from it.

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

    /// Without the cgroup if its parent is not known: then the sandbox cannot be created either,
    /// and that error is reported there; the image may be present by the time it can.
    pub(super) async fn of_pod(&self, pod: &Pod, attempt: u32) -> Box<SandboxConfig> {
        let parent = self.settings.cgroups.parent_of(pod, &*self.cgroups).await;
        let parent = parent.unwrap_or_else(|why| {
            warn!(pod_uid = %pod.metadata.uid, err = why, "A pull starts without its pod's cgroup");
            String::new()
        });
        let logs = &self.settings.setup.pod_logs_directory;
        Box::new(sandbox::for_pull(pod, logs, parent, attempt))
    }
}
