//! Events that services, probes and actions send to a pod's worker.
//!
//! Rule: one channel for all of them. A channel allocates at once, most pods have no events for
//! hours, and a node has many pods; for the same reason events are boxed.

use crate::images::ImageUpdate;
use crate::probes::ProbeUpdate;
use crate::volumes::VolumeUpdate;
use pod_lifecycle::PodEvent;
use tokio::sync::mpsc;

#[derive(Debug)]
pub(crate) enum WorkerEvent {
    Image(ImageUpdate),
    Volumes(VolumeUpdate),
    Probe(ProbeUpdate),
    /// The devices of the pod are allocated, or why they are not.
    Devices(Result<(), String>),
    Event(PodEvent),
}

pub(crate) type WorkerEventSender = mpsc::Sender<Box<WorkerEvent>>;
