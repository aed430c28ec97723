//! Applies the outcome of an action to the memory.

use std::collections::BTreeMap;
use std::time::Duration;

use pod_model::pod::Pod;
use ports::ApiTime;

use crate::action::{Action, ActionKey, KillReason};
use crate::back_off::fnv64;
use crate::happening::{EventKind, Mark, Outcome, StartFailure, StartStage};
use crate::time::plus;
use crate::view::Wish;

use super::absorb::Moment;
use super::events::{about_container, about_pod};
use super::{Failure, InFlight, PodMemory, StartTrouble};

const RETRY_AFTER: Duration = Duration::from_secs(10);
const RETRY_SPREAD_MILLIS: u64 = 5000;
/// The longest retry delay after a failed start.
pub(super) const LONGEST_RETRY: Duration =
    RETRY_AFTER.saturating_add(Duration::from_millis(RETRY_SPREAD_MILLIS));

impl PodMemory {
    /// Removes the action in flight. An empty map is dropped, since nothing is in flight for most
    /// of a pod's life and a map keeps its capacity.
    fn landed(&mut self, key: &ActionKey) -> Option<InFlight> {
        let flight = self.in_flight.remove(key);
        if self.in_flight.is_empty() {
            self.in_flight = BTreeMap::new();
        }
        flight
    }

    pub(super) fn ended(&mut self, moment: &mut Moment<'_>, key: &ActionKey, outcome: &Outcome) {
        let last = self.last_end.entry(key.clone()).or_insert(moment.now);
        *last = (*last).max(moment.now);
        // An outcome of an action that is not in flight is a duplicate.
        let Some(flight) = self.landed(key) else { return };
        let failure = match outcome {
            Outcome::Done(Err(message)) | Outcome::SandboxRun(Err(message)) => Some(message),
            Outcome::ContainerStopped { result: Err(message), .. } => Some(message),
            _ => None,
        };
        match failure {
            Some(message) => {
                let retry_at = retry_at(&moment.desired.pod, key, moment.now);
                self.failures.insert(key.clone(), Failure { message: message.clone(), retry_at });
                self.tell_failure(moment, &flight.action, message);
            }
            None => {
                self.failures.remove(key);
            }
        }
        match (&flight.action, outcome) {
            (Action::StartContainer { name, .. }, Outcome::ContainerStarted(Ok(id))) => {
                self.in_flight.insert(key.clone(), flight.clone());
                self.tell_started(moment, name, id);
                self.landed(key);
                let memory = self.container_mut(name);
                memory.start_failure = None;
                memory.stop = None;
                let passing = self.passing_mut(name);
                passing.shown_trouble = None;
                passing.stop_done = None;
            }
            (Action::StartContainer { name, .. }, Outcome::ContainerStarted(Err(failure))) => {
                self.start_failed(moment, name, failure);
            }
            (_, Outcome::ContainerStopped { hook_failed, result }) => {
                self.stopped(moment, &flight.action, *hook_failed, result.is_ok());
            }
            (action, Outcome::Done(Ok(()))) => self.done(moment, action),
            (_, Outcome::SandboxRun(Ok(_))) => self.mark(moment, Mark::SandboxRan),
            _ => {}
        }
    }

    fn done(&mut self, moment: &mut Moment<'_>, action: &Action) {
        match action {
            Action::PreparePod => self.prepared = true,
            Action::StopSandbox { id } => {
                self.kept.stopped_sandboxes.insert(id.clone());
            }
            Action::CleanUpPod { forget } => {
                self.prepared = false;
                self.kept.cleaned = Some(*forget || self.kept.cleaned == Some(true));
                self.mark(moment, Mark::CleanedUp);
            }
            _ => {}
        }
    }

    fn start_failed(&mut self, moment: &mut Moment<'_>, name: &str, failure: &StartFailure) {
        let pod = &moment.desired.pod;
        let mut warn = |reason: &str, text: String| {
            moment.told.events.push(about_container(pod, name, EventKind::Warning, reason, text));
        };
        let error = format!("Error: {}", failure.message);
        let reason = match failure.stage {
            StartStage::Config => {
                warn("Failed", error);
                "CreateContainerConfigError"
            }
            StartStage::Create => {
                warn("Failed", error);
                "CreateContainerError"
            }
            StartStage::Start => {
                let created = "Container created";
                moment.told.events.push(about_container(
                    pod,
                    name,
                    EventKind::Normal,
                    "Created",
                    created,
                ));
                moment.told.events.push(about_container(
                    pod,
                    name,
                    EventKind::Warning,
                    "Failed",
                    error,
                ));
                "RunContainerError"
            }
            StartStage::PostStart => {
                if let Some(id) = &failure.id {
                    self.tell_started(moment, name, id);
                }
                // The text is fixed: the output of a hook may hold secrets.
                let text = "PostStartHook failed";
                let event =
                    about_container(pod, name, EventKind::Warning, "FailedPostStartHook", text);
                moment.told.events.push(event);
                "PostStartHookError"
            }
        };
        let hook = failure.stage == StartStage::PostStart;
        let key = ActionKey::Container(name.to_owned());
        let memory = self.container_mut(name);
        memory.start_failure = Some(StartTrouble {
            reason: reason.to_owned(),
            message: failure.message.clone(),
            retry_at: (!hook).then(|| retry_at(pod, &key, moment.now).nanos()),
        });
        memory.stop = None;
        if hook {
            memory.post_start_failed.clone_from(&failure.id);
        }
        self.passing_mut(name).stop_done = None;
    }

    fn stopped(
        &mut self,
        moment: &mut Moment<'_>,
        action: &Action,
        hook_failed: bool,
        succeeded: bool,
    ) {
        let (Action::RunPreStop { name, id, .. } | Action::StopContainer { name, id, .. }) = action
        else {
            return;
        };
        if hook_failed {
            let text = "PreStopHook failed";
            let event = about_container(
                &moment.desired.pod,
                name,
                EventKind::Warning,
                "FailedPreStopHook",
                text,
            );
            moment.told.events.push(event);
        }
        let memory = self.container_mut(name);
        if let Some(stop) = memory.stop.as_mut().filter(|stop| stop.id == *id) {
            stop.hook_done = true;
        }
        if let Action::StopContainer { reason, .. } = action
            && succeeded
        {
            let comes_back = matches!(
                reason,
                KillReason::LivenessProbe | KillReason::StartupProbe | KillReason::Changed
            );
            if comes_back {
                memory.killed = Some(id.clone());
            }
            self.passing_mut(name).stop_done = Some((id.clone(), moment.now));
        }
    }

    fn tell_failure(&mut self, moment: &mut Moment<'_>, action: &Action, message: &str) {
        let ending = matches!(moment.desired.wish, Wish::End(_)) || self.kept.ending.is_some();
        let (reason, text) = match action {
            Action::PreparePod => (
                "FailedCreatePodContainer",
                format!("unable to ensure pod container exists: {message}"),
            ),
            Action::RunSandbox { .. } if !ending => {
                ("FailedCreatePodSandBox", format!("Failed to create pod sandbox: {message}"))
            }
            Action::StopContainer { .. } | Action::StopSandbox { .. } if ending => {
                ("FailedKillPod", format!("error killing pod: {message}"))
            }
            _ => return,
        };
        moment.told.events.push(about_pod(EventKind::Warning, reason, text));
    }
}

/// Ten to fifteen seconds from now; the jitter is fixed per pod and container.
fn retry_at(pod: &Pod, key: &ActionKey, now: ApiTime) -> ApiTime {
    let about = match key {
        ActionKey::Pod => "",
        ActionKey::Sandbox => "/",
        ActionKey::Container(name) => name,
    };
    let spread = fnv64(&[&pod.metadata.uid, about]) % RETRY_SPREAD_MILLIS;
    plus(now, RETRY_AFTER + Duration::from_millis(spread))
}
