//! The [`ClusterApi`] of a node without an API server: every read fails.

use ports::{ContentData, ContentError, ContentName, PodContents, PortFuture};

/// Fails every read at once.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoApiServer;

impl PodContents for NoApiServer {
    fn read<'a>(
        &'a self,
        _wanted: &'a ContentName,
    ) -> PortFuture<'a, Result<ContentData, ContentError>> {
        let reason = "this node has no API server".to_owned();
        Box::pin(std::future::ready(Err(ContentError::NoSource(reason))))
    }
}

#[cfg(test)]
mod tests;
