//! Whether a container that has exited is started again.
//!
//! Rules: the first restart rule that matches the exit code applies, then the container's own
//! policy, then the pod's; for a container with rules but no policy of its own the pod's policy
//! applies and its rules are ignored.
//!
//! upstream: pkg/api/v1/pod/util.go, container/helpers.go

use pod_model::pod::container::{
    ContainerRestartPolicy, ContainerRestartRule, ExitCodeOperator, RestartRuleAction,
};
use pod_model::pod::spec::RestartPolicy;
use pod_model::pod::{Container, PodSpec};

use crate::view::PodLifecycleSettings;

#[cfg(test)]
mod tests;

/// The first rule of the container that matches this exit code.
pub(crate) fn matching_rule(
    container: &Container,
    exit_code: i32,
) -> Option<&ContainerRestartRule> {
    container.restart_policy_rules.iter().find(|rule| {
        let Some(codes) = &rule.exit_codes else { return false };
        let named = codes.values.contains(&exit_code);
        match codes.operator {
            ExitCodeOperator::In => named,
            ExitCodeOperator::NotIn => !named,
            ExitCodeOperator::Other(_) => false,
        }
    })
}

/// Whether the container restarts after an exit with this code.
pub(crate) fn after_exit(
    container: &Container,
    spec: &PodSpec,
    exit_code: i32,
    settings: &PodLifecycleSettings,
) -> bool {
    if settings.restart_rules
        && let Some(policy) = &container.restart_policy
    {
        let action = matching_rule(container, exit_code).map(|rule| &rule.action);
        match action {
            Some(RestartRuleAction::Restart) => return true,
            Some(RestartRuleAction::RestartAllContainers) if settings.restart_all => return true,
            _ => {}
        }
        match policy {
            ContainerRestartPolicy::Always => return true,
            ContainerRestartPolicy::OnFailure => return exit_code != 0,
            ContainerRestartPolicy::Never => return false,
            ContainerRestartPolicy::Other(_) => {}
        }
    }
    match spec.restart_policy {
        RestartPolicy::OnFailure => exit_code != 0,
        RestartPolicy::Never => false,
        RestartPolicy::Always | RestartPolicy::Other(_) => true,
    }
}

/// Whether a container that is killed for its probes restarts. Rules are not applied: there is no
/// exit code yet.
pub(crate) fn after_kill(
    container: &Container,
    spec: &PodSpec,
    settings: &PodLifecycleSettings,
) -> bool {
    match &container.restart_policy {
        Some(policy) if settings.restart_rules => *policy != ContainerRestartPolicy::Never,
        _ => pod_restarts(spec),
    }
}

/// Whether the pod as a whole is restarted.
pub(crate) fn pod_restarts(spec: &PodSpec) -> bool {
    spec.restart_policy != RestartPolicy::Never
}

/// Whether this container, once it has succeeded, is done for good even in a new sandbox.
pub(crate) fn runs_until_success(
    container: &Container,
    spec: &PodSpec,
    settings: &PodLifecycleSettings,
) -> bool {
    match &container.restart_policy {
        Some(policy) if settings.restart_rules => *policy == ContainerRestartPolicy::OnFailure,
        _ => spec.restart_policy == RestartPolicy::OnFailure,
    }
}

/// Whether this exit restarts all containers of the pod.
pub(crate) fn restarts_all(
    container: &Container,
    exit_code: i32,
    settings: &PodLifecycleSettings,
) -> bool {
    settings.restart_all
        && matching_rule(container, exit_code)
            .is_some_and(|rule| rule.action == RestartRuleAction::RestartAllContainers)
}

/// Whether any rule could restart all containers.
pub(crate) fn could_restart_all(spec: &PodSpec, settings: &PodLifecycleSettings) -> bool {
    settings.restart_all
        && spec
            .init_containers
            .iter()
            .chain(&spec.containers)
            .flat_map(|container| &container.restart_policy_rules)
            .any(|rule| rule.action == RestartRuleAction::RestartAllContainers)
}
