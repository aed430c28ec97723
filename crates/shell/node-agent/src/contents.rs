//! ConfigMaps and Secrets that this node's pods use: one state for each, however many use it.
//!
//! Rules: an object is watched (or read again and again, by `configMapAndSecretChangeDetectionStrategy`)
//! while a volume is made from it, and kept while some pod refers to it; then its memory is given
//! back. An error never replaces a known state: a container is restarted with the last known data
//! while the API server is away. Just after a pod was bound, the node authorizer may not know of it
//! yet: a 403 counts only after a while.

mod follow;
#[cfg(test)]
mod tests;

use ports::{ContentError, ContentName, ContentObject, PodContents};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// How long a 403 of the API server may be the node authorizer's lag.
const FORBIDDEN_LAG: Duration = Duration::from_secs(5);
const FIRST_FORBIDDEN_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_FORBIDDEN_PAUSE: Duration = Duration::from_secs(1);
/// How long a read may take if there is a last known state to fall back to.
const READ_TIMEOUT: Duration = Duration::from_secs(5);

/// `configMapAndSecretChangeDetectionStrategy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ContentChangeStrategy {
    #[default]
    Watch,
    /// Read again when what is known is older than a minute.
    Cache,
    /// Read again at each use, and for volumes each minute.
    Get,
}

/// None until the API server has answered.
pub(crate) type ObjectState = Option<Result<Arc<ContentObject>, ContentError>>;

/// Cheap to clone; all clones are one store.
#[derive(Clone)]
pub(crate) struct PodContentStore(Arc<StoreShared>);

struct StoreShared {
    port: Arc<dyn PodContents>,
    strategy: ContentChangeStrategy,
    entries: Mutex<HashMap<ContentName, ContentEntry>>,
}

#[derive(Default)]
struct ContentEntry {
    holders: usize,
    /// Those of the holders that follow its changes.
    followers: Vec<Arc<Notify>>,
    state: ObjectState,
    /// Incremented with each change of the state.
    revision: u64,
    /// The last object that was read, whatever came after it.
    last_known: Option<Arc<ContentObject>>,
    /// Follows the object; over if it is immutable.
    task: Option<JoinHandle<()>>,
}

/// A use of an object; it ends when this is dropped.
pub(crate) struct HeldContent {
    store: PodContentStore,
    name: ContentName,
    wakes: Option<Arc<Notify>>,
}

impl PodContentStore {
    pub(crate) fn new(port: Arc<dyn PodContents>, strategy: ContentChangeStrategy) -> Self {
        Self(Arc::new(StoreShared { port, strategy, entries: Mutex::default() }))
    }

    pub(crate) fn port(&self) -> &dyn PodContents {
        &*self.0.port
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<ContentName, ContentEntry>> {
        self.0.entries()
    }

    /// Keeps what is read of the object, without following it.
    pub(crate) fn hold(&self, name: ContentName) -> HeldContent {
        self.entries().entry(name.clone()).or_default().holders += 1;
        HeldContent { store: self.clone(), name, wakes: None }
    }

    /// Follows the object; `wakes` is notified of each change of its state. Call within tokio.
    pub(crate) fn follow(&self, name: ContentName, wakes: &Arc<Notify>) -> HeldContent {
        let mut entries = self.entries();
        let entry = entries.entry(name.clone()).or_default();
        entry.holders += 1;
        entry.followers.push(wakes.clone());
        if !entry.is_followed() {
            entry.state = None;
            let shared = Arc::downgrade(&self.0);
            entry.task = Some(tokio::spawn(follow::follow(shared, name.clone())));
        }
        drop(entries);
        HeldContent { store: self.clone(), name, wakes: Some(wakes.clone()) }
    }

    /// The object as it is now, for a container that starts. If the API server cannot be asked, the
    /// last known state.
    pub(crate) async fn read(
        &self,
        name: &ContentName,
    ) -> Result<Arc<ContentObject>, ContentError> {
        let (followed, last_known) = {
            let entries = self.entries();
            let entry = entries.get(name);
            (
                entry.and_then(ContentEntry::followed),
                entry.and_then(|entry| entry.last_known.clone()),
            )
        };
        if let Some(object) = followed.filter(|_| self.0.strategy != ContentChangeStrategy::Get) {
            return Ok(object);
        }
        let read = read_through_lag(&*self.0.port, name);
        let Some(known) = last_known else {
            return read.await.inspect(|object| self.remember(name, object));
        };
        match tokio::time::timeout(READ_TIMEOUT, read).await {
            Ok(Ok(object)) => {
                self.remember(name, &object);
                Ok(object)
            }
            Ok(Err(ContentError::Failed(_))) | Err(_) => Ok(known),
            Ok(Err(error)) => Err(error),
        }
    }

    fn remember(&self, name: &ContentName, object: &Arc<ContentObject>) {
        if let Some(entry) = self.entries().get_mut(name) {
            entry.last_known = Some(object.clone());
        }
    }

    /// How many objects are kept.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.entries().len()
    }
}

impl StoreShared {
    fn entries(&self) -> MutexGuard<'_, HashMap<ContentName, ContentEntry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the result of a read or a watch; notifies followers if it is another one.
    fn publish(&self, name: &ContentName, result: Result<ContentObject, ContentError>) {
        let mut entries = self.entries();
        let Some(entry) = entries.get_mut(name) else { return };
        let is_known = matches!(&entry.state, Some(Ok(_) | Err(ContentError::NotFound)));
        let state = match result {
            Ok(object) => {
                if let Some(Ok(known)) = &entry.state
                    && **known == object
                {
                    return;
                }
                let object = Arc::new(object);
                entry.last_known = Some(object.clone());
                Ok(object)
            }
            Err(ContentError::NotFound) => {
                entry.last_known = None;
                Err(ContentError::NotFound)
            }
            Err(_) if is_known => return,
            Err(error) => Err(error),
        };
        if entry.state.as_ref() == Some(&state) {
            return;
        }
        entry.state = Some(state);
        entry.revision += 1;
        for follower in &entry.followers {
            follower.notify_one();
        }
    }

    fn release(&self, name: &ContentName, wakes: Option<&Arc<Notify>>) {
        let mut entries = self.entries();
        let Some(entry) = entries.get_mut(name) else { return };
        entry.holders = entry.holders.saturating_sub(1);
        if let Some(wakes) = wakes
            && let Some(at) = entry.followers.iter().position(|each| Arc::ptr_eq(each, wakes))
        {
            entry.followers.swap_remove(at);
        }
        if entry.followers.is_empty()
            && let Some(task) = entry.task.take()
        {
            task.abort();
        }
        if entry.holders == 0 {
            entries.remove(name);
        }
        if entries.is_empty() {
            *entries = HashMap::new();
        }
    }
}

impl ContentEntry {
    /// Whether its state is current. The task of an immutable object ends, and one that panicked is
    /// to be started again.
    fn is_followed(&self) -> bool {
        let is_final = matches!(&self.state, Some(Ok(object)) if object.immutable);
        self.task.as_ref().is_some_and(|task| is_final || !task.is_finished())
    }

    fn followed(&self) -> Option<Arc<ContentObject>> {
        match &self.state {
            Some(Ok(object)) if self.is_followed() => Some(object.clone()),
            _ => None,
        }
    }
}

impl HeldContent {
    pub(crate) fn name(&self) -> &ContentName {
        &self.name
    }

    /// The state of an object that is followed, and its revision.
    pub(crate) fn state(&self) -> (u64, ObjectState) {
        let entries = self.store.entries();
        entries
            .get(&self.name)
            .map(|entry| (entry.revision, entry.state.clone()))
            .unwrap_or_default()
    }

    pub(crate) fn revision(&self) -> u64 {
        self.store.entries().get(&self.name).map(|entry| entry.revision).unwrap_or_default()
    }
}

impl Drop for HeldContent {
    fn drop(&mut self) {
        self.store.0.release(&self.name, self.wakes.as_ref());
    }
}

/// Reads an object; a 403 is retried for as long as it may be the authorizer's lag.
async fn read_through_lag(
    port: &dyn PodContents,
    name: &ContentName,
) -> Result<Arc<ContentObject>, ContentError> {
    let began = Instant::now();
    let mut pause = FIRST_FORBIDDEN_PAUSE;
    loop {
        match port.read(name).await {
            Err(ContentError::Forbidden(_)) if began.elapsed() < FORBIDDEN_LAG => {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST_FORBIDDEN_PAUSE);
            }
            result => return result.map(Arc::new),
        }
    }
}
