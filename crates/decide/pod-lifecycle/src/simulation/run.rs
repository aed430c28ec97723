//! One run: faults for a while, then none until the pod has reached its desired state, then its
//! termination.

use std::sync::Arc;

use pod_model::pod::status::ConditionStatus;
use ports::ApiTime;
use ports::runtime_objects::ContainerState;

use crate::plan::{PodPlan, PodStage, plan};
use crate::testing::{at, pods};
use crate::view::{DesiredPod, DesiredState, TerminationCause, TerminationRequest};

use super::invariants::Invariants;
use super::node::SimulatedRuntime;
use super::rng::SimulationRng;
use super::worker::SimulatedWorker;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Chaos {
    None,
    Events,
    Kills,
    Everything,
}

struct SimulationRun {
    node: SimulatedRuntime,
    worker: SimulatedWorker,
    rng: SimulationRng,
    invariants: Invariants,
    chaos: Chaos,
    is_calm: bool,
    last_look: i64,
    kills: u32,
}

const SECOND: i64 = 1_000_000_000;

pub(super) fn run(pod: &str, seed: u64, chaos: Chaos) {
    if attempt(pod, seed, chaos, false).is_ok() {
        return;
    }
    if let Err(wrong) = attempt(pod, seed, chaos, true) {
        panic!("pod {pod:?}, seed {seed}: {wrong}");
    }
}

fn attempt(pod: &str, seed: u64, chaos: Chaos, tracing: bool) -> Result<(), String> {
    let desired = DesiredPod { pod: Arc::new(pods::read(pod)), desired_state: DesiredState::Run };
    let node = SimulatedRuntime { now: at(0).nanos(), ..SimulatedRuntime::default() };
    let mut worker = SimulatedWorker::new(desired, &node);
    worker.tracing = tracing;
    let mut run = SimulationRun {
        last_look: node.now,
        node,
        worker,
        rng: SimulationRng::new(seed),
        invariants: Invariants::default(),
        chaos,
        is_calm: chaos == Chaos::None,
        kills: 0,
    };
    run.whole().map_err(|law| {
        let from = run.worker.trace.len().saturating_sub(60);
        format!("{law}\n{}", run.worker.trace[from..].join("\n"))
    })
}

impl SimulationRun {
    fn whole(&mut self) -> Result<(), String> {
        let rough_until = self.node.now + self.rng.millis(10_000, 300_000);
        let early_end = self.rng.percent(30);
        while self.node.now < rough_until {
            self.step()?;
            if early_end && self.rng.percent(3) {
                self.request_termination();
            }
        }
        self.is_calm = true;
        if matches!(self.worker.desired.desired_state, DesiredState::Run) {
            self.settle()?;
            self.request_termination();
            self.step()?;
            if self.rng.percent(50) {
                // A grace period that becomes shorter.
                self.request_termination();
            }
        }
        let timeout_at = self.node.now + 1200 * SECOND;
        loop {
            let made = self.step()?;
            if made.stage == PodStage::Finished {
                break;
            }
            if self.node.now > timeout_at {
                return Err(format!("does not end: {:?} {:?}", made.stage, made.waiting_on));
            }
        }
        if !self.node.containers.is_empty() || !self.node.sandboxes.is_empty() {
            return Err("finished, and something is left".to_owned());
        }
        let again = plan(&self.worker.view(&self.node));
        if again.actions.is_empty() {
            Ok(())
        } else {
            Err(format!("not quiet: {:?}", again.actions))
        }
    }

    fn request_termination(&mut self) {
        let grace_seconds = self.rng.percent(50).then(|| self.rng.below(20) as i64);
        let requested_at = ApiTime::from_nanos(self.node.now);
        let cause = TerminationCause::ManifestRemoved;
        let desired_state = DesiredState::End(TerminationRequest {
            cause,
            is_removal: true,
            grace_seconds,
            requested_at,
        });
        self.worker.desired_state(&self.node, desired_state);
    }

    /// Without faults, the pod reaches its desired state and stays there without another action.
    fn settle(&mut self) -> Result<(), String> {
        for record in &self.node.containers {
            if record.state == ContainerState::Running && !record.name.starts_with("job") {
                self.node.scheduled_exits.remove(&record.id);
            }
        }
        let ids: Vec<String> = self.node.scheduled_exits.keys().cloned().collect();
        for id in ids {
            if let Some(scheduled_exit) = self.node.scheduled_exits.get_mut(&id) {
                scheduled_exit.1 = 0;
            }
        }
        let timeout_at = self.node.now + 3600 * SECOND;
        loop {
            let made = self.step()?;
            let ready = made
                .status
                .condition("Ready")
                .is_some_and(|ready| ready.status == ConditionStatus::True);
            let finished = made.stage == PodStage::Finished;
            if (ready || finished || is_stuck_by_design(&made))
                && made.actions.is_empty()
                && self.worker.doing.is_empty()
            {
                self.worker.look(&self.node);
                let fresh = self.worker.work(&self.node, &mut self.rng);
                if fresh.actions.is_empty() && fresh.status == made.status {
                    return self.stay_quiet(&fresh);
                }
            }
            if self.node.now > timeout_at {
                return Err(format!(
                    "does not settle: {:?} {:?} {:?}",
                    made.stage, made.waiting_on, made.status.container_statuses
                ));
            }
        }
    }

    /// Planning again, and observing again, changes nothing.
    fn stay_quiet(&mut self, settled: &PodPlan) -> Result<(), String> {
        self.node.now += SECOND;
        self.worker.look(&self.node);
        let again = self.worker.work(&self.node, &mut self.rng);
        if !again.actions.is_empty() {
            return Err(format!("not quiet: {:?}", again.actions));
        }
        if again.status != settled.status {
            return Err("the status changes without a cause".to_owned());
        }
        Ok(())
    }

    fn step(&mut self) -> Result<PodPlan, String> {
        let rough = !self.is_calm;
        self.worker.failing = self.fails();
        self.worker.crashing = rough;
        let made = self.worker.work(&self.node, &mut self.rng);
        self.invariants.check(&self.worker, &self.node, &made)?;
        if rough && self.chaos >= Chaos::Kills && self.rng.percent(8) {
            self.kill()?;
        }
        self.move_time(&made);
        let ended = self.worker.advance(&mut self.node, &mut self.rng);
        let changed = self.node.exit_due_containers();
        if self.fails() && self.rng.percent(2) {
            self.break_something();
        }
        if self.rng.percent(30) {
            self.worker.probe(&self.node, &mut self.rng);
        }
        if self.worker.unsaved && self.rng.percent(60) {
            self.worker.save();
        }
        // After an action the pod is always observed; other changes arrive as runtime events, which
        // can be lost or late.
        let event_arrives = !rough || self.chaos == Chaos::None || self.rng.percent(40);
        let relist = self.node.now - self.last_look > 300 * SECOND;
        if ended {
            self.node.now += 1;
        }
        if ended || relist || (changed && event_arrives) || (rough && self.rng.percent(5)) {
            self.worker.look(&self.node);
            self.last_look = self.node.now;
        }
        Ok(made)
    }

    fn fails(&self) -> bool {
        !self.is_calm && self.chaos >= Chaos::Everything
    }

    fn kill(&mut self) -> Result<(), String> {
        let idle = self.worker.doing.is_empty() && self.kills.is_multiple_of(2);
        self.kills += 1;
        if idle {
            self.worker.look(&self.node);
            let made = self.worker.work(&self.node, &mut self.rng);
            if made.actions.is_empty() {
                self.worker.save();
                self.worker.crash(&mut self.node, &mut self.rng);
                return Invariants::check_non_event(&self.worker, &self.node, &made.status);
            }
        }
        if self.worker.unsaved || self.worker.before_start.is_some() {
            self.invariants.forget_times();
        }
        self.worker.crash(&mut self.node, &mut self.rng);
        Ok(())
    }

    /// Advances to the next event, or a little.
    fn move_time(&mut self, made: &PodPlan) {
        let mut next = self.node.now + self.rng.millis(5_000, 60_000);
        let wake_times = self
            .worker
            .doing
            .iter()
            .flat_map(|each| [each.half_at, each.done_at])
            .chain(self.node.scheduled_exits.values().map(|(at, _)| *at))
            .chain(made.wake_at.map(ApiTime::nanos));
        for wake_time in wake_times.filter(|wake_time| *wake_time > self.node.now) {
            next = next.min(wake_time);
        }
        self.node.now = next.max(self.node.now + 1_000_000);
    }

    fn break_something(&mut self) {
        match self.rng.below(3) {
            0 => {
                if let Some(sandbox) = self.node.sandboxes.last().map(|each| each.id.clone()) {
                    self.worker.note(&self.node, "the sandbox dies");
                    self.node.stop_sandbox(&sandbox);
                }
            }
            1 => {
                let running = self
                    .node
                    .containers
                    .iter_mut()
                    .find(|each| each.state == ContainerState::Running);
                if let Some(record) = running {
                    let id = record.id.clone();
                    self.node.end(&id, 139);
                }
            }
            _ => {
                self.worker.facts.runtime_ready = Err("away".to_owned());
                self.worker.work(&self.node, &mut self.rng);
                self.worker.facts.runtime_ready = Ok(());
            }
        }
    }
}

/// A pod that may not be restarted, and has not ended: the reference leaves it so.
fn is_stuck_by_design(made: &PodPlan) -> bool {
    made.waiting_on.as_ref().is_some_and(|waiting| {
        waiting.why.contains("restart policy allows no new one")
            || waiting.why.contains("is not started again")
    })
}
