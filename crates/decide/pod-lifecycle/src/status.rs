//! Derives the v1 PodStatus.
//!
//! Rules: built from the observation, with the memory standing in for the last status;
//! deterministic; a terminal phase is never left; transition times of conditions change only with
//! their status.
//!
//! upstream: kubelet_pods.go (generateAPIPodStatus), status/status_manager.go

use std::net::IpAddr;

use pod_model::pod::resources::{effective_limits, effective_requests, qos_class};
use pod_model::pod::spec::PodPhase;
use pod_model::pod::status::{AddressEntry, ContainerStateNow, ContainerStatus, PodStatus};
use pod_model::pod::{ResourceRequirements, Timestamp};

use crate::plan_context::PlanContext;
use crate::sandbox;
use crate::status_text::{
    DEADLINE_MESSAGE, DEADLINE_REASON, LOST_AT_THE_END, REJECTED, STATUS_UNKNOWN, is_static,
};
use crate::time::timestamp;
use crate::view::{Admission, DesiredState, TerminationCause};

mod conditions;
mod containers;
mod oom_kills;
mod phase;
mod resources;

#[cfg(test)]
mod tests;

pub(crate) use containers::has_succeeded;
pub(crate) use oom_kills::{dropped_kills_message, oom_kill_message};

/// All termination messages of a pod together.
const MESSAGES_BYTES: usize = 12 * 1024;

pub(crate) fn report(plan_context: &PlanContext<'_>) -> PodStatus {
    let pod = plan_context.pod;
    let mut status = PodStatus {
        observed_generation: pod.metadata.generation,
        start_time: Some(start_time(plan_context)),
        qos_class: qos_class(pod),
        init_container_statuses: containers::init(plan_context),
        container_statuses: containers::regular(plan_context),
        ephemeral_container_statuses: containers::ephemeral(plan_context),
        allocated_resources: effective_requests(&pod.spec),
        ..PodStatus::default()
    };
    status.resources = Some(Box::new(ResourceRequirements {
        requests: effective_requests(&pod.spec),
        limits: effective_limits(&pod.spec),
        ..pod.spec.resources.as_deref().cloned().unwrap_or_default()
    }));
    phase_and_reason(plan_context, &mut status);
    if plan_context.over && plan_context.is_stopped() {
        finalize_containers(plan_context, &mut status);
    }
    cap_messages(plan_context, &mut status);
    address(plan_context, &mut status);
    status.conditions = conditions::all(plan_context, &status);
    status
}

fn start_time(plan_context: &PlanContext<'_>) -> Timestamp {
    timestamp(plan_context.start_time())
}

/// Phase, reason and message.
fn phase_and_reason(plan_context: &PlanContext<'_>, status: &mut PodStatus) {
    let still = plan_context.over && plan_context.is_stopped();
    status.phase = phase::of(plan_context, status, still);
    let past_deadline = !status.is_terminal() && plan_context.is_past_deadline();
    let mut fail = |reason: &str, message: String| {
        status.phase = PodPhase::Failed;
        status.reason = reason.into();
        status.message = message.into();
    };
    if let Some(terminal_status) = &plan_context.view.memory.persisted.terminal_status {
        status.phase = terminal_status.phase();
        status.reason = terminal_status.reason.as_str().into();
        status.message = terminal_status.message.as_str().into();
        return;
    }
    if let Some(end) = &plan_context.view.facts.external_end {
        status.phase = if end.failed { PodPhase::Failed } else { PodPhase::Succeeded };
        status.reason = end.reason.as_str().into();
        status.message = end.message.as_str().into();
        return;
    }
    if let DesiredState::End(end) = &plan_context.view.desired.desired_state
        && let TerminationCause::Evicted { reason, message, .. } = &end.cause
    {
        return fail(reason, message.clone());
    }
    if let Admission::Rejected { reason, message } = &plan_context.view.facts.admission {
        return fail(reason, format!("{REJECTED}{message}"));
    }
    if past_deadline {
        fail(DEADLINE_REASON, DEADLINE_MESSAGE.to_owned());
    }
}

/// The final status of a pod of which nothing runs: what is not known to have exited counts as
/// failed.
///
/// upstream: status/status_manager.go (TerminatePod)
fn finalize_containers(plan_context: &PlanContext<'_>, status: &mut PodStatus) {
    let lost = |each: &mut ContainerStatus| {
        if each.state.terminated.is_none() {
            let exit = crate::memory::ContainerExit {
                code: 137,
                reason: STATUS_UNKNOWN.to_owned(),
                message: LOST_AT_THE_END.to_owned(),
                ..Default::default()
            };
            each.state = ContainerStateNow {
                terminated: Some(Box::new(exit.to_status())),
                ..ContainerStateNow::default()
            };
        }
    };
    if has_initialized(plan_context, status) {
        status.container_statuses.iter_mut().for_each(lost);
    }
    let begun = status.init_container_statuses.iter().rposition(has_begun).unwrap_or(0);
    status.init_container_statuses.iter_mut().take(begun + 1).for_each(lost);
    if !is_static(plan_context.pod) && !status.is_terminal() {
        status.phase = PodPhase::Failed;
    }
}

/// Whether it has run, now or before.
fn has_begun(status: &ContainerStatus) -> bool {
    status.state.waiting.is_none() || status.last_state.terminated.is_some()
}

/// For a pod of which nothing runs: a sidecar that comes last shows nothing, however it exited.
fn has_initialized(plan_context: &PlanContext<'_>, status: &PodStatus) -> bool {
    let inits = &plan_context.pod.spec.init_containers;
    let Some(last) = inits.last() else { return true };
    if status.container_statuses.iter().any(has_begun) {
        return true;
    }
    let Some(last_status) = status.init_container_statuses.last() else { return false };
    if last.is_restarted_always() {
        return false;
    }
    [&last_status.last_state, &last_status.state]
        .iter()
        .any(|state| state.terminated.as_ref().is_some_and(|ended| ended.exit_code == 0))
}

fn cap_messages(plan_context: &PlanContext<'_>, status: &mut PodStatus) {
    let most = MESSAGES_BYTES / plan_context.pod.spec.all_containers().count().max(1);
    let all = status
        .init_container_statuses
        .iter_mut()
        .chain(&mut status.container_statuses)
        .chain(&mut status.ephemeral_container_statuses);
    for each in all {
        for state in [&mut each.state, &mut each.last_state] {
            let Some(ended) = &mut state.terminated else { continue };
            let cut = ended.message.floor_char_boundary(most);
            if cut != ended.message.len() {
                ended.message = ended.message.get(..cut).unwrap_or_default().into();
            }
        }
    }
}

/// Addresses of the pod and of its host.
fn address(plan_context: &PlanContext<'_>, status: &mut PodStatus) {
    let observed = plan_context.view.observed;
    let mut ips = match sandbox::active(observed) {
        Some(sandbox) => in_order(&sandbox.ips, plan_context.settings.prefers_ipv6),
        None if observed.sandboxes.iter().any(|sandbox| sandbox.ready) => Vec::new(),
        // Readers of the status of a finished pod still need its address.
        None => plan_context.view.memory.persisted.pod_ips.clone(),
    };
    let hosts = &plan_context.view.facts.host_ips;
    if plan_context.pod.spec.host_network && ips.is_empty() {
        ips.extend(hosts.iter().take(2).cloned());
    }
    let entries = |list: &[String]| -> Vec<AddressEntry> {
        list.iter().map(|ip| AddressEntry { ip: ip.as_str().into() }).collect()
    };
    status.pod_ip = ips.first().map_or("", String::as_str).into();
    status.pod_ips = entries(&ips);
    status.host_ip = hosts.first().map_or("", String::as_str).into();
    status.host_ips = entries(hosts);
}

/// The first address of the preferred family, then the first of the other.
fn in_order(ips: &[String], prefers_ipv6: bool) -> Vec<String> {
    let parsed: Vec<IpAddr> = ips.iter().filter_map(|ip| ip.parse().ok()).collect();
    let first = |ipv6: bool| parsed.iter().find(|ip| ip.is_ipv6() == ipv6);
    [first(prefers_ipv6), first(!prefers_ipv6)]
        .into_iter()
        .flatten()
        .map(ToString::to_string)
        .collect()
}
