//! Applies events to the memory.

use ports::ApiTime;
use ports::runtime_objects::ContainerState;

use crate::action::{Action, ActionKey, KillReason};
use crate::input::{EventType, Milestone, PodEffects, PodInput, SaveUrgency};
use crate::oom_kills::OomKillRecords;
use crate::restart;
use crate::time::plus;
use crate::view::{DesiredPod, DesiredState, ObservedPod, PodLifecycleSettings};

use super::events::about_container;
use super::probes::ProbeAttempt;
use super::{ContainerStop, InFlight, PodMemory};

/// The context of one event: time, pod, and the results so far.
pub(super) struct InputContext<'a> {
    pub(super) desired: &'a DesiredPod,
    pub(super) now: ApiTime,
    pub(super) emitted: PodEffects,
}

impl PodMemory {
    /// Applies an event; returns the Kubernetes events and milestones to emit, and whether to save.
    pub fn apply_input(
        &mut self,
        desired: &DesiredPod,
        input: &PodInput<'_>,
        now: ApiTime,
    ) -> PodEffects {
        let before = self.persisted.clone();
        let mut input_context = InputContext { desired, now, emitted: PodEffects::default() };
        match input {
            PodInput::Planned(plan) => self.planned(&mut input_context, plan),
            PodInput::ActionBegun(action) => self.began(&mut input_context, action),
            PodInput::Ended { key, outcome } => self.action_ended(&mut input_context, key, outcome),
            PodInput::Observed(observed) => self.observed(&mut input_context, observed),
            PodInput::Probe { container, container_id, kind, result } => {
                let probe_attempt = ProbeAttempt { container, container_id, kind: *kind, result };
                self.probe(&desired.pod, &probe_attempt, &mut input_context.emitted);
            }
            PodInput::DesiredStateChanged => {
                if matches!(desired.desired_state, DesiredState::End(_)) {
                    self.mark(&mut input_context, Milestone::TerminationRequested);
                }
            }
        }
        let mut emitted = input_context.emitted;
        if before != self.persisted {
            let urgent = before.terminal_status != self.persisted.terminal_status
                || before.termination != self.persisted.termination
                || before.clearing != self.persisted.clearing
                || before.containers.iter().any(|(name, was)| {
                    let is = self.persisted.containers.get(name);
                    is.is_none_or(|is| is.stop != was.stop || is.back_off != was.back_off)
                });
            emitted.save = emitted.save.max(if urgent {
                SaveUrgency::BeforeNextAction
            } else {
                SaveUrgency::Soon
            });
        }
        emitted
    }

    pub(super) fn mark(&mut self, input_context: &mut InputContext<'_>, mark: Milestone) {
        if self.marked.insert(mark.clone()) {
            input_context.emitted.marks.push((input_context.now, mark));
        }
    }

    /// True once for each different `what` on a topic.
    pub(super) fn is_first_report(&mut self, topic: String, what: &str) -> bool {
        if self.emitted.get(&topic).is_some_and(|reported_text| reported_text == what) {
            return false;
        }
        self.emitted.insert(topic, what.to_owned());
        true
    }

    fn began(&mut self, input_context: &mut InputContext<'_>, action: &Action) {
        self.in_flight
            .insert(action.key(), InFlight { action: action.clone(), began_at: input_context.now });
        match action {
            Action::RunSandbox { .. } => self.mark(input_context, Milestone::SandboxBegan),
            Action::StartContainer { name, attempt, .. } => {
                if let Some(back_off) = self.proposed.remove(name) {
                    self.container_mut(name).back_off = Some(back_off);
                }
                let mark = Milestone::CreateBegan { container: name.clone(), attempt: *attempt };
                self.mark(input_context, mark);
            }
            Action::RunPreStop { id, name, limit } => {
                self.record_stop(name, id, plus(input_context.now, *limit));
            }
            Action::StopContainer { id, name, grace, message, replaces, .. } => {
                self.record_stop(name, id, plus(input_context.now, *grace));
                // Now, as its exit may be seen before the stop has ended.
                if comes_back(input_context, action) {
                    self.container_mut(name).killed = Some(id.clone());
                }
                let is_reported = !message.is_empty();
                if is_reported && (!replaces || self.is_first_report(format!("killing/{name}"), id))
                {
                    self.emitted.insert(format!("killing/{name}"), id.clone());
                    let event = about_container(
                        &input_context.desired.pod,
                        name,
                        EventType::Normal,
                        "Killing",
                        message.clone(),
                    );
                    input_context.emitted.events.push(event);
                }
            }
            // What is known only from the record must be saved before it is removed.
            Action::RemoveContainer { .. } if !input_context.desired.is_removal_requested() => {
                input_context.emitted.save = SaveUrgency::BeforeNextAction;
            }
            _ => {}
        }
    }

    /// The first deadline stays, unless a new one is earlier: the grace period only shrinks.
    fn record_stop(&mut self, name: &str, id: &str, deadline: ApiTime) {
        let memory = self.container_mut(name);
        match &mut memory.stop {
            Some(stop) if stop.id == id => stop.deadline = stop.deadline.min(deadline.nanos()),
            _ => {
                memory.stop = Some(ContainerStop {
                    id: id.to_owned(),
                    deadline: deadline.nanos(),
                    hook_done: false,
                });
            }
        }
    }

    fn observed(&mut self, input_context: &mut InputContext<'_>, observed: &ObservedPod) {
        self.record_restart_counts(observed);
        self.track_sandboxes(observed, input_context.now);
        self.persisted
            .stopped_sandboxes
            .retain(|id| observed.sandboxes.iter().any(|sandbox| sandbox.id == *id));
        self.persisted
            .reported_kills
            .retain(|id, _| observed.containers.iter().any(|container| container.record.id == *id));
        for container in &observed.containers {
            let record = &container.record;
            for text in self.unreported_oom_kills(&record.id, &container.oom_kills) {
                let event = about_container(
                    &input_context.desired.pod,
                    &record.name,
                    EventType::Warning,
                    "OOMKilling",
                    text,
                );
                input_context.emitted.events.push(event);
            }
            // A postStart hook may take long: the container is reported started when it is observed
            // running.
            let key = ActionKey::Container(record.name.clone());
            let Some(flight) = self.in_flight.get(&key) else { continue };
            if record.state == ContainerState::Running && flight.started(record) {
                self.emit_started(input_context, &record.name, &record.id);
            }
        }
    }

    /// The kills in this container that were not reported yet; marks them reported.
    fn unreported_oom_kills(&mut self, container_id: &str, kills: &OomKillRecords) -> Vec<String> {
        if kills.is_empty() {
            return Vec::new();
        }
        let emitted = self.persisted.reported_kills.entry(container_id.to_owned()).or_default();
        let dropped = kills.dropped_after(emitted.order);
        let mut messages: Vec<String> =
            crate::status::dropped_kills_message(dropped).into_iter().collect();
        for kill in kills.iter() {
            let (emitted, now) = match kill.unnamed {
                0 => (&mut emitted.order, kill.order),
                count => (&mut emitted.unnamed, count),
            };
            if now > *emitted {
                *emitted = now;
                messages.push(crate::status::oom_kill_message(kill));
            }
        }
        messages
    }

    /// Emits the Created and Started events of a container, once.
    pub(super) fn emit_started(
        &mut self,
        input_context: &mut InputContext<'_>,
        name: &str,
        id: &str,
    ) {
        if !self.is_first_report(format!("started/{name}"), id) {
            return;
        }
        for (reason, text) in [("Created", "Container created"), ("Started", "Container started")] {
            input_context.emitted.events.push(about_container(
                &input_context.desired.pod,
                name,
                EventType::Normal,
                reason,
                text,
            ));
        }
        let attempt = match self.container_in_flight(name).map(|flight| &flight.action) {
            Some(Action::StartContainer { attempt, .. }) => *attempt,
            _ => 0,
        };
        self.mark(input_context, Milestone::Started { container: name.to_owned(), attempt });
    }
}

/// Whether the container starts again after this action: it was stopped for another version of
/// itself, or for a probe and its policy lets it start again.
fn comes_back(input_context: &InputContext<'_>, action: &Action) -> bool {
    let Action::StopContainer { name, reason, .. } = action else { return false };
    match reason {
        KillReason::Changed => true,
        KillReason::LivenessProbe | KillReason::StartupProbe => {
            let pod = &input_context.desired.pod;
            let mut of_pod = pod.spec.all_containers().map(|(_, _, container)| container);
            of_pod.find(|container| *container.name == **name).is_some_and(|container| {
                // With the gate off the API server drops the container's own policy.
                restart::after_kill(container, &pod.spec, &PodLifecycleSettings::default())
            })
        }
        _ => false,
    }
}
