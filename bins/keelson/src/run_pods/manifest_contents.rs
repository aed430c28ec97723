//! The port to ConfigMaps and Secrets, served from the documents that came with the pods.
//!
//! Rule: an object is there as long as a pod that uses it is desired. When the pod is not desired any
//! more it still runs until it has ended, so a watch does not report that an object is gone.

use super::desired_pods::DesiredPods;
use ports::{
    ContentError, ContentName, ContentObject, ContentWatch, IssuedToken, PodContents, PortFuture,
    TokenDemand,
};
use tokio::sync::watch;

pub(super) struct ManifestContents {
    desired: watch::Receiver<DesiredPods>,
}

impl ManifestContents {
    pub(super) fn new(desired: watch::Receiver<DesiredPods>) -> Self {
        Self { desired }
    }
}

struct ManifestContentWatch {
    desired: watch::Receiver<DesiredPods>,
    name: ContentName,
    reported: Option<Result<ContentObject, ContentError>>,
}

impl ContentWatch for ManifestContentWatch {
    fn next(&mut self) -> PortFuture<'_, Result<ContentObject, ContentError>> {
        Box::pin(async move {
            loop {
                let found = self.desired.borrow_and_update().content(&self.name);
                let is_gone = found.is_none() && self.reported.is_some();
                let state = found.ok_or(ContentError::NotFound);
                if !is_gone && self.reported.as_ref() != Some(&state) {
                    self.reported = Some(state.clone());
                    return state;
                }
                if self.desired.changed().await.is_err() {
                    // The sender is gone: there are no more changes.
                    std::future::pending::<()>().await;
                }
            }
        })
    }
}

impl PodContents for ManifestContents {
    fn read<'a>(
        &'a self,
        wanted: &'a ContentName,
    ) -> PortFuture<'a, Result<ContentObject, ContentError>> {
        let found = self.desired.borrow().content(wanted);
        Box::pin(std::future::ready(found.ok_or(ContentError::NotFound)))
    }

    fn watch(&self, wanted: &ContentName) -> Box<dyn ContentWatch> {
        let (desired, name) = (self.desired.clone(), wanted.clone());
        Box::new(ManifestContentWatch { desired, name, reported: None })
    }

    fn token<'a>(
        &'a self,
        _demand: &'a TokenDemand,
    ) -> PortFuture<'a, Result<IssuedToken, ContentError>> {
        let why = "a pod from the command line has no API server".to_owned();
        Box::pin(std::future::ready(Err(ContentError::NoSource(why))))
    }
}
