//! A pod without a usable sandbox: the old one is torn down, then a new one is created.
//!
//! Rules: a `Never` pod that had containers gets no new sandbox; neither does one whose containers
//! are all done; containers that must succeed once and have are not started again; init containers
//! begin again from the first, and so their records are removed before the new sandbox is created.

use ports::runtime_objects::SandboxRecord;

use crate::action::{Action, ActionKey};
use crate::plan::{Draft, Rank};
use crate::plan_context::PlanContext;
use crate::restart;
use crate::status::has_succeeded;

use super::{at, is_prepared, start_order, stop_all_containers};

pub(crate) struct CreateSandbox<'a> {
    pub(crate) attempt: u32,
    pub(crate) replaces: Option<&'a SandboxRecord>,
    pub(crate) why: &'static str,
}

pub(crate) fn plan(
    plan_context: &PlanContext<'_>,
    draft: &mut Draft,
    create_sandbox: &CreateSandbox<'_>,
) {
    let memory = plan_context.view.memory;
    if memory.is_in_flight(&ActionKey::Sandbox) {
        draft.wait(Rank::Pod, "its sandbox is being made", "nothing is to be done");
        return;
    }
    let wanted = is_wanted(plan_context, create_sandbox);
    let cleared = stop_all_containers(plan_context, draft);
    if !wanted {
        let why = "its sandbox is gone, and its restart policy allows no new one";
        draft.wait(Rank::Pod, why, "delete the pod, or its manifest, and make it again");
        return;
    }
    if let Some(old) = create_sandbox.replaces {
        draft.notes.sandbox_changed = Some(old.id.clone());
    }
    if cleared && remove_init_records(plan_context, draft) {
        make(plan_context, draft, create_sandbox);
    }
    draft.wait(
        Rank::Passing,
        format!("it needs a new sandbox: {}", create_sandbox.why),
        "it is being made",
    );
}

fn make(plan_context: &PlanContext<'_>, draft: &mut Draft, create_sandbox: &CreateSandbox<'_>) {
    // Images are requested while the sandbox is created.
    start_order::require_images(plan_context, draft, &first_starts(plan_context));
    let prepared = is_prepared(plan_context, draft);
    if let Err(problem) = &plan_context.view.facts.network_ready
        && !plan_context.pod.spec.host_network
    {
        draft.notes.network_problem = Some(problem.clone());
        let why = format!("the network of the node is not ready: {problem}");
        draft.wait(Rank::Node, why, "see to the network plugin; the pod goes on by itself then");
        return;
    }
    if !prepared || draft.is_backing_off(plan_context, &ActionKey::Sandbox, "making its sandbox") {
        return;
    }
    draft.act(plan_context, Action::RunSandbox { attempt: create_sandbox.attempt });
}

fn is_wanted(plan_context: &PlanContext<'_>, create_sandbox: &CreateSandbox<'_>) -> bool {
    let spec = &plan_context.pod.spec;
    let had_containers = plan_context.containers_by_name.everything().next().is_some();
    if !restart::pod_restarts(spec) && create_sandbox.attempt != 0 && had_containers {
        return false;
    }
    let all_done = spec.containers.iter().all(|container| {
        restart::runs_until_success(container, spec, plan_context.settings)
            && plan_context.containers_by_name.latest(&container.name).is_some_and(has_succeeded)
    });
    !(all_done && plan_context.containers_by_name.has_regular(plan_context.pod))
}

/// Removes the records of all init containers; true when none is left.
fn remove_init_records(plan_context: &PlanContext<'_>, draft: &mut Draft) -> bool {
    let mut left = false;
    for container in &plan_context.pod.spec.init_containers {
        for observed in plan_context.containers_by_name.all(&container.name) {
            left = true;
            let (id, name) = (observed.record.id.clone(), observed.record.name.clone());
            let key = ActionKey::Container(name.clone());
            if !draft.is_backing_off(plan_context, &key, &format!("removing container {name}")) {
                draft.act(plan_context, Action::RemoveContainer { id, name, keep_logs: false });
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
fn first_starts(plan_context: &PlanContext<'_>) -> Vec<String> {
    let spec = &plan_context.pod.spec;
    if let Some(first) = spec.init_containers.first() {
        return vec![first.name.to_string()];
    }
    spec.containers
        .iter()
        .filter(|container| {
            plan_context.should_start(container) || plan_context.restarts_in_new_sandbox(container)
        })
        .map(|container| container.name.to_string())
        .collect()
}
