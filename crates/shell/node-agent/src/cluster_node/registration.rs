//! Registers the node, or adopts the existing Node object.
//!
//! Rule: retries until it succeeds, with delays that grow to seven seconds. A Node of that name
//! that belongs to another running machine is reported and left alone.
//!
//! upstream: pkg/kubelet/kubelet_node_status.go (registerWithAPIServer)

use super::{ClusterNode, REQUEST_TIMEOUT, with_timeout};
use crate::back_off::ExponentialBackOff;
use node_status::lease::NAMESPACE;
use node_status::registration::{
    ObservedLease, create_body, initial_node, name_conflict, reconciled,
};
use node_status::{NodeObject, status_patch};
use ports::ClusterApiError;
use ports::cluster_api::{ObjectPath, Patch, PatchKind, StoredObject};
use std::time::Duration;
use tracing::{error, info};

const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(7);

/// Returns the Node once it is registered.
pub(super) async fn register(node: &ClusterNode) -> NodeObject {
    let mut back_off = ExponentialBackOff::new(FIRST_PAUSE, LONGEST_PAUSE);
    let mut is_first = true;
    loop {
        let settings = &node.dependencies.settings;
        let facts = node.facts.read(settings).await;
        let now = node.clock.now();
        let (initial, events, errors) = initial_node(&settings.node, &facts, now);
        for why in errors {
            error!(err = why, "A part of the node's status cannot be filled in");
        }
        if is_first {
            node.record(&events);
            is_first = false;
        }
        info!(node = node.name(), "Attempting to register node");
        match attempt(node, &initial).await {
            Ok(registered) => {
                info!(node = node.name(), "Successfully registered node");
                return registered;
            }
            Err(why) => {
                error!(err = why, node = node.name(), "Unable to register node with API server");
            }
        }
        tokio::time::sleep(back_off.pause()).await;
    }
}

async fn attempt(node: &ClusterNode, initial: &NodeObject) -> Result<NodeObject, String> {
    let path = ObjectPath::node(node.name());
    let body = create_body(initial).to_string().into_bytes();
    match with_timeout(REQUEST_TIMEOUT, node.dependencies.api.create(&path, body)).await {
        Ok(stored) => return decode(&stored),
        // Creating may be forbidden although the Node exists.
        Err(
            ClusterApiError::AlreadyExists { .. } | ClusterApiError::Refused { status: 403, .. },
        ) => {}
        Err(error) => return Err(error.to_string()),
    }
    let stored = with_timeout(REQUEST_TIMEOUT, node.dependencies.api.read(&path)).await;
    let stored = stored.map_err(|error| error.to_string())?;
    let existing = decode(&stored)?;
    info!(node = node.name(), "Node was previously registered");
    check_name_conflict(node, &existing).await?;
    let Some(wanted) = reconciled(initial, &existing, node.dependencies.settings.resets_devices)
    else {
        return Ok(existing);
    };
    let Some(patch) = status_patch(&existing, &wanted) else { return Ok(existing) };
    let patch = Patch {
        kind: PatchKind::StrategicMerge,
        subresource: Some("status".into()),
        body: patch.to_string().into_bytes(),
    };
    let stored = with_timeout(REQUEST_TIMEOUT, node.dependencies.api.patch(&path, patch)).await;
    decode(&stored.map_err(|error| error.to_string())?)
}

async fn check_name_conflict(node: &ClusterNode, existing: &NodeObject) -> Result<(), String> {
    let facts = node.facts.read(&node.dependencies.settings).await;
    let Some(machine) = &facts.machine else { return Ok(()) };
    let info = &existing.status.node_info;
    if info.machine_id == machine.machine_id || info.system_uuid == machine.system_uuid {
        return Ok(());
    }
    let lease = node.dependencies.api.read_lease(NAMESPACE, node.name());
    let lease = match with_timeout(REQUEST_TIMEOUT, lease).await {
        Ok(lease) => lease.spec.renew_time.map(|renewed| ObservedLease {
            renewed,
            duration_seconds: lease.spec.lease_duration_seconds.unwrap_or(0).into(),
        }),
        Err(ClusterApiError::NotFound { .. }) => None,
        Err(error) => return Err(error.to_string()),
    };
    match name_conflict(existing, machine, lease, node.clock.now()) {
        Some(why) => Err(why),
        None => Ok(()),
    }
}

pub(super) fn decode(stored: &StoredObject) -> Result<NodeObject, String> {
    serde_json::from_slice(&stored.json)
        .map_err(|error| format!("cannot read the Node that the API server sent: {error}"))
}
