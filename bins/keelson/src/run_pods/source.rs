//! The desired pods as a manifest source.

use super::household::Wish;
use ports::PortFuture;
use ports::pod_sources::{ManifestSource, SourceTelling};
use std::sync::Arc;
use tokio::sync::watch;

pub(super) struct HouseholdSource {
    wish: watch::Receiver<Wish>,
    told: Option<Vec<(String, Arc<str>)>>,
}

impl HouseholdSource {
    pub(super) fn new(wish: watch::Receiver<Wish>) -> Self {
        Self { wish, told: None }
    }
}

impl ManifestSource for HouseholdSource {
    fn kind(&self) -> &'static str {
        "file"
    }

    fn next(&mut self) -> PortFuture<'_, SourceTelling> {
        Box::pin(async move {
            let told = self.told.take();
            let changed = self.wish.wait_for(|wish| Some(wish.version()) != told).await;
            let Some((version, files)) = changed.ok().map(|wish| (wish.version(), wish.files()))
            else {
                // The sender is gone: there are no more changes.
                return std::future::pending().await;
            };
            self.told = Some(version);
            SourceTelling::All(files)
        })
    }
}
