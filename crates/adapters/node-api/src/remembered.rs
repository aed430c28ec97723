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
const MOST: usize = 1024;

/// 128 bits under two keys that are random for each process.
type Digest = (u64, u64);

#[derive(Debug)]
pub(crate) struct Remembered<A> {
    keys: (RandomState, RandomState),
    known: Mutex<BTreeMap<Digest, (Instant, A)>>,
}

impl<A: Clone> Remembered<A> {
    pub(crate) fn new() -> Self {
        Self { keys: (RandomState::new(), RandomState::new()), known: Mutex::default() }
    }

    fn digest(&self, question: &impl Hash) -> Digest {
        (self.keys.0.hash_one(question), self.keys.1.hash_one(question))
    }

    pub(crate) fn get(&self, question: &impl Hash) -> Option<A> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let (until, answer) = known.get(&self.digest(question))?;
        (Instant::now() < *until).then(|| answer.clone())
    }

    pub(crate) fn put(&self, question: &impl Hash, answer: A, lasts: Duration) {
        if lasts.is_zero() {
            return;
        }
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST {
            let now = Instant::now();
            known.retain(|_, (until, _)| now < *until);
        }
        if known.len() >= MOST
            && let Some(oldest) =
                known.iter().min_by_key(|(_, (until, _))| *until).map(|(digest, _)| *digest)
        {
            known.remove(&oldest);
        }
        known.insert(self.digest(question), (Instant::now() + lasts, answer));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn answers_end_and_their_number_is_bounded() {
        let known = Remembered::new();
        known.put(&"a", 1, Duration::from_secs(10));
        known.put(&"never", 1, Duration::ZERO);
        assert_eq!((known.get(&"a"), known.get(&"b"), known.get(&"never")), (Some(1), None, None));
        tokio::time::advance(Duration::from_secs(10)).await;
        assert_eq!(known.get(&"a"), None);
        for number in 0..3 * MOST {
            known.put(&number, 2, Duration::from_secs(60));
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        assert_eq!(known.known.lock().expect("lock").len(), MOST);
        assert_eq!((known.get(&0), known.get(&(3 * MOST - 1))), (None, Some(2)));
    }
}
