//! Stopping a container: its preStop hook within the grace, then the runtime with what is left.
//!
//! upstream: pkg/kubelet/kuberuntime/kuberuntime_container.go

use super::ActionWorld;
use super::sandbox::gone_is_fine;
use crate::hooks::{self, HookPlace};
use crate::metrics::names;
use crate::reach::pod_ip;
use pod_lifecycle::Outcome;
use std::time::Duration;
use tokio::time::Instant;
use tracing::warn;

/// Every container gets at least this long to exit by itself.
const SHORTEST_GRACE: Duration = Duration::from_secs(2);

pub(super) struct Stop<'a> {
    pub(super) id: &'a str,
    pub(super) name: &'a str,
    pub(super) grace: Duration,
    pub(super) pre_stop: bool,
}

pub(super) async fn stop(world: &ActionWorld, stop: &Stop<'_>) -> Outcome {
    let began = Instant::now();
    let hook_failed = stop.pre_stop
        && !stop.grace.is_zero()
        && !run_hook(world, stop.id, stop.name, stop.grace).await;
    let left = stop.grace.saturating_sub(began.elapsed());
    // CRI counts whole seconds; round up.
    let left = Duration::from_secs(left.as_secs() + u64::from(left.subsec_nanos() > 0));
    let grace = left.max(SHORTEST_GRACE);
    let stopped = world.context.ports.runtime.stop_container(stop.id, grace).await;
    Outcome::ContainerStopped { hook_failed, result: gone_is_fine(stopped) }
}

pub(super) async fn pre_stop_only(
    world: &ActionWorld,
    id: &str,
    name: &str,
    limit: Duration,
) -> Outcome {
    let hook_failed = !run_hook(world, id, name, limit).await;
    Outcome::ContainerStopped { hook_failed, result: Ok(()) }
}

/// Whether the hook succeeded. A hook that is still running when the grace period is over is left
/// running, which is no error.
async fn run_hook(world: &ActionWorld, id: &str, name: &str, limit: Duration) -> bool {
    let mut all = world.pod.spec.all_containers().map(|(_, _, each)| each);
    let Some(spec) = all.find(|each| *each.name == *name) else { return true };
    let hook = spec.lifecycle.as_ref().and_then(|lifecycle| lifecycle.pre_stop.as_deref());
    let Some(hook) = hook else { return true };
    let ports = &world.context.ports;
    let ip = pod_ip(&world.observed, &world.context.host_ips(), &world.pod);
    let place = HookPlace {
        runtime: &*ports.runtime,
        prober: &*ports.prober,
        container: spec,
        container_id: id,
        pod_ip: ip.as_deref(),
    };
    let uid = world.uid();
    let Ok(end) = tokio::time::timeout(limit, hooks::run(hook, &place)).await else {
        warn!(pod_uid = uid, container = name, "PreStop hook not completed in grace period");
        return true;
    };
    if let Some(event) = end.event {
        world.context.board.metrics().count(&names::HTTP_FALLBACKS, &[]);
        world.tell(event).await;
    }
    match end.result {
        Ok(()) => true,
        Err(why) => {
            warn!(pod_uid = uid, container = name, err = why, "PreStop hook failed");
            false
        }
    }
}
