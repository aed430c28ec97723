//! Invariants that must hold at every step.

use std::collections::BTreeMap;

use pod_model::pod::spec::PodPhase;
use pod_model::pod::status::{ConditionStatus, PodStatus};
use ports::runtime_objects::ContainerState;

use crate::action::Action;
use crate::containers_by_name::ContainersByName;
use crate::plan::{PodPlan, PodStage, plan};
use crate::view::DesiredState;

use super::node::SimulatedRuntime;
use super::worker::{SimulatedWorker, has_twins, is_start};

/// The state of the invariants between two steps.
#[derive(Default)]
pub(super) struct Invariants {
    phase: Option<PodPhase>,
    counts: BTreeMap<String, i32>,
    conditions: BTreeMap<String, (ConditionStatus, i64)>,
    stage: Option<PodStage>,
    /// The first deadline of each container.
    deadlines: BTreeMap<String, i64>,
}

impl Invariants {
    pub(super) fn check(
        &mut self,
        worker: &SimulatedWorker,
        node: &SimulatedRuntime,
        made: &PodPlan,
    ) -> Result<(), String> {
        if has_twins(node) {
            return Err("two containers of one name run".to_owned());
        }
        self.check_actions(worker, node, made)?;
        self.check_status(&made.status)?;
        check_hooks(worker, &made.status)?;
        if self.stage.is_some_and(|stage| stage > made.stage) && made.stage < PodStage::Ending {
            return Err(format!("went back from {:?} to {:?}", self.stage, made.stage));
        }
        self.stage = Some(made.stage);
        let ready = made
            .status
            .condition("Ready")
            .is_some_and(|ready| ready.status == ConditionStatus::True);
        if made.stage == PodStage::Running && !ready && made.waiting_on.is_none() {
            return Err("waits in silence".to_owned());
        }
        Ok(())
    }

    fn check_actions(
        &mut self,
        worker: &SimulatedWorker,
        node: &SimulatedRuntime,
        made: &PodPlan,
    ) -> Result<(), String> {
        let termination = matches!(worker.desired.desired_state, DesiredState::End(_))
            || made.stage > PodStage::Running;
        for action in &made.actions {
            if termination && is_start(action) {
                return Err(format!("{action:?} of a pod that ends"));
            }
            if let Action::StartContainer { name, attempt, sandbox_id, .. } = action {
                let runs = node
                    .containers
                    .iter()
                    .any(|each| each.name == *name && each.state == ContainerState::Running);
                if runs && worker.observed.as_of.nanos() == node.now {
                    return Err(format!("starts {name}, which runs"));
                }
                if node.started.get(name).is_some_and(|highest| attempt <= highest) {
                    return Err(format!("starts {name} with the number {attempt} again"));
                }
                self.check_order(worker, node, name, sandbox_id)?;
            }
            if let Action::StopContainer { id, grace, .. } = action {
                let end = node.now + i64::try_from(grace.as_nanos()).unwrap_or(i64::MAX);
                let first = *self.deadlines.entry(id.clone()).or_insert(end);
                if !grace.is_zero() && end > first {
                    return Err(format!("the grace of {id} grew"));
                }
            }
        }
        if made.actions.len() > worker.desired.pod.spec.all_containers().count() + 2 {
            return Err("more actions than keys".to_owned());
        }
        Ok(())
    }

    /// A regular container starts only when every init container of this sandbox has completed.
    fn check_order(
        &self,
        worker: &SimulatedWorker,
        node: &SimulatedRuntime,
        name: &str,
        sandbox: &str,
    ) -> Result<(), String> {
        let spec = &worker.desired.pod.spec;
        if !spec.containers.iter().any(|each| &*each.name == name) {
            return Ok(());
        }
        let begun = node.containers.iter().any(|each| {
            each.sandbox_id == sandbox && spec.containers.iter().any(|own| *own.name == *each.name)
        });
        if begun {
            return Ok(());
        }
        for init in &spec.init_containers {
            let done = node.containers.iter().any(|each| {
                *each.name == *init.name
                    && each.sandbox_id == sandbox
                    && if init.is_restarted_always() {
                        each.started_at > 0 && !has_failed_hook(worker, &init.name, &each.id)
                    } else {
                        each.state == ContainerState::Exited && each.exit_code == 0
                    }
            });
            if !done {
                return Err(format!("starts {name} before {} is done", init.name));
            }
        }
        Ok(())
    }

    fn check_status(&mut self, status: &PodStatus) -> Result<(), String> {
        if let Some(old) = &self.phase
            && matches!(old, PodPhase::Succeeded | PodPhase::Failed)
            && *old != status.phase
        {
            return Err(format!("left the phase {old} for {}", status.phase));
        }
        self.phase = Some(status.phase.clone());
        for each in status.container_statuses.iter().chain(&status.init_container_statuses) {
            let old = self.counts.insert(each.name.to_string(), each.restart_count);
            if old.is_some_and(|old| old > each.restart_count) {
                return Err(format!("the restart count of {} fell", each.name));
            }
            let states = [
                each.state.waiting.is_some(),
                each.state.running.is_some(),
                each.state.terminated.is_some(),
            ];
            if states.iter().filter(|state| **state).count() != 1 {
                return Err(format!("{} is in no state or in two", each.name));
            }
        }
        for each in &status.conditions {
            let since = each.last_transition_time.map_or(0, |time| time.0);
            let new = (each.status.clone(), since);
            let old = self.conditions.insert(each.kind.to_string(), new.clone());
            if old.is_some_and(|old| old.0 == new.0 && old.1 != new.1) {
                return Err(format!("the time of {} moved without its status", each.kind));
            }
        }
        Ok(())
    }

    /// Times that were not saved when the agent died, and only reported, are lost.
    pub(super) fn forget_times(&mut self) {
        self.conditions.clear();
    }

    /// Killing the agent changes nothing when no action is in flight.
    pub(super) fn check_non_event(
        worker: &SimulatedWorker,
        node: &SimulatedRuntime,
        before: &PodStatus,
    ) -> Result<(), String> {
        let after = plan(&worker.view(node));
        if after.status != *before {
            return Err(format!(
                "the kill changed the status\n{}\n{}",
                serde_json::to_string(before).unwrap_or_default(),
                serde_json::to_string(&after.status).unwrap_or_default()
            ));
        }
        Ok(())
    }
}

/// A container whose postStart hook failed never counts as started.
fn check_hooks(worker: &SimulatedWorker, status: &PodStatus) -> Result<(), String> {
    for each in status.container_statuses.iter().chain(&status.init_container_statuses) {
        let newest = ContainersByName::new(&worker.observed);
        let Some(record) = newest.latest(&each.name) else { continue };
        let counts = each.ready || each.started == Some(true) || each.state.running.is_some();
        if counts && has_failed_hook(worker, &each.name, &record.id) {
            return Err(format!("{} counts as started, and its hook failed", each.name));
        }
    }
    Ok(())
}

fn has_failed_hook(worker: &SimulatedWorker, name: &str, id: &str) -> bool {
    worker
        .memory
        .container(name)
        .is_some_and(|memory| memory.post_start_failed.as_deref() == Some(id))
}
