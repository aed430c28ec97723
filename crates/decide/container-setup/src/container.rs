//! The configuration with which the runtime creates a container.
//!
//! upstream: pkg/kubelet/kuberuntime/kuberuntime_container.go

use std::collections::BTreeMap;

use pod_model::pod::{Container, Pod};
use ports::runtime_objects::{ContainerConfig, ImageSpec};

use crate::environment::EnvironmentSource;
use crate::inputs::{ContainerSetupInputs, NodeSetupInputs, PodSetupInputs};
use crate::mounts::MountInputs;
use crate::{
    SetupError, devices, environment, expansion, identity, log_paths, mounts, resources, security,
};

#[cfg(test)]
mod tests;

/// Fails with the reference's message where no container can be created.
pub fn config(
    pod: &Pod,
    container: &Container,
    node: &NodeSetupInputs,
    pod_facts: &PodSetupInputs,
    facts: &ContainerSetupInputs,
) -> Result<ContainerConfig, SetupError> {
    let devices = devices::of_container(container, facts)?;
    let env = environment::make(&EnvironmentSource { pod, container, node, facts })?;
    let mounts =
        mounts::of_container(&MountInputs { pod, container, node, pod_facts, facts, env: &env })?;
    let security = security::of_container(pod, container, node, pod_facts, facts)?;
    let values: BTreeMap<&str, &str> =
        env.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let expanded = |texts: &[Box<str>]| -> Vec<String> {
        texts.iter().map(|text| expansion::expand_from(text, &values)).collect()
    };
    let attempt = facts.restart_count;
    Ok(ContainerConfig {
        name: container.name.to_string(),
        attempt,
        image: ImageSpec {
            image: facts.image_ref.clone(),
            user_specified_image: container.image.to_string(),
            ..ImageSpec::default()
        },
        command: expanded(&container.command),
        args: expanded(&container.args),
        working_dir: container.working_dir.to_string(),
        mounts,
        devices,
        cdi_devices: facts.given.cdi_devices.clone(),
        labels: identity::container_labels(pod, container),
        annotations: identity::container_annotations(
            pod,
            container,
            attempt,
            &facts.given.annotations,
        ),
        log_path: log_paths::container_log(&container.name, attempt),
        stdin: container.stdin,
        stdin_once: container.stdin_once,
        tty: container.tty,
        resources: resources::of_container(pod, container, node, facts.exclusive_cpus),
        security,
        stop_signal: stop_signal(container, node),
        env,
    })
}

fn stop_signal(container: &Container, node: &NodeSetupInputs) -> String {
    let signal = container.lifecycle.as_ref().and_then(|lifecycle| lifecycle.stop_signal.as_ref());
    let signal = signal.filter(|_| node.gates.container_stop_signals);
    signal.map(ToString::to_string).unwrap_or_default()
}
