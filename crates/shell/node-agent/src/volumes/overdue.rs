//! The event about volumes that are not there in time.
//!
//! Rule: one each time that the limit has passed, for as long as a volume is missing, with upstream's
//! text. Volumes need not be attached here, so that list is empty.
//!
//! upstream: pkg/kubelet/volumemanager/volume_manager.go (WaitForAttachAndMount)

use super::VolumeState;
use super::service::send;
use crate::worker_events::WorkerEventSender;
use pod_lifecycle::{EventType, PodEvent};
use std::time::Duration;
use tokio::sync::watch;

/// Upstream's limit for one attempt at a pod.
const MOUNT_TIMEOUT: Duration = Duration::from_secs(123);

/// Never ends by itself.
pub(super) async fn report(
    missing: watch::Receiver<Vec<String>>,
    version: u64,
    worker_events: WorkerEventSender,
) {
    loop {
        tokio::time::sleep(MOUNT_TIMEOUT).await;
        let mut names = missing.borrow().clone();
        if names.is_empty() {
            std::future::pending::<()>().await;
        }
        names.sort();
        let event = PodEvent {
            kind: EventType::Warning,
            reason: "FailedMount".to_owned(),
            message: format!(
                "Unable to attach or mount volumes: unmounted volumes=[{}], unattached volumes=[], \
                 failed to process volumes=[]: context deadline exceeded",
                names.join(" ")
            ),
            field_path: None,
        };
        send(&worker_events, version, VolumeState::Event(event)).await;
    }
}
