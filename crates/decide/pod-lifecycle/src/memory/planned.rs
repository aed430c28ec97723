//! Applies an executed plan: its status becomes the last reported one, and changes are emitted as
//! events.

use pod_model::pod::spec::PodPhase;
use pod_model::pod::status::{ConditionStatus, ContainerStatus, PodStatus};
use ports::ApiTime;

use crate::input::{EventType, Milestone};
use crate::plan::{PodPlan, PodStage};
use crate::status_text::{CRASH_LOOP, DEADLINE_REASON, condition, pod_in_messages};

use super::apply_input::InputContext;
use super::events::{about_container, about_pod};
use super::{ConditionMemory, ContainerExit, ContainerMemory, PodMemory, Reported, TerminalStatus};

impl PodMemory {
    pub(super) fn planned(&mut self, input_context: &mut InputContext<'_>, plan: &PodPlan) {
        self.persisted.start_time.get_or_insert(input_context.now.nanos());
        self.record_status(&plan.status, input_context.now);
        self.record_terminal_status(input_context, plan);
        self.persisted.clearing = plan.notes.clearing;
        self.persisted.termination = plan.notes.termination.or(self.persisted.termination);
        self.proposed.clone_from(&plan.notes.back_offs);
        self.emit_waits(input_context, plan);
        self.mark_progress(input_context, plan);
    }

    fn record_status(&mut self, status: &PodStatus, now: ApiTime) {
        for each in &status.conditions {
            let met = each.status == ConditionStatus::True;
            let known = self
                .persisted
                .conditions
                .entry(each.kind.to_string())
                .or_insert(ConditionMemory { met, since: now.nanos() });
            if known.met != met {
                *known = ConditionMemory { met, since: now.nanos() };
            }
        }
        let all = status
            .init_container_statuses
            .iter()
            .chain(&status.container_statuses)
            .chain(&status.ephemeral_container_statuses);
        for each in all {
            self.container_mut(&each.name).report(each);
        }
        if !status.pod_ips.is_empty() {
            self.persisted.pod_ips =
                status.pod_ips.iter().map(|entry| entry.ip.to_string()).collect();
        }
    }

    fn record_terminal_status(&mut self, input_context: &mut InputContext<'_>, plan: &PodPlan) {
        let status = &plan.status;
        if !status.is_terminal() || self.persisted.terminal_status.is_some() {
            return;
        }
        let terminal_status = TerminalStatus {
            failed: status.phase == PodPhase::Failed,
            reason: status.reason.to_string(),
            message: status.message.to_string(),
            disruption: input_context.desired.disruption().cloned(),
        };
        if &*status.reason == DEADLINE_REASON {
            let event =
                about_pod(EventType::Normal, DEADLINE_REASON, terminal_status.message.clone());
            input_context.emitted.events.push(event);
        } else if let Some(rejection) = terminal_status.rejection() {
            input_context.emitted.events.push(about_pod(
                EventType::Warning,
                &terminal_status.reason,
                rejection,
            ));
        }
        self.persisted.terminal_status = Some(terminal_status);
    }

    fn emit_waits(&mut self, input_context: &mut InputContext<'_>, plan: &PodPlan) {
        let notes = &plan.notes;
        let pod = &input_context.desired.pod;
        if let Some(old) = &notes.sandbox_changed
            && self.is_first_report("sandbox".to_owned(), old)
        {
            let text = "Pod sandbox changed, it will be killed and re-created.";
            input_context.emitted.events.push(about_pod(EventType::Normal, "SandboxChanged", text));
        }
        let problems = [
            ("NetworkNotReady", "network is not ready: ", &notes.network_problem),
            ("FailedMount", "Unable to attach or mount volumes: ", &notes.volume_problem),
        ];
        for (reason, prefix, problem) in problems {
            match problem {
                Some(problem) if self.is_first_report(reason.to_owned(), problem) => {
                    let text = format!("{prefix}{problem}");
                    input_context.emitted.events.push(about_pod(EventType::Warning, reason, text));
                }
                Some(_) => {}
                None => {
                    self.emitted.remove(reason);
                }
            }
        }
        for (name, start_blocker) in &notes.start_blockers {
            self.transient_mut(name).shown_start_blocker =
                Some((start_blocker.reason.clone(), start_blocker.message.clone()));
            let what = format!(
                "{} {}",
                start_blocker.reason,
                start_blocker.until.map_or(0, ApiTime::nanos)
            );
            let is_image =
                plan.requirements.images.iter().any(|required| required.container == *name);
            let (reason, text) = if start_blocker.reason == CRASH_LOOP {
                let pod = pod_in_messages(pod);
                let text = format!("Back-off restarting failed container {name} in pod {pod}");
                ("BackOff", text)
            } else if is_image && !start_blocker.reason.ends_with("Error") {
                ("Failed", format!("Error: {}", start_blocker.reason))
            } else {
                continue;
            };
            if self.is_first_report(format!("wait/{name}"), &what) {
                let event = about_container(pod, name, EventType::Warning, reason, text);
                input_context.emitted.events.push(event);
            }
        }
        if notes.overdue && self.is_first_report("overdue".to_owned(), "") {
            let text = "Container runtime did not kill the pod within specified grace period.";
            input_context.emitted.events.push(about_pod(
                EventType::Warning,
                "ExceededGracePeriod",
                text,
            ));
        }
    }

    fn mark_progress(&mut self, input_context: &mut InputContext<'_>, plan: &PodPlan) {
        self.mark(input_context, Milestone::Seen);
        if plan.notes.admitted {
            self.mark(input_context, Milestone::Admitted);
        }
        for required in &plan.requirements.images {
            self.mark(
                input_context,
                Milestone::PullBegan { container: required.container.clone() },
            );
        }
        for name in &plan.notes.images_ready {
            self.mark(input_context, Milestone::ImageReady { container: name.clone() });
        }
        let ready = plan.status.condition(condition::READY);
        if ready.is_some_and(|ready| ready.status == ConditionStatus::True) {
            self.mark(input_context, Milestone::FirstReady);
        }
        if plan.stage >= PodStage::Ending {
            self.mark(input_context, Milestone::TerminationRequested);
        }
        if plan.stage >= PodStage::Ended {
            self.mark(input_context, Milestone::ContainersEnded);
        }
    }
}

impl ContainerMemory {
    /// Records the last reported status of the container.
    pub(super) fn report(&mut self, status: &ContainerStatus) {
        self.restart_count = u32::try_from(status.restart_count).unwrap_or(0);
        self.last_exit = status.last_state.terminated.as_deref().map(ContainerExit::of);
        self.reported = if let Some(terminated) = &status.state.terminated {
            Reported::Exited {
                exit: ContainerExit::of(terminated),
                image: status.image.to_string(),
                image_id: status.image_id.to_string(),
            }
        } else if status.state.running.is_some() {
            Reported::Running { id: status.container_id.to_string() }
        } else {
            Reported::Waiting
        };
    }
}
