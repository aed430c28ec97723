//! Keeps the mirror pods of static pods in the API server.
//!
//! Rule: `pod_desired::mirror_steps` decides; a step that failed is tried again with growing delays
//! and delays no other pod. Nothing is created before the Node is registered: mirrors belong to it.

use super::{ApiPodStore, REQUEST_TIMEOUT};
use crate::back_off::ExponentialBackOff;
use crate::sources::WantedPods;
use crate::status_store::StatusStore;
use node_status::NodeObject;
use pod_desired::{MirrorStep, StaticPodSet, mirror_body, mirror_steps};
use pod_model::pod::Pod;
use ports::cluster_api::{Deletion, ObjectPath};
use ports::{ClusterApi, ClusterApiError};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{info, warn};

const FIRST_RETRY: Duration = Duration::from_millis(500);
const LONGEST_RETRY: Duration = Duration::from_secs(60);
/// How long the feed may take to show what was written.
const FEED_DELAY: Duration = Duration::from_secs(5);

pub(crate) struct MirrorInputs {
    pub(super) api: Arc<dyn ClusterApi>,
    pub(super) node_name: String,
    pub(super) node_object: watch::Receiver<Option<Arc<NodeObject>>>,
    pub(super) store: ApiPodStore,
    pub(super) wanted: watch::Receiver<WantedPods>,
    pub(super) status_store: StatusStore,
}

struct StepRetry {
    back_off: ExponentialBackOff,
    /// No step for this name before that.
    not_before: Instant,
    /// The versions of static pod and mirror that were acted on: others are acted on at once.
    acted_on: MirrorStep,
}

/// Runs for ever.
pub(super) async fn keep_mirrors(mut inputs: MirrorInputs) {
    let mut api_pods = inputs.store.subscribe();
    let mut retries: BTreeMap<(String, String), StepRetry> = BTreeMap::new();
    loop {
        let node_uid =
            inputs.node_object.borrow_and_update().as_ref().map(|node| node.metadata.uid.clone());
        let known = api_pods.borrow_and_update().clone();
        let wanted = inputs.wanted.borrow_and_update().clone();
        let seen = inputs.status_store.version();
        let static_pods = static_pods(&inputs.status_store, &wanted);
        let steps = match &node_uid {
            Some(_) => mirror_steps(&static_pods, &known),
            None => Vec::new(),
        };
        retries.retain(|name, _| steps.iter().any(|step| key(step) == *name));
        let mut next = None;
        for step in steps {
            let delayed = retries
                .get(&key(&step))
                .filter(|retry| retry.acted_on == step && retry.not_before > Instant::now());
            if let Some(retry) = delayed {
                next = Some(next.map_or(retry.not_before, |at: Instant| at.min(retry.not_before)));
                continue;
            }
            let result = perform(&inputs, &step, node_uid.as_deref().unwrap_or_default()).await;
            let retry = retries.entry(key(&step)).or_insert_with(|| StepRetry {
                back_off: ExponentialBackOff::new(FIRST_RETRY, LONGEST_RETRY),
                not_before: Instant::now(),
                acted_on: step.clone(),
            });
            let pause = match result {
                Ok(()) => FEED_DELAY,
                Err(error) => {
                    let (namespace, name) = step.object();
                    warn!(pod = name, namespace, err = %error, "Failed to write a mirror pod");
                    retry.back_off.pause()
                }
            };
            retry.not_before = Instant::now() + pause;
            retry.acted_on = step;
            next = Some(next.map_or(retry.not_before, |at: Instant| at.min(retry.not_before)));
        }
        tokio::select! {
            Ok(()) = inputs.node_object.changed() => {}
            Ok(()) = inputs.wanted.changed() => {}
            Ok(()) = api_pods.changed() => {}
            // Only what has just ended matters, and only where something still ended.
            _ = inputs.status_store.changed(seen), if !static_pods.ending.is_empty() => {}
            () = tokio::time::sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {}
        }
    }
}

/// Those that are desired, and those that are still here and are not.
fn static_pods(status_store: &StatusStore, wanted: &WantedPods) -> StaticPodSet {
    let desired: Vec<Arc<Pod>> = wanted.pods.iter().map(|each| each.pod.clone()).collect();
    let is_desired =
        |pod: &Arc<Pod>| desired.iter().any(|each| each.metadata.uid == pod.metadata.uid);
    let mut ending = status_store.static_pods();
    ending.retain(|pod| !is_desired(pod));
    StaticPodSet { desired, ending, is_complete: wanted.is_complete }
}

fn key(step: &MirrorStep) -> (String, String) {
    let (namespace, name) = step.object();
    (namespace.to_owned(), name.to_owned())
}

async fn perform(
    inputs: &MirrorInputs,
    step: &MirrorStep,
    node_uid: &str,
) -> Result<(), ClusterApiError> {
    let (namespace, name) = step.object();
    let path = ObjectPath::pod(namespace, name);
    let call = async {
        match step {
            MirrorStep::Create(pod) => {
                info!(pod = name, namespace, "Creating a mirror pod for static pod");
                let body = mirror_body(pod, &inputs.node_name, node_uid).to_string();
                match inputs.api.create(&path, body.into_bytes()).await {
                    Ok(_) | Err(ClusterApiError::AlreadyExists { .. }) => {
                        crate::crash_points::reached("mirror-created");
                        Ok(())
                    }
                    Err(error) => Err(error),
                }
            }
            MirrorStep::Delete(mirror) => {
                info!(pod = name, namespace, pod_uid = %mirror.uid, "Deleting a mirror pod");
                let deletion = Deletion {
                    uid: Some(mirror.uid.to_string()),
                    resource_version: None,
                    grace_seconds: Some(0),
                };
                match inputs.api.delete(&path, deletion).await {
                    Ok(()) | Err(ClusterApiError::NotFound { .. }) => Ok(()),
                    Err(error) => Err(error),
                }
            }
        }
    };
    tokio::time::timeout(REQUEST_TIMEOUT, call).await.unwrap_or_else(|_| {
        let (request, cause) = ("mirror pod".to_owned(), "no answer in time".to_owned());
        Err(ClusterApiError::NoResponse { request, cause })
    })
}
