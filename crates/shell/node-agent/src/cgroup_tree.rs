//! The cgroups above pods: `kubepods` and its QoS classes, with limits and weights from their pods.
//!
//! Rule: set at the start and whenever the set of admitted pods changes. A failure is reported and
//! retried, and no pod waits for it (a pod's own cgroup creates its parents). Success is reported
//! once as an event of the node, a failure before it at once and then every minute.
//!
//! upstream: pkg/kubelet/cm/node_container_manager_linux.go, qos_container_manager_linux.go

use crate::back_off::ExponentialBackOff;
use crate::pods::PodContext;
use container_setup::cgroups;
use pod_lifecycle::EventType;
use pod_model::pod::QosClass;
use ports::pod_host::{CgroupLimits, HostError};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tracing::{error, info};

const FIRST_RETRY: Duration = Duration::from_secs(1);
const LONGEST_RETRY: Duration = Duration::from_secs(60);
/// Changes that come together are applied together.
const DEBOUNCE: Duration = Duration::from_millis(200);

/// Reasons of the node's events.
pub(crate) const ENFORCED: &str = "NodeAllocatableEnforced";
pub(crate) const NOT_ENFORCED: &str = "FailedNodeAllocatableEnforcement";

/// Runs for ever.
pub(crate) async fn reconcile(context: Arc<PodContext>) {
    if !context.settings.cgroups.per_qos {
        info!("Pods have no cgroups of their own (cgroupsPerQOS is false)");
        return;
    }
    let mut changes = context.admissions.changes();
    let mut back_off = ExponentialBackOff::new(FIRST_RETRY, LONGEST_RETRY);
    let mut enforcement = Enforcement::default();
    loop {
        changes.borrow_and_update();
        match apply(&context).await {
            Ok(()) => {
                back_off.reset();
                enforcement.succeeded(&context);
                if changes.changed().await.is_err() {
                    return;
                }
                tokio::time::sleep(DEBOUNCE).await;
            }
            Err(error) => {
                error!(err = %error, "Cannot set the cgroups above pods; trying again");
                enforcement.failed(&context, &error);
                tokio::time::sleep(back_off.pause()).await;
            }
        }
    }
}

async fn apply(context: &PodContext) -> Result<(), HostError> {
    let settings = &context.settings.cgroups;
    let pods = context.admissions.admitted();
    let limits = cgroups::class_limits(pods.iter().map(|pod| &**pod), &context.settings.setup);
    let all = CgroupLimits {
        unified: limits.guaranteed.unified.clone(),
        ..settings.enforced.clone().unwrap_or_else(|| limits.guaranteed.clone())
    };
    let host = &context.ports.cgroups;
    host.apply(&cgroups::all_pods(&settings.root), &all).await?;
    for (class, limits) in
        [(QosClass::Burstable, &limits.burstable), (QosClass::BestEffort, &limits.best_effort)]
    {
        host.apply(&cgroups::of_class(&settings.root, &class), limits).await?;
    }
    Ok(())
}

/// What was reported about the limits at `kubepods`.
#[derive(Debug, Default)]
struct Enforcement {
    is_done: bool,
    failure_reported_at: Option<Instant>,
}

impl Enforcement {
    fn succeeded(&mut self, context: &PodContext) {
        if !std::mem::replace(&mut self.is_done, true) {
            let message = "Updated Node Allocatable limit across pods";
            let now = context.clock.now();
            context.status_store.emit_node_event(EventType::Normal, ENFORCED, message, now);
        }
    }

    fn failed(&mut self, context: &PodContext, error: &HostError) {
        let is_recently_reported =
            self.failure_reported_at.is_some_and(|at| at.elapsed() < LONGEST_RETRY);
        if self.is_done || is_recently_reported {
            return;
        }
        self.failure_reported_at = Some(Instant::now());
        // In the format in which Go prints a list of names.
        let name = cgroups::all_pods(&context.settings.cgroups.root);
        let name: Vec<String> = name.iter().map(|word| format!("{word:?}")).collect();
        let name = name.join(" ");
        let message = format!("Failed to update Node Allocatable Limits [{name}]: {error}");
        let now = context.clock.now();
        context.status_store.emit_node_event(EventType::Warning, NOT_ENFORCED, &message, now);
    }
}
