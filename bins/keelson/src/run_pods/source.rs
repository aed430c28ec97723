//! The wanted pods as a source of manifests.

use super::household::Wish;
use ports::PortFuture;
use ports::pod_sources::{ManifestFile, ManifestSource, SourceTelling};
use tokio::sync::watch;

pub(super) struct HouseholdSource {
    wish: watch::Receiver<Wish>,
    told: Option<Vec<ManifestFile>>,
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
            let changed = self.wish.wait_for(|wish| Some(wish.files()) != told).await;
            let Some(files) = changed.ok().map(|wish| wish.files()) else {
                // Whoever could change their mind is gone.
                return std::future::pending().await;
            };
            self.told = Some(files.clone());
            SourceTelling::All(files)
        })
    }
}
