//! All containers are stopped, removed and started anew, because one exited with a code whose rule
//! says so.
//!
//! Rules: the minimum grace period (two seconds) and no hooks; the container that triggered it is
//! removed last, so that an agent that is killed in between still sees the cause; logs stay.

use std::time::Duration;

use ports::runtime_objects::ContainerState;

use crate::action::{Action, ActionKey, KillReason};
use crate::plan::{Draft, Rank};
use crate::plan_context::PlanContext;
use crate::restart;

pub(crate) fn plan(plan_context: &PlanContext<'_>, draft: &mut Draft) {
    draft.wait(
        Rank::Pod,
        "all its containers start again, because one exited with a code whose restart rule says so",
        "they are being stopped and removed first",
    );
    let mut sources = Vec::new();
    let mut others = false;
    for container in plan_context.own_containers() {
        let name = container.name.to_string();
        let key = ActionKey::Container(name.clone());
        if plan_context.view.memory.is_in_flight(&key) {
            others = true;
            continue;
        }
        for observed in plan_context.containers_by_name.all(&name) {
            let record = &observed.record;
            let id = record.id.clone();
            let is_source = record.state == ContainerState::Exited
                && restart::restarts_all(container, record.exit_code, plan_context.settings);
            if is_source {
                sources.push((name.clone(), id));
                continue;
            }
            others = true;
            if draft.is_backing_off(
                plan_context,
                &key,
                &format!("stopping or removing container {name}"),
            ) {
                continue;
            }
            let action = if plan_context.may_be_running(record) && !plan_context.was_stopped(record)
            {
                Action::StopContainer {
                    id,
                    name: name.clone(),
                    grace: Duration::ZERO,
                    pre_stop: false,
                    reason: KillReason::RestartAllContainers,
                    message: "killing".to_owned(),
                    replaces: false,
                }
            } else {
                Action::RemoveContainer { id, name: name.clone(), keep_logs: true }
            };
            draft.act(plan_context, action);
        }
    }
    if others {
        return;
    }
    for (name, id) in sources {
        let key = ActionKey::Container(name.clone());
        if !draft.is_backing_off(plan_context, &key, &format!("removing container {name}")) {
            draft.act(plan_context, Action::RemoveContainer { id, name, keep_logs: true });
        }
    }
}
