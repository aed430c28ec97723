//! Stopping a container: its preStop hook within the grace, then the runtime with what is left.
//!
//! upstream: pkg/kubelet/kuberuntime/kuberuntime_container.go

use super::ActionInputs;
use super::sandbox::ignore_not_found;
use crate::hooks::{self, HookTarget};
use crate::metrics::names;
use crate::resolve_handler::pod_ip;
use pod_lifecycle::ActionOutcome;
use std::time::Duration;
use tokio::time::Instant;
use tracing::{error, warn};

/// Every container gets at least this long to exit by itself.
const MIN_GRACE: Duration = Duration::from_secs(2);
/// How long a hook may go on after the grace period; by then its container has been killed.
const LEFT_RUNNING: Duration = Duration::from_secs(10);

pub(super) struct StopRequest<'a> {
    pub(super) id: &'a str,
    pub(super) name: &'a str,
    pub(super) grace: Duration,
    pub(super) pre_stop: bool,
}

pub(super) async fn stop(action_inputs: &ActionInputs, stop: &StopRequest<'_>) -> ActionOutcome {
    let began = Instant::now();
    let hook_failed = stop.pre_stop
        && !stop.grace.is_zero()
        && !run_hook(action_inputs, stop.id, stop.name, stop.grace).await;
    let left = stop.grace.saturating_sub(began.elapsed());
    // CRI counts whole seconds; round up.
    let left = Duration::from_secs(left.as_secs() + u64::from(left.subsec_nanos() > 0));
    let grace = left.max(MIN_GRACE);
    let stopped = action_inputs.context.ports.runtime.stop_container(stop.id, grace).await;
    ActionOutcome::ContainerStopped { hook_failed, result: ignore_not_found(stopped) }
}

pub(super) async fn pre_stop_only(
    action_inputs: &ActionInputs,
    id: &str,
    name: &str,
    limit: Duration,
) -> ActionOutcome {
    let hook_failed = !run_hook(action_inputs, id, name, limit).await;
    ActionOutcome::ContainerStopped { hook_failed, result: Ok(()) }
}

/// Whether the hook succeeded. A hook that is still running when the grace period is over is left
/// running, which is no error.
async fn run_hook(action_inputs: &ActionInputs, id: &str, name: &str, limit: Duration) -> bool {
    let mut all = action_inputs.pod.spec.all_containers().map(|(_, _, each)| each);
    let Some(spec) = all.find(|each| *each.name == *name) else { return true };
    let hook = spec.lifecycle.as_ref().and_then(|lifecycle| lifecycle.pre_stop.as_deref());
    let Some(hook) = hook.cloned() else { return true };
    let ip = pod_ip(&action_inputs.observed, &action_inputs.context.host_ips(), &action_inputs.pod);
    let (context, container, id) = (action_inputs.context.clone(), spec.clone(), id.to_owned());
    // Its own task: the end of the wait must not end the command in the container.
    let running = tokio::spawn(async move {
        let hook_target = HookTarget {
            runtime: &*context.ports.runtime,
            prober: &*context.ports.prober,
            container: &container,
            container_id: &id,
            pod_ip: ip.as_deref(),
        };
        tokio::time::timeout(limit + LEFT_RUNNING, hooks::run(&hook, &hook_target)).await
    });
    let uid = action_inputs.uid();
    let end = match tokio::time::timeout(limit, running).await {
        Ok(Ok(Ok(end))) => end,
        Ok(Err(panicked)) => {
            error!(pod_uid = uid, container = name, err = %panicked, "PreStop hook panicked");
            return false;
        }
        Ok(Ok(Err(_))) | Err(_) => {
            warn!(pod_uid = uid, container = name, "PreStop hook not completed in grace period");
            return true;
        }
    };
    if let Some(event) = end.event {
        action_inputs.context.status_store.metrics().count(&names::HTTP_FALLBACKS, &[]);
        action_inputs.send_event(event).await;
    }
    match end.result {
        Ok(()) => true,
        Err(why) => {
            warn!(pod_uid = uid, container = name, err = why, "PreStop hook failed");
            false
        }
    }
}
