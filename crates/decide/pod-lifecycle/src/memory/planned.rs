//! Applies an executed plan: its status becomes the last reported one, and changes are emitted as
//! events.

use pod_model::pod::spec::PodPhase;
use pod_model::pod::status::{ConditionStatus, ContainerStatus, PodStatus};
use ports::ApiTime;

use crate::happening::{EventKind, Mark};
use crate::plan::{PodPlan, Stage};
use crate::words::{CRASH_LOOP, DEADLINE_REASON, condition, pod_in_messages};

use super::absorb::Moment;
use super::events::{about_container, about_pod};
use super::{ConditionMemory, ContainerMemory, Exit, PodMemory, Reported, Verdict};

impl PodMemory {
    pub(super) fn planned(&mut self, moment: &mut Moment<'_>, plan: &PodPlan) {
        self.kept.start_time.get_or_insert(moment.now.nanos());
        self.remember_status(&plan.status, moment.now);
        self.judge(moment, plan);
        self.kept.clearing = plan.notes.clearing;
        self.kept.ending = plan.notes.ending.or(self.kept.ending);
        self.proposed.clone_from(&plan.notes.back_offs);
        self.tell_waits(moment, plan);
        self.mark_progress(moment, plan);
    }

    fn remember_status(&mut self, status: &PodStatus, now: ApiTime) {
        for each in &status.conditions {
            let met = each.status == ConditionStatus::True;
            let known = self
                .kept
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
            self.kept.pod_ips = status.pod_ips.iter().map(|entry| entry.ip.to_string()).collect();
        }
    }

    fn judge(&mut self, moment: &mut Moment<'_>, plan: &PodPlan) {
        let status = &plan.status;
        if !status.is_terminal() || self.kept.verdict.is_some() {
            return;
        }
        let verdict = Verdict {
            failed: status.phase == PodPhase::Failed,
            reason: status.reason.to_string(),
            message: status.message.to_string(),
            disruption: moment.desired.disruption().cloned(),
        };
        if &*status.reason == DEADLINE_REASON {
            let event = about_pod(EventKind::Normal, DEADLINE_REASON, verdict.message.clone());
            moment.told.events.push(event);
        } else if let Some(rejection) = verdict.rejection() {
            moment.told.events.push(about_pod(EventKind::Warning, &verdict.reason, rejection));
        }
        self.kept.verdict = Some(verdict);
    }

    fn tell_waits(&mut self, moment: &mut Moment<'_>, plan: &PodPlan) {
        let notes = &plan.notes;
        let pod = &moment.desired.pod;
        if let Some(old) = &notes.sandbox_changed
            && self.is_news("sandbox".to_owned(), old)
        {
            let text = "Pod sandbox changed, it will be killed and re-created.";
            moment.told.events.push(about_pod(EventKind::Normal, "SandboxChanged", text));
        }
        let problems = [
            ("NetworkNotReady", "network is not ready: ", &notes.network_problem),
            ("FailedMount", "Unable to attach or mount volumes: ", &notes.volume_problem),
        ];
        for (reason, prefix, problem) in problems {
            match problem {
                Some(problem) if self.is_news(reason.to_owned(), problem) => {
                    let text = format!("{prefix}{problem}");
                    moment.told.events.push(about_pod(EventKind::Warning, reason, text));
                }
                Some(_) => {}
                None => {
                    self.told.remove(reason);
                }
            }
        }
        for (name, trouble) in &notes.troubles {
            self.passing_mut(name).shown_trouble =
                Some((trouble.reason.clone(), trouble.message.clone()));
            let what = format!("{} {}", trouble.reason, trouble.until.map_or(0, ApiTime::nanos));
            let is_image = plan.wants.images.iter().any(|want| want.container == *name);
            let (reason, text) = if trouble.reason == CRASH_LOOP {
                let pod = pod_in_messages(pod);
                let text = format!("Back-off restarting failed container {name} in pod {pod}");
                ("BackOff", text)
            } else if is_image && !trouble.reason.ends_with("Error") {
                ("Failed", format!("Error: {}", trouble.reason))
            } else {
                continue;
            };
            if self.is_news(format!("wait/{name}"), &what) {
                let event = about_container(pod, name, EventKind::Warning, reason, text);
                moment.told.events.push(event);
            }
        }
        if notes.overdue && self.is_news("overdue".to_owned(), "") {
            let text = "Container runtime did not kill the pod within specified grace period.";
            moment.told.events.push(about_pod(EventKind::Warning, "ExceededGracePeriod", text));
        }
    }

    fn mark_progress(&mut self, moment: &mut Moment<'_>, plan: &PodPlan) {
        self.mark(moment, Mark::Seen);
        if plan.notes.admitted {
            self.mark(moment, Mark::Admitted);
        }
        for want in &plan.wants.images {
            self.mark(moment, Mark::PullBegan { container: want.container.clone() });
        }
        for name in &plan.notes.images_ready {
            self.mark(moment, Mark::ImageReady { container: name.clone() });
        }
        let ready = plan.status.condition(condition::READY);
        if ready.is_some_and(|ready| ready.status == ConditionStatus::True) {
            self.mark(moment, Mark::FirstReady);
        }
        if plan.stage >= Stage::Ending {
            self.mark(moment, Mark::EndAsked);
        }
        if plan.stage >= Stage::Ended {
            self.mark(moment, Mark::ContainersEnded);
        }
    }
}

impl ContainerMemory {
    /// Records the last reported status of the container.
    fn report(&mut self, status: &ContainerStatus) {
        self.restart_count = u32::try_from(status.restart_count).unwrap_or(0);
        self.last_exit = status.last_state.terminated.as_deref().map(Exit::of);
        self.reported = if let Some(ended) = &status.state.terminated {
            Reported::Exited {
                exit: Exit::of(ended),
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
