//! Creates, stops and removes a pod's sandbox.

use super::ActionInputs;
use crate::metrics::names;
use container_setup::sandbox;
use ports::container_runtime::ContainerRuntimeError;
use tokio::time::Instant;

pub(super) async fn run(action_inputs: &ActionInputs, attempt: u32) -> Result<String, String> {
    let metrics = action_inputs.context.status_store.metrics();
    let has_user_namespace = action_inputs.pod.spec.has_user_namespace();
    metrics.count(&names::STARTED_PODS, &[]);
    if has_user_namespace {
        metrics.count(&names::STARTED_USER_NAMESPACED_PODS, &[]);
    }
    let result = set_up_and_run(action_inputs, attempt).await;
    if result.is_err() {
        metrics.count(&names::STARTED_POD_ERRORS, &[]);
    }
    if result.is_err() && has_user_namespace {
        metrics.count(&names::STARTED_USER_NAMESPACED_PODS_ERRORS, &[]);
    }
    result
}

async fn set_up_and_run(action_inputs: &ActionInputs, attempt: u32) -> Result<String, String> {
    let (node, facts) = (action_inputs.node_facts().await?, action_inputs.pod_facts().await?);
    let built = sandbox::config(&action_inputs.pod, &node, &facts, attempt);
    let (config, warnings) = built.map_err(|error| error.to_string())?;
    action_inputs.warn(warnings).await;
    let metrics = action_inputs.context.status_store.metrics();
    let _starting = action_inputs.context.observed.starting(action_inputs.uid());
    let call = async {
        let started = Instant::now();
        let result = action_inputs.context.ports.runtime.run_sandbox(&config).await;
        (result, started.elapsed())
    };
    // A pod with its own network mostly waits for CNI, so its call needs no permit.
    let (result, took) = match action_inputs.pod.spec.host_network {
        true => action_inputs.context.call_limiter.take(call).await,
        false => call.await,
    };
    let handler = facts.handler.name.as_str();
    metrics.took(&names::RUN_SANDBOX_DURATION, &[handler], took);
    if result.is_err() {
        metrics.count(&names::RUN_SANDBOX_ERRORS, &[handler]);
    }
    result.map_err(|error| error.to_string())
}

pub(super) async fn stop(action_inputs: &ActionInputs, id: &str) -> Result<(), String> {
    ignore_not_found(action_inputs.context.ports.runtime.stop_sandbox(id).await)
}

pub(super) async fn remove(action_inputs: &ActionInputs, id: &str) -> Result<(), String> {
    ignore_not_found(action_inputs.context.ports.runtime.remove_sandbox(id).await)
}

/// An object that does not exist need not be stopped or removed.
pub(super) fn ignore_not_found(result: Result<(), ContainerRuntimeError>) -> Result<(), String> {
    match result {
        Ok(()) | Err(ContainerRuntimeError::NotFound { .. }) => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}
