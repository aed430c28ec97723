//! A pod's volumes: from its specification to directories that containers can mount, and their
//! content for as long as the pod runs.
//!
//! Rules: each volume is set up on its own; a failed one is retried with growing delays and delays
//! only its pod, and so does one whose set-up hangs, which is reported. A volume type that is not supported yet is an error and is retried too, as nothing
//! else could be done. `plan` knows the types, `payload` the files that come from the API; `service`
//! sets up and updates; the driver does the work on the machine.

mod overdue;
mod payload;
mod plan;
mod service;

pub(crate) use plan::{RequiredVolumeImage, are_updated, image_volumes, names, same};
pub(crate) use service::maintain;

use container_setup::inputs::ReadyVolume;
use pod_lifecycle::PodEvent;
use pod_model::pod::Pod;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::watch;

/// By name.
pub(crate) type ReadyVolumes = BTreeMap<String, ReadyVolume>;

/// The volumes to set up and keep up to date.
pub(crate) struct WantedVolumes {
    /// Version of the pod's volumes; updates carry it.
    pub(crate) version: u64,
    /// The current pod: labels, annotations and resources are content of some volumes.
    pub(crate) pods: watch::Receiver<Arc<Pod>>,
    /// The volumes that are ready already.
    pub(crate) ready: ReadyVolumes,
}

/// The result of a setup, sent to the pod worker.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct VolumeUpdate {
    pub(crate) version: u64,
    pub(crate) state: VolumeState,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum VolumeState {
    Ready(ReadyVolumes),
    /// One takes long: the missing ones, and what is waited for.
    Waiting(Vec<String>),
    /// Some are missing; retried without a new request.
    Failed {
        message: String,
        event: PodEvent,
    },
    /// No other state than before, but an event: content could not be updated, or a set-up takes
    /// longer than it should.
    Event(PodEvent),
}
