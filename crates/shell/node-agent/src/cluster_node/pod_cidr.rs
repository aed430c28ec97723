//! Passes the node's pod CIDRs from the cluster on to the runtime.
//!
//! Rule: whenever the CIDRs change or the runtime comes back, retried until the runtime accepts
//! them.

use super::ClusterNode;
use crate::back_off::ExponentialBackOff;
use crate::runtime_watch::RuntimeView;
use std::sync::Arc;
use std::time::Duration;
use tracing::{info, warn};

const FIRST_RETRY: Duration = Duration::from_secs(1);
const LONGEST_RETRY: Duration = Duration::from_secs(60);

/// Runs for ever.
pub(super) async fn sync_pod_cidr(node: Arc<ClusterNode>) {
    let mut node_object = node.node_object.subscribe();
    let (mut view, _) = node.facts.changes();
    let mut passed = String::new();
    let mut was_answering = false;
    let mut back_off = ExponentialBackOff::new(FIRST_RETRY, LONGEST_RETRY);
    loop {
        let range = node_object
            .borrow_and_update()
            .as_ref()
            .map(|node_object| node_object.spec.pod_cidrs.join(","))
            .unwrap_or_default();
        let is_answering = matches!(*view.borrow_and_update(), RuntimeView::Responding { .. });
        if is_answering && !was_answering {
            // A restarted runtime has forgotten them.
            passed.clear();
        }
        was_answering = is_answering;
        let is_wanted = is_answering && !range.is_empty() && range != passed;
        if is_wanted {
            match node.ports.runtime.set_pod_cidr(&range).await {
                Ok(()) => {
                    info!(range, "Updated Pod CIDR");
                    passed.clone_from(&range);
                    back_off.reset();
                }
                Err(error) => warn!(err = %error, range, "Error updating pod CIDR"),
            }
        }
        let tries_again = is_wanted && range != passed;
        tokio::select! {
            changed = node_object.changed() => if changed.is_err() { return },
            changed = view.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(back_off.pause()), if tries_again => {}
        }
    }
}
