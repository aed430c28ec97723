//! ConfigMaps, Secrets and tokens in memory.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ports::{
    ContentData, ContentError, ContentName, ContentObject, ContentWatch, IssuedToken, PodContents,
    PortFuture, TokenDemand,
};
use tokio::sync::watch;

/// Cheap to clone; clones share state. Objects that were not put there are not found.
#[derive(Clone)]
pub struct FakeContents {
    shared: Arc<Mutex<SharedContents>>,
    changes: Arc<watch::Sender<u64>>,
}

impl Default for FakeContents {
    fn default() -> Self {
        Self { shared: Arc::default(), changes: Arc::new(watch::Sender::new(0)) }
    }
}

#[derive(Default)]
struct SharedContents {
    results: BTreeMap<String, ContentResult>,
    version: u64,
    reads: Vec<String>,
    /// By object, how many watches there are.
    watches: BTreeMap<String, usize>,
    demands: Vec<TokenDemand>,
    token: Option<Result<IssuedToken, ContentError>>,
}

#[derive(Clone, PartialEq)]
enum ContentResult {
    Ready(Result<ContentObject, ContentError>),
    Never,
}

impl FakeContents {
    fn lock(&self) -> MutexGuard<'_, SharedContents> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, name: &str, result: ContentResult) {
        self.lock().results.insert(name.to_owned(), result);
        self.changes.send_modify(|count| *count += 1);
    }

    /// Stores an object (`ConfigMap default/a`) with one key and its value.
    pub fn put(&self, name: &str, key: &str, value: &str) {
        let data = BTreeMap::from([(key.to_owned(), value.as_bytes().to_vec())]);
        self.put_object(
            name,
            ContentObject { data: ContentData(data), ..ContentObject::default() },
        );
    }

    /// Stores an object; its version is the next one.
    pub fn put_object(&self, name: &str, object: ContentObject) {
        let resource_version = {
            let mut shared = self.lock();
            shared.version += 1;
            shared.version.to_string()
        };
        self.set(name, ContentResult::Ready(Ok(ContentObject { resource_version, ..object })));
    }

    pub fn remove(&self, name: &str) {
        self.set(name, ContentResult::Ready(Err(ContentError::NotFound)));
    }

    pub fn refuse(&self, name: &str, error: ContentError) {
        self.set(name, ContentResult::Ready(Err(error)));
    }

    pub fn hang(&self, name: &str) {
        self.set(name, ContentResult::Never);
    }

    /// What every demand for a token gets from now on.
    pub fn issue(&self, token: Result<IssuedToken, ContentError>) {
        self.lock().token = Some(token);
    }

    /// The demands for tokens so far.
    pub fn demands(&self) -> Vec<TokenDemand> {
        self.lock().demands.clone()
    }

    /// The names of the objects that were read, in order.
    pub fn reads(&self) -> Vec<String> {
        self.lock().reads.clone()
    }

    /// How many watches of an object there are.
    pub fn watches(&self, name: &str) -> usize {
        self.lock().watches.get(name).copied().unwrap_or_default()
    }

    fn current(&self, name: &str) -> ContentResult {
        let known = self.lock().results.get(name).cloned();
        known.unwrap_or(ContentResult::Ready(Err(ContentError::NotFound)))
    }
}

struct FakeContentWatch {
    name: String,
    contents: FakeContents,
    changes: watch::Receiver<u64>,
    reported: Option<ContentResult>,
}

impl Drop for FakeContentWatch {
    fn drop(&mut self) {
        if let Some(count) = self.contents.lock().watches.get_mut(&self.name) {
            *count -= 1;
        }
    }
}

/// How soon a watch that failed is retried.
const WATCH_RETRY: Duration = Duration::from_millis(200);

impl ContentWatch for FakeContentWatch {
    fn next(&mut self) -> PortFuture<'_, Result<ContentObject, ContentError>> {
        Box::pin(async move {
            loop {
                self.changes.mark_unchanged();
                let now = self.contents.current(&self.name);
                let is_change = self.reported.as_ref() != Some(&now);
                if let (true, ContentResult::Ready(result)) = (is_change, &now) {
                    self.reported = Some(now.clone());
                    return result.clone();
                }
                let failed = matches!(
                    &now,
                    ContentResult::Ready(Err(error)) if *error != ContentError::NotFound
                );
                tokio::select! {
                    _ = self.changes.changed() => {}
                    () = tokio::time::sleep(WATCH_RETRY), if failed => self.reported = None,
                }
            }
        })
    }
}

impl PodContents for FakeContents {
    fn read<'a>(
        &'a self,
        wanted: &'a ContentName,
    ) -> PortFuture<'a, Result<ContentObject, ContentError>> {
        Box::pin(async move {
            let name = wanted.to_string();
            self.lock().reads.push(name.clone());
            match self.current(&name) {
                ContentResult::Ready(answer) => answer,
                ContentResult::Never => std::future::pending().await,
            }
        })
    }

    fn watch(&self, wanted: &ContentName) -> Box<dyn ContentWatch> {
        let name = wanted.to_string();
        *self.lock().watches.entry(name.clone()).or_default() += 1;
        let changes = self.changes.subscribe();
        Box::new(FakeContentWatch { name, contents: self.clone(), changes, reported: None })
    }

    fn token<'a>(
        &'a self,
        demand: &'a TokenDemand,
    ) -> PortFuture<'a, Result<IssuedToken, ContentError>> {
        let mut shared = self.lock();
        shared.demands.push(demand.clone());
        let answer = shared.token.clone().unwrap_or_else(|| {
            Err(ContentError::Failed(format!("no token for {}", demand.service_account)))
        });
        Box::pin(std::future::ready(answer))
    }
}
