//! ConfigMaps and Secrets in memory.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ports::{ContentData, ContentError, ContentName, PodContents, PortFuture};

/// Cheap to clone; clones share state. Objects that were not put there are not found.
#[derive(Clone, Default)]
pub struct FakeContents {
    shared: Arc<Mutex<BTreeMap<String, ContentResult>>>,
}

#[derive(Clone)]
enum ContentResult {
    Ready(Result<ContentData, ContentError>),
    Never,
}

impl FakeContents {
    fn results(&self) -> MutexGuard<'_, BTreeMap<String, ContentResult>> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores an object (`ConfigMap default/a`) with one key and its value.
    pub fn put(&self, name: &str, key: &str, value: &str) {
        let data = BTreeMap::from([(key.to_owned(), value.as_bytes().to_vec())]);
        self.results().insert(name.to_owned(), ContentResult::Ready(Ok(ContentData(data))));
    }

    pub fn refuse(&self, name: &str, error: ContentError) {
        self.results().insert(name.to_owned(), ContentResult::Ready(Err(error)));
    }

    pub fn hang(&self, name: &str) {
        self.results().insert(name.to_owned(), ContentResult::Never);
    }
}

impl PodContents for FakeContents {
    fn read<'a>(
        &'a self,
        wanted: &'a ContentName,
    ) -> PortFuture<'a, Result<ContentData, ContentError>> {
        Box::pin(async move {
            let answer = self.results().get(&wanted.to_string()).cloned();
            match answer {
                Some(ContentResult::Ready(answer)) => answer,
                Some(ContentResult::Never) => std::future::pending().await,
                None => Err(ContentError::NotFound),
            }
        })
    }
}
