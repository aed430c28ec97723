//! Events that services, probes and actions send to a pod's worker.
//!
//! Rule: one channel for all of them. A channel allocates at once, most pods have no events for
//! hours, and a node has many pods; for the same reason events are boxed.

use crate::images::ImageNews;
use crate::probes::ProbeNews;
use crate::volumes::VolumeNews;
use pod_lifecycle::PodEvent;
use tokio::sync::mpsc;

#[derive(Debug)]
pub(crate) enum News {
    Image(ImageNews),
    Volumes(VolumeNews),
    Probe(ProbeNews),
    Event(PodEvent),
}

pub(crate) type NewsSender = mpsc::Sender<Box<News>>;
