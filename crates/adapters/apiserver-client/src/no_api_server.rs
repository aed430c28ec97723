//! What pods take from the API on a node without an API server: every read fails.

use ports::{
    ContentError, ContentName, ContentObject, ContentWatch, IssuedToken, PodContents, PortFuture,
    TokenDemand,
};

/// Fails every read at once.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoApiServer;

/// One error, then nothing.
struct FailedWatch(bool);

fn no_source() -> ContentError {
    ContentError::NoSource("this node has no API server".to_owned())
}

impl ContentWatch for FailedWatch {
    fn next(&mut self) -> PortFuture<'_, Result<ContentObject, ContentError>> {
        if std::mem::replace(&mut self.0, true) {
            return Box::pin(std::future::pending());
        }
        Box::pin(std::future::ready(Err(no_source())))
    }
}

impl PodContents for NoApiServer {
    fn read<'a>(
        &'a self,
        _wanted: &'a ContentName,
    ) -> PortFuture<'a, Result<ContentObject, ContentError>> {
        Box::pin(std::future::ready(Err(no_source())))
    }

    fn watch(&self, _wanted: &ContentName) -> Box<dyn ContentWatch> {
        Box::new(FailedWatch(false))
    }

    fn token<'a>(
        &'a self,
        _demand: &'a TokenDemand,
    ) -> PortFuture<'a, Result<IssuedToken, ContentError>> {
        Box::pin(std::future::ready(Err(no_source())))
    }
}

#[cfg(test)]
mod tests;
