//! The result of a case, as texts by heading.

use std::collections::BTreeMap;

use pod_model::pod::status::{ContainerStateNow, ContainerStatus};
use ports::ApiTime;

use crate::action::Action;
use crate::input::{Milestone, PodEvent};
use crate::plan::PodPlan;

use super::at;

pub(super) fn describe(
    plan: &PodPlan,
    events: &[PodEvent],
    marks: &[(ApiTime, Milestone)],
) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut put = |heading: &str, text: String| found.insert(heading.to_owned(), text);
    let status = &plan.status;
    put("do", plan.actions.iter().map(action).collect::<Vec<_>>().join("; "));
    put("stage", format!("{:?}", plan.stage));
    put("wake", plan.wake_at.map_or("none".to_owned(), relative));
    put("why", plan.waiting_on.as_ref().map_or("none".to_owned(), |it| it.why.clone()));
    put("next", plan.waiting_on.as_ref().map_or("none".to_owned(), |it| it.next_step.clone()));
    put("phase", join_words(&[status.phase.as_str(), &status.reason, &status.message]));
    put("ip", status.pod_ips.iter().map(|entry| &*entry.ip).collect::<Vec<_>>().join(" "));
    put("host", status.host_ips.iter().map(|entry| &*entry.ip).collect::<Vec<_>>().join(" "));
    put("generation", status.observed_generation.to_string());
    let started = status.start_time.map_or(0, |time| time.0);
    put("started", (started - at(0).nanos() / 1_000_000_000).to_string());
    for each in status
        .init_container_statuses
        .iter()
        .chain(&status.container_statuses)
        .chain(&status.ephemeral_container_statuses)
    {
        put(&each.name, container(each));
        put(&format!("{}.last", each.name), state(&each.last_state));
    }
    for (place, each) in status.conditions.iter().enumerate() {
        let twice = status.conditions[..place].iter().any(|other| other.kind == each.kind);
        assert!(!twice, "two conditions {}", each.kind);
        put(&each.kind, join_words(&[each.status.as_str(), &each.reason, &each.message]));
        let since = each.last_transition_time.map_or(0, |time| time.0);
        put(&format!("{}.since", each.kind), (since - at(0).nanos() / 1_000_000_000).to_string());
    }
    let images = plan
        .requirements
        .images
        .iter()
        .map(|required| format!("{}#{}", required.container, required.attempt));
    put("images", images.collect::<Vec<_>>().join(" "));
    put("volumes", plan.requirements.volumes.to_string());
    let probes = plan.requirements.probes.iter().map(|required| {
        let at_once = if required.can_wait { "" } else { "!" };
        format!("{}:{:?}{at_once}", required.container_id, required.kind)
    });
    put("probes", probes.collect::<Vec<_>>().join(" "));
    put("events", events.iter().map(event).collect::<Vec<_>>().join("; "));
    put("marks", marks.iter().map(|(_, mark)| format!("{mark:?}")).collect::<Vec<_>>().join("; "));
    found
}

fn join_words(parts: &[&str]) -> String {
    parts.iter().filter(|part| !part.is_empty()).copied().collect::<Vec<_>>().join(" ")
}

fn relative(time: ApiTime) -> String {
    let nanos = time.nanos() - at(0).nanos();
    if nanos % 1_000_000_000 == 0 {
        return format!("{}", nanos / 1_000_000_000);
    }
    format!("{:.3}", f64::from(i32::try_from(nanos / 1_000_000).unwrap_or(0)) / 1000.0)
}

pub(crate) fn event(event: &PodEvent) -> String {
    let about = event.field_path.as_deref().unwrap_or("pod");
    format!("{:?} {} {about} {}", event.kind, event.reason, event.message)
}

pub(crate) fn action(action: &Action) -> String {
    match action {
        Action::PreparePod => "prepare".to_owned(),
        Action::RunSandbox { attempt } => format!("sandbox {attempt}"),
        Action::StopSandbox { id } => format!("stop-sandbox {id}"),
        Action::RemoveSandbox { id } => format!("remove-sandbox {id}"),
        Action::StartContainer { name, attempt, sandbox_id, target_id, .. } => {
            let target = target_id.as_ref().map_or(String::new(), |id| format!(" target={id}"));
            format!("start {name}#{attempt} in {sandbox_id}{target}")
        }
        Action::RunPreStop { id, limit, .. } => format!("hook {id} {}", limit.as_secs()),
        Action::StopContainer { id, grace, pre_stop, reason, replaces, .. } => {
            let hook = if *pre_stop { " with-hook" } else { "" };
            let replaces = if *replaces { " replaces" } else { "" };
            format!("stop {id} {} {reason:?}{hook}{replaces}", grace.as_secs())
        }
        Action::RemoveContainer { id, keep_logs, .. } => {
            format!("remove {id}{}", if *keep_logs { " keep-logs" } else { "" })
        }
        Action::CleanUpPod { forget } => {
            format!("cleanup{}", if *forget { " all" } else { "" })
        }
    }
}

fn container(status: &ContainerStatus) -> String {
    let mut text = state(&status.state);
    text.push_str(&format!(" r{}", status.restart_count));
    if status.started == Some(true) {
        text.push_str(" started");
    }
    if status.ready {
        text.push_str(" ready");
    }
    text
}

fn state(state: &ContainerStateNow) -> String {
    if let Some(waiting) = &state.waiting {
        return join_words(&["waiting", &waiting.reason, &waiting.message]);
    }
    if let Some(ended) = &state.terminated {
        let code = ended.exit_code.to_string();
        return join_words(&["ended", &code, &ended.reason, &ended.message]);
    }
    if state.running.is_some() { "running".to_owned() } else { "none".to_owned() }
}
