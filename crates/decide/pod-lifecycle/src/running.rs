//! A pod that should run: sandbox, init containers, sidecars, regular and ephemeral containers.
//!
//! Rules: everything to be stopped is stopped at once; starts follow one after the other in the
//! order of the specification, each only after the one before it was attempted; a pod whose regular
//! containers are all done is cleared, sidecars last.
//!
//! upstream: kuberuntime_manager.go (computePodActions, SyncPod)

use ports::ApiTime;

use crate::action::{Action, ActionKey, KillReason};
use crate::ending;
use crate::memory::Ending;
use crate::plan::{Draft, Rank};
use crate::sandbox::{self, SandboxNeed};
use crate::scene::Scene;
use crate::stop::{self, Order};
use crate::time::{plus, seconds};
use crate::view::{Admission, VolumesFact};

mod init;
mod lane;
mod regular;
mod replace;
mod reset;

#[cfg(test)]
mod tests;

/// A container to kill, and why.
pub(crate) struct Kill {
    pub(crate) name: String,
    pub(crate) id: String,
    pub(crate) reason: KillReason,
    pub(crate) message: String,
}

/// The actions that the containers of a kind need.
#[derive(Default)]
pub(crate) struct Needs {
    /// Names, in the order of the specification.
    pub(crate) starts: Vec<String>,
    pub(crate) kills: Vec<Kill>,
    /// The pod has nothing more to do (regular) or has failed (init).
    pub(crate) finished: bool,
    /// All init containers have completed.
    pub(crate) initialized: bool,
}

pub(crate) fn plan(scene: &Scene<'_>, draft: &mut Draft) {
    match &scene.view.facts.admission {
        Admission::Pending => {
            draft.wait(Rank::Node, "the node has not admitted it yet", "it is decided by itself");
            return;
        }
        Admission::MakingRoom(others) => {
            let why =
                format!("there is no room for it until these have ended: {}", others.join(", "));
            draft.wait(Rank::Node, why, "they are being stopped, and it starts by itself then");
            return;
        }
        Admission::Admitted | Admission::Rejected { .. } => {}
    }
    draft.notes.admitted = true;
    draft.wants.volumes = true;
    stop_strangers(scene, draft);
    if scene.restarts_all() && !scene.is_cleared() {
        reset::plan(scene, draft);
        return;
    }
    match sandbox::need(scene.pod, scene.view.observed) {
        SandboxNeed::New { attempt, replaces, why } => {
            let new = replace::New { attempt, replaces, why };
            replace::plan(scene, draft, &new);
        }
        SandboxNeed::Keep(sandbox) => {
            let mut needs = init::needs(scene);
            if needs.initialized && !needs.finished {
                let regular = regular::needs(scene);
                needs.finished = regular.finished;
                needs.starts.extend(regular.starts);
                needs.kills.extend(regular.kills);
            }
            if needs.finished {
                clear(scene, draft);
                draft.wait(
                    Rank::Pod,
                    "its containers are done, and what is left is being stopped",
                    "nothing is to be done",
                );
                return;
            }
            stop_each(scene, draft, &needs.kills);
            prune(scene, draft);
            let ephemeral = lane::ephemeral_to_start(scene);
            let starts: Vec<String> = ephemeral.into_iter().chain(needs.starts).collect();
            lane::plan(scene, draft, sandbox, &starts);
        }
    }
}

/// Stops containers that are not in the specification.
fn stop_strangers(scene: &Scene<'_>, draft: &mut Draft) {
    for container in scene.lineup.everything() {
        let record = &container.record;
        if crate::lineup::find(scene.pod, &record.name).is_some() || !scene.may_run(record) {
            continue;
        }
        let reason = KillReason::NotInSpecification;
        let message = format!("Container {} is not in the specification any more", record.name);
        let deadline = stop::deadline(scene, record, None, reason);
        stop::one(scene, draft, record, &Order { reason, message, deadline });
    }
}

fn stop_each(scene: &Scene<'_>, draft: &mut Draft, kills: &[Kill]) {
    for kill in kills {
        let found = scene.lineup.all(&kill.name).iter().find(|each| each.record.id == kill.id);
        let Some(found) = found else { continue };
        let record = &found.record;
        let container = crate::lineup::find(scene.pod, &kill.name).map(|(_, container)| container);
        let deadline = stop::deadline(scene, record, container, kill.reason);
        let order = Order { reason: kill.reason, message: kill.message.clone(), deadline };
        stop::one(scene, draft, record, &order);
        let why = format!("container {} is being stopped: {}", kill.name, kill.message);
        draft.wait(Rank::Container, why, "it is dealt with by itself");
    }
}

/// Stops all containers and sandboxes of a pod that continues; true when nothing runs.
fn clear(scene: &Scene<'_>, draft: &mut Draft) -> bool {
    let now = scene.view.now;
    let grace_seconds = stop::grace_seconds(scene.pod, None, KillReason::PodEnds);
    let begun = Ending {
        since: now.nanos(),
        grace_seconds,
        deadline: plus(now, seconds(grace_seconds)).nanos(),
    };
    if !scene.is_still() {
        let clearing = scene.view.memory.kept.clearing.unwrap_or(begun);
        draft.notes.clearing = Some(clearing);
        stop::everything(scene, draft, clearing);
        return false;
    }
    ending::stop_sandboxes(scene, draft)
}

/// Whether the pod's cgroup, directories and volumes are there, so that containers can be started.
fn is_prepared(scene: &Scene<'_>, draft: &mut Draft) -> bool {
    let memory = scene.view.memory;
    if !memory.prepared {
        let made = "its cgroup and folders are being made";
        if memory.is_busy(&ActionKey::Pod) {
            draft.wait(Rank::Passing, made, "nothing is to be done");
        } else if !draft.holds_back(scene, &ActionKey::Pod, "making its cgroup and folders") {
            draft.act(scene, Action::PreparePod);
            draft.wait(Rank::Passing, made, "nothing is to be done");
        }
    }
    match &scene.view.facts.volumes {
        VolumesFact::Ready => memory.prepared,
        VolumesFact::Pending(names) => {
            let which =
                if names.is_empty() { String::new() } else { format!(": {}", names.join(", ")) };
            draft.wait(
                Rank::Pod,
                format!("its volumes are not there yet{which}"),
                "they are being set up",
            );
            false
        }
        VolumesFact::Failed(message) => {
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
fn prune(scene: &Scene<'_>, draft: &mut Draft) {
    for container in &scene.pod.spec.init_containers {
        let ended = scene.lineup.exited(&container.name).skip(1);
        for record in ended {
            let (id, name) = (record.id.clone(), record.name.clone());
            let key = ActionKey::Container(name.clone());
            if !draft.holds_back(scene, &key, &format!("removing container {name}")) {
                draft.act(scene, Action::RemoveContainer { id, name, keep_logs: false });
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
