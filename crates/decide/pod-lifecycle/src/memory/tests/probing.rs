//! Consecutive results and thresholds, and the events of probes.

use pod_model::pod::handler::Probe;
use std::sync::Arc;

use crate::input::{PodInput, ProbeKind, ProbeResult, SaveUrgency};
use crate::testing::PlanCase;

/// Letters are results: `s`uccess, `f`ailure, `w`arning, `u`nknown.
fn after(kind: ProbeKind, success: i32, failure: i32, letters: &str) -> (PlanCase, Vec<String>) {
    let mut case =
        PlanCase::read("pod: Always app:web(live,ready,startup)\nseen: s0; web#0 running");
    let mut pod = (*case.desired.pod).clone();
    let probe =
        Probe { success_threshold: success, failure_threshold: failure, ..Probe::default() };
    let container = &mut pod.spec.containers[0];
    container.liveness_probe = Some(Box::new(probe.clone()));
    container.readiness_probe = Some(Box::new(probe.clone()));
    container.startup_probe = Some(Box::new(probe));
    case.desired.pod = Arc::new(pod);
    let mut events = Vec::new();
    for letter in letters.chars() {
        let result = match letter {
            's' => ProbeResult::Success,
            'f' => ProbeResult::Failure("it said no".to_owned()),
            'w' => ProbeResult::Warning("odd".to_owned()),
            _ => ProbeResult::Unknown("no answer".to_owned()),
        };
        let input = PodInput::Probe {
            container: "web".to_owned(),
            container_id: "web0".to_owned(),
            kind,
            result,
        };
        let emitted = case.memory.apply_input(&case.desired.clone(), &input, case.now);
        events.extend(
            emitted.events.iter().map(|event| format!("{} {}", event.reason, event.message)),
        );
    }
    (case, events)
}

#[test]
fn verdicts_need_as_many_in_a_row_as_their_threshold() {
    /// (kind, success threshold, failure threshold, results, verdict)
    const ROWS: &[(ProbeKind, i32, i32, &str, &str)] = &[
        (ProbeKind::Readiness, 1, 3, "", "unknown"),
        (ProbeKind::Readiness, 1, 3, "s", "ready"),
        (ProbeKind::Readiness, 2, 3, "s", "unknown"),
        (ProbeKind::Readiness, 2, 3, "ss", "ready"),
        (ProbeKind::Readiness, 2, 3, "sfs", "unknown"),
        (ProbeKind::Readiness, 1, 3, "sff", "ready"),
        (ProbeKind::Readiness, 1, 3, "sfff", "unready"),
        (ProbeKind::Readiness, 1, 3, "sffsff", "ready"),
        (ProbeKind::Readiness, 1, 1, "sfsf", "unready"),
        (ProbeKind::Readiness, 1, 3, "sffuf", "unready"),
        (ProbeKind::Readiness, 1, 3, "w", "ready"),
        (ProbeKind::Readiness, 0, 0, "f", "unready"),
        (ProbeKind::Readiness, 1, 1, "fs", "ready"),
        (ProbeKind::Liveness, 1, 3, "ff", "unknown"),
        (ProbeKind::Liveness, 1, 3, "fff", "failed"),
        (ProbeKind::Liveness, 1, 3, "ffsff", "unknown"),
        (ProbeKind::Liveness, 1, 3, "fffsss", "failed"),
        (ProbeKind::Liveness, 1, 1, "f", "failed"),
        (ProbeKind::Startup, 1, 3, "s", "started"),
        (ProbeKind::Startup, 1, 3, "ffs", "started"),
        (ProbeKind::Startup, 1, 3, "fff", "failed"),
        (ProbeKind::Startup, 1, 3, "ffuf", "failed"),
        (ProbeKind::Startup, 1, 3, "sfff", "started"),
        (ProbeKind::Startup, 1, 3, "fffs", "failed"),
        (ProbeKind::Startup, 1, 3, "uuuu", "unknown"),
    ];
    for (kind, success, failure, letters, expected) in ROWS {
        let (case, _) = after(*kind, *success, *failure, letters);
        let memory = case.memory.container("web").cloned().unwrap_or_default();
        let found = if memory.failed_probe.is_some() {
            "failed"
        } else if memory.startup_passed.is_some() {
            "started"
        } else {
            match memory.readiness {
                Some((_, true)) => "ready",
                Some((_, false)) => "unready",
                None => "unknown",
            }
        };
        assert_eq!(found, *expected, "{kind:?} {success} {failure} {letters}");
    }
}

#[test]
fn events_of_probes() {
    for (kind, letters, expected) in [
        (ProbeKind::Liveness, "f", "Unhealthy Liveness probe failed: it said no"),
        (ProbeKind::Readiness, "f", "Unhealthy Readiness probe failed: it said no"),
        (ProbeKind::Startup, "f", "Unhealthy Startup probe failed: it said no"),
        (ProbeKind::Liveness, "w", "ProbeWarning Liveness probe warning: odd"),
        (
            ProbeKind::Readiness,
            "u",
            "Unhealthy Readiness probe errored and resulted in unknown state: no answer",
        ),
        (ProbeKind::Liveness, "s", ""),
    ] {
        let (_, events) = after(kind, 1, 3, letters);
        assert_eq!(events.join("; "), expected);
    }
}

#[test]
fn a_new_container_begins_anew() {
    let (mut case, _) = after(ProbeKind::Liveness, 1, 3, "ff");
    let input = |id: &str| PodInput::Probe {
        container: "web".to_owned(),
        container_id: id.to_owned(),
        kind: ProbeKind::Liveness,
        result: ProbeResult::Failure(String::new()),
    };
    let desired = case.desired.clone();
    case.memory.apply_input(&desired, &input("web1"), case.now);
    let failed = case.memory.container("web").and_then(|memory| memory.failed_probe.clone());
    assert_eq!(failed, None);
    case.memory.apply_input(&desired, &input("web1"), case.now);
    case.memory.apply_input(&desired, &input("web1"), case.now);
    let failed = case.memory.container("web").unwrap().failed_probe.clone();
    assert_eq!(failed, Some(("web1".to_owned(), ProbeKind::Liveness)));
}

#[test]
fn a_container_after_one_that_failed_can_fail_too() {
    let (mut case, _) = after(ProbeKind::Liveness, 1, 1, "f");
    let input = PodInput::Probe {
        container: "web".to_owned(),
        container_id: "web1".to_owned(),
        kind: ProbeKind::Liveness,
        result: ProbeResult::Failure(String::new()),
    };
    case.memory.apply_input(&case.desired.clone(), &input, case.now);
    let failed = case.memory.container("web").unwrap().failed_probe.clone();
    assert_eq!(failed, Some(("web1".to_owned(), ProbeKind::Liveness)));
}

#[test]
fn a_started_container_can_still_fail_its_liveness_probe() {
    let (mut case, _) = after(ProbeKind::Startup, 1, 1, "s");
    let input = PodInput::Probe {
        container: "web".to_owned(),
        container_id: "web0".to_owned(),
        kind: ProbeKind::Liveness,
        result: ProbeResult::Failure(String::new()),
    };
    case.memory.apply_input(&case.desired.clone(), &input, case.now);
    let memory = case.memory.container("web").unwrap();
    assert_eq!(memory.startup_passed.as_deref(), Some("web0"));
    assert_eq!(memory.failed_probe, Some(("web0".to_owned(), ProbeKind::Liveness)));
}

#[test]
fn only_a_changed_probe_result_is_saved() {
    let (mut case, _) = after(ProbeKind::Readiness, 1, 3, "s");
    let input = |result| PodInput::Probe {
        container: "web".to_owned(),
        container_id: "web0".to_owned(),
        kind: ProbeKind::Readiness,
        result,
    };
    let desired = case.desired.clone();
    let mut saves = Vec::new();
    for result in [
        ProbeResult::Success,
        ProbeResult::Failure(String::new()),
        ProbeResult::Failure(String::new()),
        ProbeResult::Failure(String::new()),
        ProbeResult::Failure(String::new()),
    ] {
        saves.push(case.memory.apply_input(&desired, &input(result), case.now).save);
    }
    assert_eq!(
        saves,
        [SaveUrgency::Not, SaveUrgency::Not, SaveUrgency::Not, SaveUrgency::Soon, SaveUrgency::Not]
    );
}

#[test]
fn a_probe_that_the_pod_does_not_have_is_no_probe() {
    let mut case = PlanCase::read("pod: Always app:web\nseen: s0; web#0 running");
    let before = case.memory.clone();
    let input = PodInput::Probe {
        container: "web".to_owned(),
        container_id: "web0".to_owned(),
        kind: ProbeKind::Liveness,
        result: ProbeResult::Failure(String::new()),
    };
    let emitted = case.memory.apply_input(&case.desired.clone(), &input, case.now);
    assert!(emitted.events.is_empty());
    assert_eq!(case.memory, before);
}

#[test]
fn readiness_goes_on_while_a_container_that_failed_is_stopped() {
    let (mut case, _) = after(ProbeKind::Liveness, 1, 1, "f");
    let input = PodInput::Probe {
        container: "web".to_owned(),
        container_id: "web0".to_owned(),
        kind: ProbeKind::Readiness,
        result: ProbeResult::Failure(String::new()),
    };
    case.memory.apply_input(&case.desired.clone(), &input, case.now);
    let readiness = case.memory.container("web").unwrap().readiness.clone();
    assert_eq!(readiness, Some(("web0".to_owned(), false)));
}
