//! The desired pods as a manifest source.

use super::desired_pods::DesiredPods;
use ports::PortFuture;
use ports::pod_sources::{ManifestSource, SourceKind, SourceSnapshot};
use std::sync::Arc;
use tokio::sync::watch;

pub(super) struct DesiredPodsSource {
    desired: watch::Receiver<DesiredPods>,
    sent_version: Option<Vec<(String, Arc<str>)>>,
}

impl DesiredPodsSource {
    pub(super) fn new(desired: watch::Receiver<DesiredPods>) -> Self {
        Self { desired, sent_version: None }
    }
}

impl ManifestSource for DesiredPodsSource {
    fn kind(&self) -> SourceKind {
        SourceKind::File
    }

    fn next(&mut self) -> PortFuture<'_, SourceSnapshot> {
        Box::pin(async move {
            let sent_version = self.sent_version.take();
            let changed =
                self.desired.wait_for(|desired| Some(desired.version()) != sent_version).await;
            let Some((version, files)) =
                changed.ok().map(|desired| (desired.version(), desired.files()))
            else {
                // The sender is gone: there are no more changes.
                return std::future::pending().await;
            };
            self.sent_version = Some(version);
            SourceSnapshot::All(files)
        })
    }
}
