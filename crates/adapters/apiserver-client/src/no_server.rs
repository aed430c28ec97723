//! What a node without an API server answers to whoever wants an object of one.

use ports::{ContentData, ContentError, ContentName, PodContents, PortFuture};

/// Nothing can be read; that is said at once.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoApiServer;

impl PodContents for NoApiServer {
    fn read<'a>(
        &'a self,
        _wanted: &'a ContentName,
    ) -> PortFuture<'a, Result<ContentData, ContentError>> {
        let why = "this node has no API server".to_owned();
        Box::pin(std::future::ready(Err(ContentError::NoSource(why))))
    }
}

#[cfg(test)]
mod tests;
