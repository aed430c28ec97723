//! Applies events to the memory.

use ports::ApiTime;
use ports::runtime_objects::ContainerState;

use crate::action::{Action, ActionKey};
use crate::happening::{EventKind, Happening, Mark, Save, Told};
use crate::kill_notes::MemoryKillNotes;
use crate::time::plus;
use crate::view::{DesiredPod, ObservedPod, Wish};

use super::events::about_container;
use super::probes::Tried;
use super::{InFlight, PodMemory, Stop};

/// The context of one event: time, pod, and the results so far.
pub(super) struct Moment<'a> {
    pub(super) desired: &'a DesiredPod,
    pub(super) now: ApiTime,
    pub(super) told: Told,
}

impl PodMemory {
    /// Applies an event; returns the Kubernetes events and milestones to emit, and whether to save.
    pub fn absorb(
        &mut self,
        desired: &DesiredPod,
        happening: &Happening<'_>,
        now: ApiTime,
    ) -> Told {
        let before = self.kept.clone();
        let mut moment = Moment { desired, now, told: Told::default() };
        match happening {
            Happening::Planned(plan) => self.planned(&mut moment, plan),
            Happening::Began(action) => self.began(&mut moment, action),
            Happening::Ended { key, outcome } => self.ended(&mut moment, key, outcome),
            Happening::Observed(observed) => self.observed(&mut moment, observed),
            Happening::Probe { container, container_id, kind, result } => {
                let tried = Tried { container, container_id, kind: *kind, result };
                self.probe(&desired.pod, &tried, &mut moment.told);
            }
            Happening::WishChanged => {
                if matches!(desired.wish, Wish::End(_)) {
                    self.mark(&mut moment, Mark::EndAsked);
                }
            }
        }
        let mut told = moment.told;
        if before != self.kept {
            let urgent = before.verdict != self.kept.verdict
                || before.ending != self.kept.ending
                || before.clearing != self.kept.clearing
                || before.containers.iter().any(|(name, was)| {
                    let is = self.kept.containers.get(name);
                    is.is_none_or(|is| is.stop != was.stop || is.back_off != was.back_off)
                });
            told.save = told.save.max(if urgent { Save::BeforeGoingOn } else { Save::Soon });
        }
        told
    }

    pub(super) fn mark(&mut self, moment: &mut Moment<'_>, mark: Mark) {
        if self.marked.insert(mark.clone()) {
            moment.told.marks.push((moment.now, mark));
        }
    }

    /// True once for each different `what` on a topic.
    pub(super) fn is_news(&mut self, topic: String, what: &str) -> bool {
        if self.told.get(&topic).is_some_and(|said| said == what) {
            return false;
        }
        self.told.insert(topic, what.to_owned());
        true
    }

    fn began(&mut self, moment: &mut Moment<'_>, action: &Action) {
        self.in_flight
            .insert(action.key(), InFlight { action: action.clone(), began_at: moment.now });
        match action {
            Action::RunSandbox { .. } => self.mark(moment, Mark::SandboxBegan),
            Action::StartContainer { name, attempt, .. } => {
                if let Some(back_off) = self.proposed.remove(name) {
                    self.container_mut(name).back_off = Some(back_off);
                }
                let mark = Mark::CreateBegan { container: name.clone(), attempt: *attempt };
                self.mark(moment, mark);
            }
            Action::RunPreStop { id, name, limit } => {
                self.remember_stop(name, id, plus(moment.now, *limit));
            }
            Action::StopContainer { id, name, grace, message, replaces, .. } => {
                self.remember_stop(name, id, plus(moment.now, *grace));
                let tells = !message.is_empty();
                if tells && (!replaces || self.is_news(format!("killing/{name}"), id)) {
                    self.told.insert(format!("killing/{name}"), id.clone());
                    let event = about_container(
                        &moment.desired.pod,
                        name,
                        EventKind::Normal,
                        "Killing",
                        message.clone(),
                    );
                    moment.told.events.push(event);
                }
            }
            // What is known only from the record must be saved before it is removed.
            Action::RemoveContainer { .. } if !moment.desired.is_wished_away() => {
                moment.told.save = Save::BeforeGoingOn;
            }
            _ => {}
        }
    }

    /// The first deadline stays, unless a new one is earlier: the grace period only shrinks.
    fn remember_stop(&mut self, name: &str, id: &str, deadline: ApiTime) {
        let memory = self.container_mut(name);
        match &mut memory.stop {
            Some(stop) if stop.id == id => stop.deadline = stop.deadline.min(deadline.nanos()),
            _ => {
                memory.stop =
                    Some(Stop { id: id.to_owned(), deadline: deadline.nanos(), hook_done: false });
            }
        }
    }

    fn observed(&mut self, moment: &mut Moment<'_>, observed: &ObservedPod) {
        self.remember_numbers(observed);
        self.note_sandboxes(observed, moment.now);
        self.kept
            .stopped_sandboxes
            .retain(|id| observed.sandboxes.iter().any(|sandbox| sandbox.id == *id));
        self.kept
            .kills_told
            .retain(|id, _| observed.containers.iter().any(|container| container.record.id == *id));
        for container in &observed.containers {
            let record = &container.record;
            for text in self.news_of_kills(&record.id, &container.memory_kills) {
                let event = about_container(
                    &moment.desired.pod,
                    &record.name,
                    EventKind::Warning,
                    "OOMKilling",
                    text,
                );
                moment.told.events.push(event);
            }
            // A postStart hook may take long: the container is reported started when it is observed
            // running.
            let key = ActionKey::Container(record.name.clone());
            let Some(flight) = self.in_flight.get(&key) else { continue };
            if record.state == ContainerState::Running && flight.started(record) {
                self.tell_started(moment, &record.name, &record.id);
            }
        }
    }

    /// The kills in this container that were not reported yet; marks them reported.
    fn news_of_kills(&mut self, container_id: &str, kills: &MemoryKillNotes) -> Vec<String> {
        if kills.is_empty() {
            return Vec::new();
        }
        let told = self.kept.kills_told.entry(container_id.to_owned()).or_default();
        let dropped = kills.dropped_after(told.order);
        let mut news: Vec<String> =
            crate::status::dropped_kills_sentence(dropped).into_iter().collect();
        for kill in kills.iter() {
            let (told, now) = match kill.unnamed {
                0 => (&mut told.order, kill.order),
                count => (&mut told.unnamed, count),
            };
            if now > *told {
                *told = now;
                news.push(crate::status::memory_kill_sentence(kill));
            }
        }
        news
    }

    /// Emits the Created and Started events of a container, once.
    pub(super) fn tell_started(&mut self, moment: &mut Moment<'_>, name: &str, id: &str) {
        if !self.is_news(format!("started/{name}"), id) {
            return;
        }
        for (reason, text) in [("Created", "Container created"), ("Started", "Container started")] {
            moment.told.events.push(about_container(
                &moment.desired.pod,
                name,
                EventKind::Normal,
                reason,
                text,
            ));
        }
        let attempt = match self.is_busy_with_container(name).map(|flight| &flight.action) {
            Some(Action::StartContainer { attempt, .. }) => *attempt,
            _ => 0,
        };
        self.mark(moment, Mark::Started { container: name.to_owned(), attempt });
    }
}
