//! Whether the runtime's pods can be listed, and since when not.
//!
//! Rule: with an event stream a listing is rare, so it is not the age of the last one that counts but
//! for how long one has been due: since it began, or since the event stream was lost. Any listing that
//! succeeds ends that.
//!
//! upstream: pkg/kubelet/pleg/generic.go (Healthy), which lists every second

use super::{ObservedPods, ObservedPodsInner};
use node_status::runtime_errors::RelistHealth;
use std::sync::{MutexGuard, PoisonError};
use tokio::time::Instant;
use tracing::{error, info};

impl ObservedPods {
    pub(crate) fn relist_health(&self) -> RelistHealth {
        if self.shared.inventory.borrow().is_none() {
            return RelistHealth::NeverListed;
        }
        let since = *self.shared.unlisted_since();
        RelistHealth::LastSeen(since.map(|since| since.elapsed()).unwrap_or_default())
    }
}

impl ObservedPodsInner {
    fn unlisted_since(&self) -> MutexGuard<'_, Option<Instant>> {
        self.unlisted_since.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn mark_listing_due(&self) {
        self.unlisted_since().get_or_insert_with(Instant::now);
    }

    pub(super) fn mark_stream_lost(&self, why: String) {
        self.mark_listing_due();
        self.list_error.send_replace(Some(why));
        // The next regular check may be a minute away.
        self.is_back.notify_one();
    }

    /// Returns whether the runtime could not be listed before.
    pub(super) fn mark_listed(&self) -> bool {
        *self.unlisted_since() = None;
        let was = self.list_error.send_replace(None);
        if was.is_some() {
            info!("The container runtime can be listed again");
            self.is_back.notify_one();
        }
        was.is_some()
    }

    pub(super) fn mark_unlistable(&self, why: &str, began: Instant) {
        self.unlisted_since().get_or_insert(began);
        let changed = self.list_error.send_if_modified(|known| {
            let changed = known.as_deref() != Some(why);
            *known = Some(why.to_owned());
            changed
        });
        if changed {
            error!(err = why, "Cannot list the container runtime's pods; trying again");
        }
    }
}
