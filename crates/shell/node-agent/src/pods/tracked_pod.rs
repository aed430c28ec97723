//! A pod that has a worker, or waits for one, and the channels to its worker.

use super::worker::ExternalStatus;
use crate::back_off::ExponentialBackOff;
use pod_lifecycle::DesiredPod;
use pod_model::pod::status::PodStatus;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

const FIRST_RESTART: Duration = Duration::from_secs(1);
const LONGEST_RESTART: Duration = Duration::from_secs(60);

pub(super) struct TrackedPod {
    pub(super) desired: watch::Sender<DesiredPod>,
    /// What others have written into its status in the API server.
    pub(super) external: watch::Sender<ExternalStatus>,
    /// The status that `external` was read from.
    pub(super) api_status: Option<Arc<PodStatus>>,
    pub(super) full_name: String,
    /// Pods with the same key run one after the other.
    pub(super) queue: String,
    /// Nothing is left of it here.
    pub(super) is_over: bool,
    pub(super) restart: ExponentialBackOff,
    /// When to restart after a panic.
    pub(super) restart_at: Option<Instant>,
    /// Waits for an earlier pod of the same name.
    pub(super) is_queued: bool,
    /// It had a worker already.
    pub(super) has_begun: bool,
    /// It ends, and its UID is desired again.
    pub(super) is_wanted_again: bool,
}

impl TrackedPod {
    pub(super) fn new(
        desired: DesiredPod,
        queue: String,
        api_status: Option<&Arc<PodStatus>>,
    ) -> Self {
        let external = api_status.map(|status| ExternalStatus::of(status)).unwrap_or_default();
        Self {
            full_name: desired.pod.full_name(),
            desired: watch::Sender::new(desired),
            external: watch::Sender::new(external),
            api_status: api_status.cloned(),
            queue,
            is_over: false,
            restart: ExponentialBackOff::new(FIRST_RESTART, LONGEST_RESTART),
            restart_at: None,
            is_queued: false,
            has_begun: false,
            is_wanted_again: false,
        }
    }

    /// One that waits for earlier pods of its name.
    pub(super) fn by_name(desired: DesiredPod) -> Self {
        let queue = desired.pod.full_name();
        Self::new(desired, queue, None)
    }

    pub(super) fn take_api_status(&mut self, status: &Arc<PodStatus>) {
        if self.api_status.as_ref().is_some_and(|known| Arc::ptr_eq(known, status)) {
            return;
        }
        self.api_status = Some(status.clone());
        let next = ExternalStatus::of(status);
        self.external.send_if_modified(|known| {
            let changed = *known != next;
            *known = next;
            changed
        });
    }
}
