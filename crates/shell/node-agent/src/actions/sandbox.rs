//! A pod's sandbox.

use super::ActionWorld;
use container_setup::sandbox;
use ports::container_runtime::ContainerRuntimeError;

pub(super) async fn run(world: &ActionWorld, attempt: u32) -> Result<String, String> {
    let (node, facts) = (world.node_facts().await?, world.pod_facts().await?);
    let made = sandbox::config(&world.pod, &node, &facts, attempt);
    let (config, warnings) = made.map_err(|error| error.to_string())?;
    world.warn(warnings).await;
    let ran = world.context.ports.runtime.run_sandbox(&config).await;
    ran.map_err(|error| error.to_string())
}

pub(super) async fn stop(world: &ActionWorld, id: &str) -> Result<(), String> {
    gone_is_fine(world.context.ports.runtime.stop_sandbox(id).await)
}

pub(super) async fn remove(world: &ActionWorld, id: &str) -> Result<(), String> {
    gone_is_fine(world.context.ports.runtime.remove_sandbox(id).await)
}

/// What is not there need not be stopped or removed.
pub(super) fn gone_is_fine(result: Result<(), ContainerRuntimeError>) -> Result<(), String> {
    match result {
        Ok(()) | Err(ContainerRuntimeError::NotFound { .. }) => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}
