//! A pod without a usable sandbox: the old one is torn down, then a new one is created.
//!
//! Rules: a `Never` pod that had containers gets no new sandbox; neither does one whose containers
//! are all done; containers that must succeed once and have are not started again; init containers
//! begin again from the first, and so their records are removed before the new sandbox is created.

use ports::runtime_objects::SandboxRecord;

use crate::action::{Action, ActionKey};
use crate::plan::{Draft, Rank};
use crate::restart;
use crate::scene::Scene;
use crate::status::has_succeeded;

use super::{at, clear, is_prepared, lane};

pub(crate) struct New<'a> {
    pub(crate) attempt: u32,
    pub(crate) replaces: Option<&'a SandboxRecord>,
    pub(crate) why: &'static str,
}

pub(crate) fn plan(scene: &Scene<'_>, draft: &mut Draft, new: &New<'_>) {
    let memory = scene.view.memory;
    if memory.is_busy(&ActionKey::Sandbox) {
        draft.wait(Rank::Pod, "its sandbox is being made", "nothing is to be done");
        return;
    }
    let wanted = is_wanted(scene, new);
    let cleared = clear(scene, draft);
    if !wanted {
        let why = "its sandbox is gone, and its restart policy allows no new one";
        draft.wait(Rank::Pod, why, "delete the pod, or its manifest, and make it again");
        return;
    }
    if let Some(old) = new.replaces {
        draft.notes.sandbox_changed = Some(old.id.clone());
    }
    if cleared && purge(scene, draft) {
        make(scene, draft, new);
    }
    draft.wait(Rank::Passing, format!("it needs a new sandbox: {}", new.why), "it is being made");
}

fn make(scene: &Scene<'_>, draft: &mut Draft, new: &New<'_>) {
    // Images are requested while the sandbox is created.
    lane::want_images(scene, draft, &first_starts(scene));
    let prepared = is_prepared(scene, draft);
    if let Err(problem) = &scene.view.facts.network_ready
        && !scene.pod.spec.host_network
    {
        draft.notes.network_problem = Some(problem.clone());
        let why = format!("the network of the node is not ready: {problem}");
        draft.wait(Rank::Node, why, "see to the network plugin; the pod goes on by itself then");
        return;
    }
    if !prepared || draft.holds_back(scene, &ActionKey::Sandbox, "making its sandbox") {
        return;
    }
    draft.act(scene, Action::RunSandbox { attempt: new.attempt });
}

fn is_wanted(scene: &Scene<'_>, new: &New<'_>) -> bool {
    let spec = &scene.pod.spec;
    let had_containers = scene.lineup.everything().next().is_some();
    if !restart::pod_restarts(spec) && new.attempt != 0 && had_containers {
        return false;
    }
    let all_done = spec.containers.iter().all(|container| {
        restart::runs_until_success(container, spec, scene.settings)
            && scene.lineup.latest(&container.name).is_some_and(has_succeeded)
    });
    !(all_done && scene.lineup.has_regular(scene.pod))
}

/// Removes the records of all init containers; true when none is left.
fn purge(scene: &Scene<'_>, draft: &mut Draft) -> bool {
    let mut left = false;
    for container in &scene.pod.spec.init_containers {
        for observed in scene.lineup.all(&container.name) {
            left = true;
            let (id, name) = (observed.record.id.clone(), observed.record.name.clone());
            let key = ActionKey::Container(name.clone());
            if !draft.holds_back(scene, &key, &format!("removing container {name}")) {
                draft.act(scene, Action::RemoveContainer { id, name, keep_logs: false });
            }
        }
    }
    if left {
        let why = "what its init containers left from the old sandbox is being removed";
        draft.wait(Rank::Passing, why, at(None));
    }
    !left
}

/// The containers that will be started first in the new sandbox.
fn first_starts(scene: &Scene<'_>) -> Vec<String> {
    let spec = &scene.pod.spec;
    if let Some(first) = spec.init_containers.first() {
        return vec![first.name.to_string()];
    }
    spec.containers
        .iter()
        .filter(|container| scene.should_start(container) || scene.begins_again(container))
        .map(|container| container.name.to_string())
        .collect()
}
