//! Creates, stops and removes a pod's sandbox.

use super::ActionWorld;
use crate::metrics::names;
use container_setup::sandbox;
use ports::container_runtime::ContainerRuntimeError;
use tokio::time::Instant;

pub(super) async fn run(world: &ActionWorld, attempt: u32) -> Result<String, String> {
    let metrics = world.context.board.metrics();
    let has_own_users = world.pod.spec.has_own_users();
    metrics.count(&names::STARTED_PODS, &[]);
    if has_own_users {
        metrics.count(&names::STARTED_PODS_WITH_USERS, &[]);
    }
    let ran = set_up_and_run(world, attempt).await;
    if ran.is_err() {
        metrics.count(&names::STARTED_POD_ERRORS, &[]);
    }
    if ran.is_err() && has_own_users {
        metrics.count(&names::STARTED_PODS_WITH_USERS_ERRORS, &[]);
    }
    ran
}

async fn set_up_and_run(world: &ActionWorld, attempt: u32) -> Result<String, String> {
    let (node, facts) = (world.node_facts().await?, world.pod_facts().await?);
    let made = sandbox::config(&world.pod, &node, &facts, attempt);
    let (config, warnings) = made.map_err(|error| error.to_string())?;
    world.warn(warnings).await;
    let metrics = world.context.board.metrics();
    let _starting = world.context.observed.starting(world.uid());
    let call = async {
        let began = Instant::now();
        let ran = world.context.ports.runtime.run_sandbox(&config).await;
        (ran, began.elapsed())
    };
    let (ran, took) = match world.pod.spec.host_network {
        true => world.context.turns.take(call).await,
        false => call.await,
    };
    let handler = facts.handler.name.as_str();
    metrics.took(&names::RUN_SANDBOX_DURATION, &[handler], took);
    if ran.is_err() {
        metrics.count(&names::RUN_SANDBOX_ERRORS, &[handler]);
    }
    ran.map_err(|error| error.to_string())
}

pub(super) async fn stop(world: &ActionWorld, id: &str) -> Result<(), String> {
    gone_is_fine(world.context.ports.runtime.stop_sandbox(id).await)
}

pub(super) async fn remove(world: &ActionWorld, id: &str) -> Result<(), String> {
    gone_is_fine(world.context.ports.runtime.remove_sandbox(id).await)
}

/// An object that does not exist need not be stopped or removed.
pub(super) fn gone_is_fine(result: Result<(), ContainerRuntimeError>) -> Result<(), String> {
    match result {
        Ok(()) | Err(ContainerRuntimeError::NotFound { .. }) => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}
