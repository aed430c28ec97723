//! A bounded cache of review results.
//!
//! Rule: a result older than its time to live is not returned; when the cache is full, the oldest
//! is dropped. Only a digest of the key is kept, since keys hold tokens.

use std::collections::BTreeMap;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hash};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// More than the callers that ever scrape metrics.
const MAX_ENTRIES: usize = 1024;

/// 128 bits under two keys that are random for each process.
type Digest = (u64, u64);

#[derive(Debug)]
pub(crate) struct TtlCache<A> {
    keys: (RandomState, RandomState),
    entries: Mutex<BTreeMap<Digest, (Instant, A)>>,
}

impl<A: Clone> TtlCache<A> {
    pub(crate) fn new() -> Self {
        Self { keys: (RandomState::new(), RandomState::new()), entries: Mutex::default() }
    }

    fn digest(&self, key: &impl Hash) -> Digest {
        (self.keys.0.hash_one(key), self.keys.1.hash_one(key))
    }

    pub(crate) fn get(&self, key: &impl Hash) -> Option<A> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let (until, answer) = entries.get(&self.digest(key))?;
        (Instant::now() < *until).then(|| answer.clone())
    }

    pub(crate) fn put(&self, key: &impl Hash, answer: A, ttl: Duration) {
        if ttl.is_zero() {
            return;
        }
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if entries.len() >= MAX_ENTRIES {
            let now = Instant::now();
            entries.retain(|_, (until, _)| now < *until);
        }
        if entries.len() >= MAX_ENTRIES
            && let Some(oldest) =
                entries.iter().min_by_key(|(_, (until, _))| *until).map(|(digest, _)| *digest)
        {
            entries.remove(&oldest);
        }
        entries.insert(self.digest(key), (Instant::now() + ttl, answer));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn cache_entries_expire_and_their_number_is_bounded() {
        let entries = TtlCache::new();
        entries.put(&"a", 1, Duration::from_secs(10));
        entries.put(&"never", 1, Duration::ZERO);
        assert_eq!(
            (entries.get(&"a"), entries.get(&"b"), entries.get(&"never")),
            (Some(1), None, None)
        );
        tokio::time::advance(Duration::from_secs(10)).await;
        assert_eq!(entries.get(&"a"), None);
        for number in 0..3 * MAX_ENTRIES {
            entries.put(&number, 2, Duration::from_secs(60));
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        assert_eq!(entries.entries.lock().expect("lock").len(), MAX_ENTRIES);
        assert_eq!((entries.get(&0), entries.get(&(3 * MAX_ENTRIES - 1))), (None, Some(2)));
    }
}
