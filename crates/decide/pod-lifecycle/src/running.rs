//! A pod that should run: sandbox, init containers, sidecars, regular and ephemeral containers.
//!
//! Rules: everything to be stopped is stopped at once; starts follow one after the other in the
//! order of the specification, each only after the one before it was attempted; a pod whose regular
//! containers are all done is cleared, sidecars last.
//!
//! upstream: kuberuntime_manager.go (computePodActions, SyncPod)

use ports::ApiTime;

use crate::action::{Action, ActionKey, KillReason};
use crate::memory::Ending;
use crate::plan::{Draft, Rank};
use crate::plan_context::PlanContext;
use crate::sandbox::{self, SandboxDecision};
use crate::stop::{self, ContainerStopRequest};
use crate::termination;
use crate::time::{plus, seconds};
use crate::view::{Admission, VolumesState};

mod init;
mod regular;
mod replace;
mod reset;
mod start_order;

#[cfg(test)]
mod tests;

/// A container to kill, and why.
pub(crate) struct ContainerKill {
    pub(crate) name: String,
    pub(crate) id: String,
    pub(crate) reason: KillReason,
    pub(crate) message: String,
}

/// The actions that the containers of a kind need.
#[derive(Default)]
pub(crate) struct ContainerActions {
    /// Names, in the order of the specification.
    pub(crate) starts: Vec<String>,
    pub(crate) kills: Vec<ContainerKill>,
    /// The pod has nothing more to do (regular) or has failed (init).
    pub(crate) finished: bool,
    /// All init containers have completed.
    pub(crate) initialized: bool,
}

pub(crate) fn plan(plan_context: &PlanContext<'_>, draft: &mut Draft) {
    match &plan_context.view.facts.admission {
        Admission::Pending => {
            draft.wait(Rank::Node, "the node has not admitted it yet", "it is decided by itself");
            return;
        }
        Admission::WaitingForDevices => {
            let next_step = "it goes on by itself; `keelson plugins` lists the plugins";
            draft.wait(Rank::Node, "its devices are being allocated by their plugins", next_step);
            return;
        }
        Admission::WaitingForPreemption(others) => {
            let why =
                format!("there is no room for it until these have ended: {}", others.join(", "));
            draft.wait(Rank::Node, why, "they are being stopped, and it starts by itself then");
            return;
        }
        Admission::Admitted | Admission::Rejected { .. } => {}
    }
    draft.notes.admitted = true;
    draft.requirements.volumes = true;
    stop_unknown_containers(plan_context, draft);
    if plan_context.restarts_all() && !plan_context.is_cleared() {
        reset::plan(plan_context, draft);
        return;
    }
    match sandbox::decide(plan_context.pod, plan_context.view.observed) {
        SandboxDecision::New { attempt, replaces, why } => {
            let new = replace::CreateSandbox { attempt, replaces, why };
            replace::plan(plan_context, draft, &new);
        }
        SandboxDecision::Keep(sandbox) => {
            let mut container_actions = init::container_actions(plan_context);
            // Sidecars that were stopped already must not look like a pod that begins.
            let clears = plan_context.view.memory.persisted.clearing.is_some()
                && regular::container_actions(plan_context).finished;
            container_actions.finished |= clears;
            if container_actions.initialized && !container_actions.finished {
                let regular = regular::container_actions(plan_context);
                container_actions.finished = regular.finished;
                container_actions.starts.extend(regular.starts);
                container_actions.kills.extend(regular.kills);
            }
            if container_actions.finished {
                stop_all_containers(plan_context, draft);
                draft.wait(
                    Rank::Pod,
                    "its containers are done, and what is left is being stopped",
                    "nothing is to be done",
                );
                return;
            }
            stop_each(plan_context, draft, &container_actions.kills);
            remove_old_init_records(plan_context, draft);
            let ephemeral = start_order::ephemeral_to_start(plan_context);
            let starts: Vec<String> =
                ephemeral.into_iter().chain(container_actions.starts).collect();
            start_order::plan(plan_context, draft, sandbox, &starts);
        }
    }
}

/// Stops containers that are not in the specification.
fn stop_unknown_containers(plan_context: &PlanContext<'_>, draft: &mut Draft) {
    for container in plan_context.containers_by_name.everything() {
        let record = &container.record;
        if crate::containers_by_name::find(plan_context.pod, &record.name).is_some()
            || !plan_context.may_be_running(record)
        {
            continue;
        }
        let reason = KillReason::NotInSpecification;
        let message = format!("Container {} is not in the specification any more", record.name);
        let deadline = stop::deadline(plan_context, record, None, reason);
        stop::one(plan_context, draft, record, &ContainerStopRequest { reason, message, deadline });
    }
}

fn stop_each(plan_context: &PlanContext<'_>, draft: &mut Draft, kills: &[ContainerKill]) {
    for kill in kills {
        let found = plan_context
            .containers_by_name
            .all(&kill.name)
            .iter()
            .find(|each| each.record.id == kill.id);
        let Some(found) = found else { continue };
        let record = &found.record;
        let container = crate::containers_by_name::find(plan_context.pod, &kill.name)
            .map(|(_, container)| container);
        let deadline = stop::deadline(plan_context, record, container, kill.reason);
        let stop_request =
            ContainerStopRequest { reason: kill.reason, message: kill.message.clone(), deadline };
        stop::one(plan_context, draft, record, &stop_request);
        let why = format!("container {} is being stopped: {}", kill.name, kill.message);
        draft.wait(Rank::Container, why, "it is dealt with by itself");
    }
}

/// Stops all containers and sandboxes of a pod that continues; true when nothing runs.
fn stop_all_containers(plan_context: &PlanContext<'_>, draft: &mut Draft) -> bool {
    let now = plan_context.view.now;
    let grace_seconds = stop::grace_seconds(plan_context.pod, None, KillReason::PodEnds);
    let begun = Ending {
        since: now.nanos(),
        grace_seconds,
        deadline: plus(now, seconds(grace_seconds)).nanos(),
    };
    if !plan_context.is_stopped() {
        let clearing = plan_context.view.memory.persisted.clearing.unwrap_or(begun);
        draft.notes.clearing = Some(clearing);
        stop::everything(plan_context, draft, clearing);
        return false;
    }
    termination::stop_sandboxes(plan_context, draft)
}

/// Whether the pod's cgroup, directories and volumes are there, so that containers can be started.
fn is_prepared(plan_context: &PlanContext<'_>, draft: &mut Draft) -> bool {
    let memory = plan_context.view.memory;
    if !memory.prepared {
        let made = "its cgroup and folders are being made";
        if memory.is_in_flight(&ActionKey::Pod) {
            draft.wait(Rank::Passing, made, "nothing is to be done");
        } else if !draft.is_backing_off(
            plan_context,
            &ActionKey::Pod,
            "making its cgroup and folders",
        ) {
            draft.act(plan_context, Action::PreparePod);
            draft.wait(Rank::Passing, made, "nothing is to be done");
        }
    }
    match &plan_context.view.facts.volumes {
        VolumesState::Ready => memory.prepared,
        VolumesState::Pending(names) => {
            let which =
                if names.is_empty() { String::new() } else { format!(": {}", names.join(", ")) };
            draft.wait(
                Rank::Pod,
                format!("its volumes are not there yet{which}"),
                "they are being set up",
            );
            false
        }
        VolumesState::Failed(message) => {
            draft.notes.volume_problem = Some(message.clone());
            let why = format!("its volumes cannot be set up: {message}");
            draft.wait(Rank::Pod, why, "mend what the message names; it is tried again by itself");
            false
        }
    }
}

/// Removes all but the newest exited record of each init container.
///
/// upstream: kuberuntime_container.go (pruneInitContainersBeforeStart)
fn remove_old_init_records(plan_context: &PlanContext<'_>, draft: &mut Draft) {
    for container in &plan_context.pod.spec.init_containers {
        let ended = plan_context.containers_by_name.exited(&container.name).skip(1);
        for record in ended {
            let (id, name) = (record.id.clone(), record.name.clone());
            let key = ActionKey::Container(name.clone());
            if !draft.is_backing_off(plan_context, &key, &format!("removing container {name}")) {
                draft.act(plan_context, Action::RemoveContainer { id, name, keep_logs: false });
            }
        }
    }
}

/// When the next attempt is, for messages.
pub(crate) fn at(time: Option<ApiTime>) -> String {
    match time {
        Some(time) => format!("it is tried again at {}", time.to_seconds_text()),
        None => "it is tried again by itself".to_owned(),
    }
}
