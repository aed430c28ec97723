//! Renews the node's Lease.
//!
//! Rule: runs in its own task with its own requests, so that neither a hanging status update nor a
//! hanging disk delays a renewal. A conflict is resolved by a fresh read.
//!
//! upstream: component-helpers/apimachinery/lease/controller.go

use super::{ClusterNode, HEARTBEAT_TIMEOUT, with_timeout};
use node_status::lease::{LeaseSettings, NAMESPACE, created, renew_interval, renewed, retry_wait};
use ports::ClusterApiError;
use ports::cluster_objects::Lease;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tracing::{error, info};

/// Attempts at one renewal before the Lease is read again.
const ATTEMPTS: u32 = 5;

/// Renews for ever.
pub(super) async fn renew(node: Arc<ClusterNode>) {
    let duration = node.dependencies.settings.lease_duration;
    let seconds = i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
    // While this node is not registered, a Lease of that name may be another machine's.
    node.wait_until_known().await;
    let mut latest: Option<Lease> = None;
    let mut failed = 0;
    loop {
        let started = Instant::now();
        match renew_once(&node, latest.take(), seconds).await {
            Ok(lease) => {
                if failed > 0 {
                    info!(node = node.name(), "The node's Lease is renewed again");
                }
                failed = 0;
                latest = Some(lease);
                sleep_until(started, renew_interval(seconds, node.random())).await;
            }
            Err(why) => {
                failed += 1;
                let wait = retry_wait(failed);
                error!(err = why, interval = wait, "Failed to ensure lease exists, will retry");
                // An attempt that timed out has already used up its time.
                sleep_until(started, wait).await;
            }
        }
    }
}

async fn sleep_until(started: Instant, milliseconds: i64) {
    let wait = Duration::from_millis(u64::try_from(milliseconds).unwrap_or(0));
    tokio::time::sleep_until(started + wait).await;
}

async fn renew_once(
    node: &ClusterNode,
    latest: Option<Lease>,
    duration_seconds: i64,
) -> Result<Lease, String> {
    let api = &node.dependencies.heartbeats;
    let uid =
        node.node_object.borrow().as_ref().map(|node_object| node_object.metadata.uid.clone());
    let settings =
        LeaseSettings { node_name: node.name(), node_uid: uid.as_deref(), duration_seconds };
    let mut lease = match latest {
        Some(lease) => lease,
        None => match with_timeout(HEARTBEAT_TIMEOUT, api.read_lease(NAMESPACE, node.name())).await
        {
            Ok(lease) => lease,
            Err(ClusterApiError::NotFound { .. }) => {
                let Some(lease) = created(settings, node.clock.now()) else {
                    return Err("the Node that would own the Lease is not known yet".to_owned());
                };
                let created = with_timeout(HEARTBEAT_TIMEOUT, api.create_lease(&lease)).await;
                return created.map_err(|error| error.to_string());
            }
            Err(error) => return Err(error.to_string()),
        },
    };
    for _ in 0..ATTEMPTS {
        let next = renewed(&lease, settings, node.clock.now());
        match with_timeout(HEARTBEAT_TIMEOUT, api.update_lease(&next)).await {
            Ok(lease) => return Ok(lease),
            Err(ClusterApiError::Conflict { .. }) => {
                let fresh = api.read_lease(NAMESPACE, node.name());
                let fresh = with_timeout(HEARTBEAT_TIMEOUT, fresh).await;
                lease = fresh.map_err(|error| error.to_string())?;
            }
            Err(error) => return Err(error.to_string()),
        }
    }
    Err("the Lease was changed by others at each attempt".to_owned())
}
