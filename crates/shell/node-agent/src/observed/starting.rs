//! Who starts something in a pod has the pod looked at when that is over.
//!
//! Rule: until then the runtime's word that it has started is no reason for a look of its own. In a
//! burst of new pods those would be every second look.

use super::{Observed, Shared};
use std::collections::hash_map::Entry;
use std::sync::{Arc, PoisonError};

/// Somebody starts something in this pod for as long as this is held.
pub(crate) struct Starting {
    shared: Arc<Shared>,
    uid: String,
}

impl Observed {
    /// Whoever holds this asks for a look afterwards.
    pub(crate) fn starting(&self, uid: &str) -> Starting {
        let shared = self.shared.clone();
        let mut starting = shared.starting.lock().unwrap_or_else(PoisonError::into_inner);
        *starting.entry(uid.to_owned()).or_default() += 1;
        drop(starting);
        Starting { shared, uid: uid.to_owned() }
    }
}

impl Shared {
    pub(super) fn is_starting(&self, uid: &str) -> bool {
        self.starting.lock().unwrap_or_else(PoisonError::into_inner).contains_key(uid)
    }
}

impl Drop for Starting {
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
