//! Applies the outcome of an action to the memory.

use std::collections::BTreeMap;
use std::time::Duration;

use pod_model::pod::Pod;
use ports::ApiTime;

use crate::action::{Action, ActionKey};
use crate::back_off::fnv64;
use crate::input::{ActionOutcome, EventType, Milestone, StartFailure, StartStage};
use crate::time::plus;
use crate::view::DesiredState;

use super::apply_input::InputContext;
use super::events::{about_container, about_pod};
use super::{ActionFailure, InFlight, PodMemory, SavedStartFailure};

const RETRY_AFTER: Duration = Duration::from_secs(10);
const RETRY_SPREAD_MILLIS: u64 = 5000;
/// The longest retry delay after a failed start.
pub(super) const MAX_START_RETRY_DELAY: Duration =
    RETRY_AFTER.saturating_add(Duration::from_millis(RETRY_SPREAD_MILLIS));

impl PodMemory {
    /// Removes the action in flight. An empty map is dropped, since nothing is in flight for most
    /// of a pod's life and a map keeps its capacity.
    fn take_in_flight(&mut self, key: &ActionKey) -> Option<InFlight> {
        let flight = self.in_flight.remove(key);
        if self.in_flight.is_empty() {
            self.in_flight = BTreeMap::new();
        }
        flight
    }

    pub(super) fn action_ended(
        &mut self,
        input_context: &mut InputContext<'_>,
        key: &ActionKey,
        outcome: &ActionOutcome,
    ) {
        let last = self.last_end.entry(key.clone()).or_insert(input_context.now);
        *last = (*last).max(input_context.now);
        // An outcome of an action that is not in flight is a duplicate.
        let Some(flight) = self.take_in_flight(key) else { return };
        let failure = match outcome {
            ActionOutcome::Done(Err(message)) | ActionOutcome::SandboxRun(Err(message)) => {
                Some(message)
            }
            ActionOutcome::ContainerStopped { result: Err(message), .. } => Some(message),
            _ => None,
        };
        match failure {
            Some(message) => {
                let retry_at = retry_at(&input_context.desired.pod, key, input_context.now);
                self.failures
                    .insert(key.clone(), ActionFailure { message: message.clone(), retry_at });
                self.emit_failure(input_context, &flight.action, message);
            }
            None => {
                self.failures.remove(key);
            }
        }
        match (&flight.action, outcome) {
            (Action::StartContainer { name, .. }, ActionOutcome::ContainerStarted(Ok(id))) => {
                self.in_flight.insert(key.clone(), flight.clone());
                self.emit_started(input_context, name, id);
                self.take_in_flight(key);
                let memory = self.container_mut(name);
                memory.start_failure = None;
                memory.stop = None;
                let transient = self.transient_mut(name);
                transient.shown_start_blocker = None;
                transient.stop_done = None;
            }
            (
                Action::StartContainer { name, .. },
                ActionOutcome::ContainerStarted(Err(failure)),
            ) => {
                self.start_failed(input_context, name, failure);
            }
            (_, ActionOutcome::ContainerStopped { hook_failed, result }) => {
                self.stopped(input_context, &flight.action, *hook_failed, result.is_ok());
            }
            (action, ActionOutcome::Done(Ok(()))) => self.done(input_context, action),
            (_, ActionOutcome::SandboxRun(Ok(_))) => {
                self.mark(input_context, Milestone::SandboxRan);
            }
            _ => {}
        }
    }

    fn done(&mut self, input_context: &mut InputContext<'_>, action: &Action) {
        match action {
            Action::PreparePod => self.prepared = true,
            Action::StopSandbox { id } => {
                self.persisted.stopped_sandboxes.insert(id.clone());
            }
            Action::CleanUpPod { forget } => {
                self.prepared = false;
                self.persisted.cleaned = Some(*forget || self.persisted.cleaned == Some(true));
                self.mark(input_context, Milestone::CleanedUp);
            }
            _ => {}
        }
    }

    fn start_failed(
        &mut self,
        input_context: &mut InputContext<'_>,
        name: &str,
        failure: &StartFailure,
    ) {
        let pod = &input_context.desired.pod;
        let mut warn = |reason: &str, text: String| {
            input_context.emitted.events.push(about_container(
                pod,
                name,
                EventType::Warning,
                reason,
                text,
            ));
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
                input_context.emitted.events.push(about_container(
                    pod,
                    name,
                    EventType::Normal,
                    "Created",
                    created,
                ));
                input_context.emitted.events.push(about_container(
                    pod,
                    name,
                    EventType::Warning,
                    "Failed",
                    error,
                ));
                "RunContainerError"
            }
            StartStage::PostStart => {
                if let Some(id) = &failure.id {
                    self.emit_started(input_context, name, id);
                }
                // The text is fixed: the output of a hook may hold secrets.
                let text = "PostStartHook failed";
                let event =
                    about_container(pod, name, EventType::Warning, "FailedPostStartHook", text);
                input_context.emitted.events.push(event);
                "PostStartHookError"
            }
        };
        let hook = failure.stage == StartStage::PostStart;
        let key = ActionKey::Container(name.to_owned());
        let memory = self.container_mut(name);
        memory.start_failure = Some(SavedStartFailure {
            reason: reason.to_owned(),
            message: failure.message.clone(),
            retry_at: (!hook).then(|| retry_at(pod, &key, input_context.now).nanos()),
        });
        memory.stop = None;
        if hook {
            memory.post_start_failed.clone_from(&failure.id);
        }
        self.transient_mut(name).stop_done = None;
    }

    fn stopped(
        &mut self,
        input_context: &mut InputContext<'_>,
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
                &input_context.desired.pod,
                name,
                EventType::Warning,
                "FailedPreStopHook",
                text,
            );
            input_context.emitted.events.push(event);
        }
        let memory = self.container_mut(name);
        if let Some(stop) = memory.stop.as_mut().filter(|stop| stop.id == *id) {
            stop.hook_done = true;
        }
        if let Action::StopContainer { .. } = action
            && succeeded
        {
            self.transient_mut(name).stop_done = Some((id.clone(), input_context.now));
        }
    }

    fn emit_failure(
        &mut self,
        input_context: &mut InputContext<'_>,
        action: &Action,
        message: &str,
    ) {
        let termination = matches!(input_context.desired.desired_state, DesiredState::End(_))
            || self.persisted.termination.is_some();
        let (reason, text) = match action {
            Action::PreparePod => (
                "FailedCreatePodContainer",
                format!("unable to ensure pod container exists: {message}"),
            ),
            Action::RunSandbox { .. } if !termination => {
                ("FailedCreatePodSandBox", format!("Failed to create pod sandbox: {message}"))
            }
            Action::StopContainer { .. } | Action::StopSandbox { .. } if termination => {
                ("FailedKillPod", format!("error killing pod: {message}"))
            }
            _ => return,
        };
        input_context.emitted.events.push(about_pod(EventType::Warning, reason, text));
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
