//! Which events are sent, which become a higher count of one that was sent, and which are dropped.
//!
//! Rule: as upstream's recorder. Ten events within ten minutes that differ only in their message
//! become one that is counted; the same event again is counted; an object's source may send 25 and
//! then one in five minutes. What is remembered is bounded: the oldest entries are forgotten first.
//!
//! upstream: client-go tools/record/events_cache.go

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

use ports::ApiTime;
use ports::cluster_api::{ClusterEvent, ClusterEventType, StoredEvent};

const MAX_ENTRIES: usize = 4096;
const SIMILAR_EVENTS: usize = 10;
const SIMILAR_FOR: i64 = 600 * 1_000_000_000;
const BURST: i64 = 25;
const REFILL: i64 = 300 * 1_000_000_000;

/// What to do with an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Correlated {
    /// Rate limited: its source reported too many events about its object.
    Dropped,
    Create {
        key: CorrelationKey,
        event: ClusterEvent,
    },
    Repeat {
        key: CorrelationKey,
        event: ClusterEvent,
        stored: StoredEvent,
        count: u32,
    },
}

/// Events with the same key are one event that is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CorrelationKey(u64);

#[derive(Debug, Default)]
pub struct EventCorrelator {
    similar: Bounded<SimilarEvents>,
    sent: Bounded<SentEvent>,
    sources: Bounded<EventTokenBucket>,
}

#[derive(Debug, Default)]
struct SimilarEvents {
    messages: BTreeSet<u64>,
    last: Option<ApiTime>,
}

#[derive(Debug)]
struct SentEvent {
    stored: StoredEvent,
    count: u32,
}

/// A token bucket; `spent` is what is missing in it, in nanoseconds of refilling.
#[derive(Debug)]
struct EventTokenBucket {
    spent: i64,
    at: ApiTime,
}

impl EventCorrelator {
    pub fn correlate(&mut self, event: ClusterEvent, now: ApiTime) -> Correlated {
        let source = key_of(&event, KeyPart::Source);
        if !self.sources.entry(source, || EventTokenBucket { spent: 0, at: now }).take(now) {
            return Correlated::Dropped;
        }
        let similar_key = key_of(&event, KeyPart::Reason);
        let similar = self.similar.entry(similar_key, SimilarEvents::default);
        let (key, event) = if similar.is_one_of_many(&event.message, now) {
            let message = format!("(combined from similar events): {}", event.message);
            (similar_key, ClusterEvent { message, at: now, ..event })
        } else {
            (key_of(&event, KeyPart::Whole), event)
        };
        match self.sent.get_mut(key) {
            Some(sent) => {
                let count = sent.count.saturating_add(1);
                Correlated::Repeat { key, event, stored: sent.stored.clone(), count }
            }
            None => Correlated::Create { key, event },
        }
    }

    /// The server has it, with this count by now.
    pub fn stored(&mut self, key: CorrelationKey, stored: StoredEvent, count: u32) {
        let sent = self.sent.entry(key, || SentEvent { stored: stored.clone(), count });
        *sent = SentEvent { stored, count };
    }

    /// The server no longer has it: the next one of its key is created anew.
    pub fn expired(&mut self, key: CorrelationKey) {
        self.sent.remove(key);
    }
}

impl SimilarEvents {
    fn is_one_of_many(&mut self, message: &str, now: ApiTime) -> bool {
        let is_old = |last: ApiTime| now.nanos().saturating_sub(last.nanos()) > SIMILAR_FOR;
        if self.last.is_none_or(is_old) {
            self.messages.clear();
        }
        self.last = Some(now);
        let mut hasher = DefaultHasher::new();
        message.hash(&mut hasher);
        self.messages.insert(hasher.finish());
        if self.messages.len() < SIMILAR_EVENTS {
            return false;
        }
        self.messages.pop_first();
        true
    }
}

impl EventTokenBucket {
    fn take(&mut self, now: ApiTime) -> bool {
        let passed = now.nanos().saturating_sub(self.at.nanos()).max(0);
        self.at = now;
        self.spent = self.spent.saturating_sub(passed).max(0);
        let is_allowed = self.spent <= (BURST - 1) * REFILL;
        if is_allowed {
            self.spent += REFILL;
        }
        is_allowed
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum KeyPart {
    Source,
    Reason,
    Whole,
}

fn key_of(event: &ClusterEvent, part: KeyPart) -> CorrelationKey {
    let about = &event.about;
    let mut hasher = DefaultHasher::new();
    (&event.component, &event.host, event.kind == ClusterEventType::Warning).hash(&mut hasher);
    (&about.kind, &about.namespace, &about.name, &about.uid, &about.api_version).hash(&mut hasher);
    if part >= KeyPart::Reason {
        event.reason.hash(&mut hasher);
    }
    if part == KeyPart::Whole {
        (&event.message, &about.field_path).hash(&mut hasher);
    }
    CorrelationKey(hasher.finish())
}

/// At most [`MAX_ENTRIES`], of which the first to come is the first to go.
#[derive(Debug)]
struct Bounded<T> {
    entries: BTreeMap<CorrelationKey, T>,
    order: VecDeque<CorrelationKey>,
}

impl<T> Default for Bounded<T> {
    fn default() -> Self {
        Self { entries: BTreeMap::new(), order: VecDeque::new() }
    }
}

impl<T> Bounded<T> {
    fn entry(&mut self, key: CorrelationKey, make: impl FnOnce() -> T) -> &mut T {
        if !self.entries.contains_key(&key) {
            self.order.push_back(key);
            if self.order.len() > MAX_ENTRIES
                && let Some(oldest) = self.order.pop_front()
            {
                self.entries.remove(&oldest);
            }
        }
        self.entries.entry(key).or_insert_with(make)
    }

    fn get_mut(&mut self, key: CorrelationKey) -> Option<&mut T> {
        self.entries.get_mut(&key)
    }

    fn remove(&mut self, key: CorrelationKey) {
        if self.entries.remove(&key).is_some() {
            self.order.retain(|known| *known != key);
        }
    }
}

#[cfg(test)]
mod tests;
