//! Tasks that come and go below a task of the tree: pod workers, actions, calls in flight.
//!
//! Rule: each has a key, at most one per key; all of them end when the set is dropped. The owner of
//! the set gets how each one ended: with a value, by a panic, or aborted. Nothing is restarted
//! here.

use crate::task_tree::named;
use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::sync::Arc;
use tokio::task::{AbortHandle, Id, JoinError, JoinSet};

/// How a task ended without a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Panicked(pub(crate) String);

#[derive(Debug)]
pub(crate) struct KeyedTasks<Key, Value> {
    tasks: JoinSet<Value>,
    keys: HashMap<Id, Key>,
    handles: BTreeMap<Key, AbortHandle>,
}

impl<Key, Value> Default for KeyedTasks<Key, Value> {
    fn default() -> Self {
        Self { tasks: JoinSet::new(), keys: HashMap::new(), handles: BTreeMap::new() }
    }
}

impl<Key: Clone + Ord, Value: Send + 'static> KeyedTasks<Key, Value> {
    /// Starts a task; a task with the same key is aborted first.
    pub(crate) fn start<Task>(&mut self, key: Key, name: impl Into<Arc<str>>, task: Task)
    where
        Task: Future<Output = Value> + Send + 'static,
    {
        self.abort(&key);
        let handle = self.tasks.spawn(named(name.into(), task));
        self.keys.insert(handle.id(), key.clone());
        self.handles.insert(key, handle);
    }

    pub(crate) fn contains(&self, key: &Key) -> bool {
        self.handles.contains_key(key)
    }

    pub(crate) fn len(&self) -> usize {
        self.handles.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.handles.is_empty()
    }

    /// Aborts the task of this key at its next await, unless it is over. `next` will not return it.
    pub(crate) fn abort(&mut self, key: &Key) -> bool {
        let Some(handle) = self.handles.remove(key) else { return false };
        self.keys.remove(&handle.id());
        handle.abort();
        self.give_back_room();
        true
    }

    /// A pod has two of these, mostly empty: an empty map would keep its capacity.
    fn give_back_room(&mut self) {
        if self.handles.is_empty() {
            self.handles = BTreeMap::new();
            self.keys = HashMap::new();
        }
    }

    /// Waits for a task to end; never returns while there are none. Cancel-safe.
    pub(crate) async fn next(&mut self) -> (Key, Result<Value, Panicked>) {
        loop {
            let Some(joined) = self.tasks.join_next_with_id().await else {
                std::future::pending::<()>().await;
                continue;
            };
            let id = match &joined {
                Ok((id, _)) => *id,
                Err(error) => error.id(),
            };
            // A task without a key was aborted.
            let Some(key) = self.keys.remove(&id) else { continue };
            self.handles.remove(&key);
            self.give_back_room();
            return (key, joined.map(|(_, value)| value).map_err(panicked));
        }
    }
}

fn panicked(error: JoinError) -> Panicked {
    match error.try_into_panic() {
        Ok(payload) => Panicked(crate::task_tree::panic_message(&*payload)),
        Err(error) => Panicked(error.to_string()),
    }
}

#[cfg(test)]
mod tests;
