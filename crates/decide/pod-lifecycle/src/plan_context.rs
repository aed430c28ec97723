//! A view with the predicates that the rules share.
//!
//! Everything here is derived from the view alone and changes nothing.

use std::time::Duration;

use pod_model::GoDuration;
use pod_model::pod::{Container, Pod};
use ports::ApiTime;
use ports::runtime_objects::{ContainerRecord, ContainerState};

use crate::action::{Action, ActionKey, ContainerKind};
use crate::back_off::{self, StartTiming};
use crate::containers_by_name::{ContainersByName, restart_count};
use crate::memory::{ContainerMemory, Reported, Transient};
use crate::restart;
use crate::sandbox;
use crate::status::has_succeeded;
use crate::status_text::{CRASH_LOOP, condition, pod_in_messages};
use crate::time::{plus, seconds};
use crate::view::{Admission, DesiredState, ImageState, PodLifecycleSettings, PodView};

#[derive(Debug)]
pub(crate) struct PlanContext<'a> {
    pub(crate) view: PodView<'a>,
    pub(crate) pod: &'a Pod,
    pub(crate) containers_by_name: ContainersByName<'a>,
    pub(crate) settings: &'a PodLifecycleSettings,
    /// The pod is terminating: nothing may be started.
    pub(crate) over: bool,
}

/// Why a container that should run is waiting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StartBlocker {
    pub(crate) reason: String,
    pub(crate) message: String,
    /// When it is retried, where that is known.
    pub(crate) until: Option<ApiTime>,
}

impl<'a> PlanContext<'a> {
    pub(crate) fn new(view: &PodView<'a>) -> Self {
        let mut plan_context = Self {
            view: *view,
            pod: &view.desired.pod,
            containers_by_name: ContainersByName::new(view.observed),
            settings: &view.facts.settings,
            over: false,
        };
        let persisted = &view.memory.persisted;
        plan_context.over = matches!(view.desired.desired_state, DesiredState::End(_))
            || persisted.termination.is_some()
            || view.facts.external_end.is_some()
            || matches!(view.facts.admission, Admission::Rejected { .. })
            || plan_context.is_past_deadline();
        plan_context
    }

    pub(crate) fn memory(&self, name: &str) -> Option<&'a ContainerMemory> {
        self.view.memory.container(name)
    }

    pub(crate) fn transient(&self, name: &str) -> Option<&'a Transient> {
        self.view.memory.transient.get(name).map(Box::as_ref)
    }

    pub(crate) fn start_time(&self) -> ApiTime {
        self.view.memory.persisted.start_time.map_or(self.view.now, ApiTime::from_nanos)
    }

    /// When `activeDeadlineSeconds` expires.
    pub(crate) fn active_deadline(&self) -> Option<ApiTime> {
        let most = self.pod.spec.active_deadline_seconds?;
        self.view.memory.persisted.start_time?;
        Some(plus(self.start_time(), seconds(most)))
    }

    pub(crate) fn is_past_deadline(&self) -> bool {
        self.active_deadline().is_some_and(|deadline| self.view.now >= deadline)
    }

    /// Whether a container that does not run should.
    pub(crate) fn should_start(&self, container: &Container) -> bool {
        if self.over {
            return false;
        }
        let Some(record) = self.containers_by_name.latest(&container.name) else { return true };
        match record.state {
            ContainerState::Running => false,
            ContainerState::Created | ContainerState::Unknown => true,
            ContainerState::Exited => {
                self.was_killed_to_restart(record)
                    || restart::after_exit(
                        container,
                        &self.pod.spec,
                        record.exit_code,
                        self.settings,
                    )
            }
        }
    }

    /// Whether we killed this container in order to start it again: its policy, which is about
    /// exits of its own, does not apply.
    ///
    /// upstream: kuberuntime_manager.go (computePodActions starts what it kills for a change of
    /// the specification, or for a probe unless the policy is Never)
    pub(crate) fn was_killed_to_restart(&self, record: &ContainerRecord) -> bool {
        self.memory(&record.name)
            .is_some_and(|memory| memory.killed.as_deref() == Some(&*record.id))
    }

    /// Whether a regular container that exited in an earlier sandbox starts again in the new one,
    /// whatever its own policy: only one that must succeed once and has is done. After init
    /// containers its policy applies, as in the reference.
    ///
    /// upstream: kuberuntime_manager.go (computePodActions)
    pub(crate) fn restarts_in_new_sandbox(&self, container: &Container) -> bool {
        let spec = &self.pod.spec;
        let Some(record) = self.containers_by_name.latest(&container.name) else { return false };
        let here = sandbox::active(self.view.observed).map(|sandbox| sandbox.id.as_str());
        !self.over
            && spec.init_containers.is_empty()
            && restart::pod_restarts(spec)
            && record.state == ContainerState::Exited
            && here != Some(record.sandbox_id.as_str())
            && !(restart::runs_until_success(container, spec, self.settings)
                && has_succeeded(record))
    }

    /// Whether all containers are to be stopped, removed and started anew.
    pub(crate) fn restarts_all(&self) -> bool {
        if self.over || !self.settings.restart_all {
            return false;
        }
        let begun = self
            .view
            .memory
            .persisted
            .conditions
            .get(condition::ALL_RESTARTING)
            .is_some_and(|condition| condition.met);
        begun
            || self.own_containers().any(|container| {
                self.containers_by_name.latest(&container.name).is_some_and(|record| {
                    record.state == ContainerState::Exited
                        && restart::restarts_all(container, record.exit_code, self.settings)
                })
            })
    }

    /// Whether the runtime has no init and no regular container of the pod.
    pub(crate) fn is_cleared(&self) -> bool {
        self.own_containers()
            .all(|container| self.containers_by_name.latest(&container.name).is_none())
    }

    /// Init and regular containers of the specification.
    pub(crate) fn own_containers(&self) -> impl Iterator<Item = &'a Container> {
        self.pod.spec.init_containers.iter().chain(&self.pod.spec.containers)
    }

    pub(crate) fn has_started(&self, container: &Container, record: &ContainerRecord) -> bool {
        record.state == ContainerState::Running
            && !self.is_post_start_pending(container, record)
            && (container.startup_probe.is_none()
                || self
                    .memory(&container.name)
                    .is_some_and(|memory| memory.startup_passed.as_deref() == Some(&*record.id)))
    }

    /// Whether it runs and its postStart hook has not succeeded: until then it does not count as
    /// running, and is not probed; where the hook failed it never does (upstream: startContainer
    /// returns after the hook, and after the kill that follows a failed one).
    pub(crate) fn is_post_start_pending(
        &self,
        container: &Container,
        record: &ContainerRecord,
    ) -> bool {
        record.state == ContainerState::Running
            && (self.is_in_post_start(container, record) || self.failed_post_start(record))
    }

    /// Whether its start is in flight and may be waiting for its postStart hook.
    pub(crate) fn is_in_post_start(&self, container: &Container, record: &ContainerRecord) -> bool {
        let hook = container.lifecycle.as_ref().and_then(|each| each.post_start.as_ref());
        let flight = self.view.memory.container_in_flight(&container.name);
        hook.is_some() && flight.is_some_and(|flight| flight.started(record))
    }

    pub(crate) fn failed_post_start(&self, record: &ContainerRecord) -> bool {
        self.memory(&record.name)
            .is_some_and(|memory| memory.post_start_failed.as_deref() == Some(&*record.id))
    }

    pub(crate) fn is_ready(&self, container: &Container, record: &ContainerRecord) -> bool {
        self.has_started(container, record)
            && (container.readiness_probe.is_none()
                || self
                    .memory(&container.name)
                    .and_then(|memory| memory.readiness.as_ref())
                    .is_some_and(|(id, ready)| *id == record.id && *ready))
    }

    /// The attempt number of the next start of a container: one that was never used.
    pub(crate) fn next_attempt(&self, name: &str) -> u32 {
        let memory = self.memory(name);
        let after = |used: u32| used.saturating_add(1);
        let known = memory.and_then(|memory| memory.highest).map(after);
        if let Some(record) = self.containers_by_name.latest(name) {
            let count = restart_count(record);
            // One that was created and never started has not used its number.
            let unused = record.state == ContainerState::Created;
            return known.unwrap_or(0).max(if unused { count } else { after(count) });
        }
        if let Some(known) = known {
            return known;
        }
        match memory.map(|memory| (&memory.reported, memory.restart_count)) {
            // Its record is gone: removed by garbage collection, or lost.
            Some((Reported::Exited { .. } | Reported::Running { .. }, count)) => after(count),
            // No start is known, but logs of an earlier attempt may exist.
            other => {
                let logs = self
                    .view
                    .facts
                    .highest_log_numbers
                    .get(name)
                    .map_or(0, |number| after(*number));
                logs.max(other.map_or(0, |(_, count)| count))
            }
        }
    }

    pub(crate) fn start_timing(&self, container: &Container) -> StartTiming {
        let memory = self.memory(&container.name);
        back_off::start_timing(
            container,
            &self.containers_by_name,
            memory,
            self.settings,
            self.view.now,
        )
    }

    pub(crate) fn is_starting(&self, name: &str) -> bool {
        self.view
            .memory
            .container_in_flight(name)
            .is_some_and(|flight| matches!(flight.action, Action::StartContainer { .. }))
    }

    /// Whether its last start succeeded and the runtime was not looked at since: what is known of
    /// it is from before.
    fn has_just_started(&self, name: &str) -> bool {
        let memory = self.view.memory;
        memory
            .last_action_end(&ActionKey::Container(name.to_owned()))
            .is_some_and(|end| self.view.observed.as_of <= end)
            && self.memory(name).is_some_and(|each| each.start_failure.is_none())
    }

    /// Why a container that should start is waiting.
    pub(crate) fn start_blocker(&self, container: &Container) -> Option<StartBlocker> {
        let memory = self.memory(&container.name);
        if self.is_starting(&container.name) || self.has_just_started(&container.name) {
            // The cause is over, but the outcome is not known yet.
            let (reason, message) = self.transient(&container.name)?.shown_start_blocker.clone()?;
            return Some(StartBlocker { reason, message, until: None });
        }
        if let StartTiming::Wait { until, delay } = self.start_timing(container) {
            let message = format!(
                "back-off {} restarting failed container={} pod={}",
                go_duration(delay),
                container.name,
                pod_in_messages(self.pod)
            );
            let reason = CRASH_LOOP.to_owned();
            return Some(StartBlocker { reason, message, until: Some(until) });
        }
        if let Some(failed) = self.image_failure(&container.name) {
            return Some(failed);
        }
        let failure = memory?.start_failure.as_ref()?;
        Some(StartBlocker {
            reason: failure.reason.clone(),
            message: failure.message.clone(),
            until: failure.retry_at.map(ApiTime::from_nanos).filter(|at| *at > self.view.now),
        })
    }

    /// Whether a start has failed and the next is not due yet.
    pub(crate) fn is_waiting_to_retry(&self, name: &str) -> bool {
        let failure = self.memory(name).and_then(|memory| memory.start_failure.as_ref());
        let retry_at = failure.and_then(|failure| failure.retry_at).map(ApiTime::from_nanos);
        retry_at.is_some_and(|at| at > self.view.now)
    }

    pub(crate) fn image_state(&self, name: &str) -> Option<&'a ImageState> {
        let fact = self.view.facts.images.get(name)?;
        (fact.attempt == self.next_attempt(name)).then_some(&fact.state)
    }

    fn image_failure(&self, name: &str) -> Option<StartBlocker> {
        let ImageState::Failed { reason, message, retry_at } = self.image_state(name)? else {
            return None;
        };
        Some(StartBlocker { reason: reason.clone(), message: message.clone(), until: *retry_at })
    }

    /// Whether the container may still run: it is running, or its state is unknown.
    pub(crate) fn may_be_running(&self, record: &ContainerRecord) -> bool {
        match record.state {
            ContainerState::Running => true,
            ContainerState::Unknown => !self.was_stopped(record),
            ContainerState::Created | ContainerState::Exited => false,
        }
    }

    /// Whether the runtime reported this one stopped.
    pub(crate) fn was_stopped(&self, record: &ContainerRecord) -> bool {
        self.transient(&record.name)
            .and_then(|transient| transient.stop_done.as_ref())
            .is_some_and(|(id, _)| *id == record.id)
    }

    /// Whether no container runs, and none is being started.
    pub(crate) fn is_stopped(&self) -> bool {
        !self
            .containers_by_name
            .everything()
            .any(|container| self.may_be_running(&container.record))
            && !self.view.memory.in_flight.values().any(|flight| {
                matches!(
                    flight.action,
                    Action::StartContainer { .. } | Action::StopContainer { .. }
                )
            })
    }
}

/// Kinds that must be ready for the pod to be ready.
pub(crate) fn counts_for_readiness(kind: ContainerKind) -> bool {
    matches!(kind, ContainerKind::Sidecar | ContainerKind::Regular)
}

/// As Go writes it: `10s`, `1m20s`, `5m0s`.
pub(crate) fn go_duration(duration: Duration) -> String {
    GoDuration::from_nanos(i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)).to_string()
}
