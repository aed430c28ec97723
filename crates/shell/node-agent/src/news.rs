//! What services, probes and actions tell a pod's worker.
//!
//! Rule: one channel for all of it. A channel keeps room from its first moment, most pods have no news
//! for hours, and a node has many pods; for the same reason news is boxed.

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
