//! Marks a pod in which a container is being started; a relist follows when that is over.
//!
//! Rule: until then the runtime's started event causes no relist of its own. In a burst of new pods
//! those would be half of all relists.

use super::{ObservedPods, ObservedPodsInner};
use std::collections::hash_map::Entry;
use std::sync::{Arc, PoisonError};

/// A container of this pod is being started for as long as this is held.
pub(crate) struct StartGuard {
    shared: Arc<ObservedPodsInner>,
    uid: String,
}

impl ObservedPods {
    /// The holder must request a relist afterwards.
    pub(crate) fn starting(&self, uid: &str) -> StartGuard {
        let shared = self.shared.clone();
        let mut starting = shared.starting.lock().unwrap_or_else(PoisonError::into_inner);
        *starting.entry(uid.to_owned()).or_default() += 1;
        drop(starting);
        StartGuard { shared, uid: uid.to_owned() }
    }
}

impl ObservedPodsInner {
    pub(super) fn is_starting(&self, uid: &str) -> bool {
        self.starting.lock().unwrap_or_else(PoisonError::into_inner).contains_key(uid)
    }
}

impl Drop for StartGuard {
    fn drop(&mut self) {
        let mut starting = self.shared.starting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Entry::Occupied(mut held) = starting.entry(std::mem::take(&mut self.uid)) {
            *held.get_mut() -= 1;
            if *held.get() == 0 {
                held.remove();
            }
        }
    }
}
