//! The written form against what the reference writes.

use super::*;

#[test]
fn a_time_that_is_not_known_is_null_and_states_are_always_there() {
    let status = ContainerStatus {
        name: "web".into(),
        state: ContainerStateNow {
            terminated: Some(Box::new(ContainerTerminated {
                exit_code: 137,
                ..Default::default()
            })),
            ..Default::default()
        },
        ..Default::default()
    };
    assert_eq!(
        written(&status),
        "{name:web,state:{terminated:{exitCode:137,startedAt:null,finishedAt:null}},lastState:{},\
         ready:false,restartCount:0,image:,imageID:}"
    );
}

#[test]
fn an_empty_status_writes_nothing() {
    assert_eq!(written(&PodStatus::default()), "{}");
}

#[test]
fn a_condition_writes_its_probe_time_as_null() {
    let condition = PodCondition {
        kind: "Ready".into(),
        status: ConditionStatus::True,
        last_transition_time: Some(Timestamp(0)),
        ..Default::default()
    };
    assert_eq!(
        written(&condition),
        "{type:Ready,status:True,lastProbeTime:null,lastTransitionTime:1970-01-01T00:00:00Z}"
    );
}

#[test]
fn containers_of_all_kinds_are_found_by_name() {
    let named = |name: &str| ContainerStatus { name: name.into(), ..Default::default() };
    let status = PodStatus {
        init_container_statuses: vec![named("a")],
        container_statuses: vec![named("b")],
        ephemeral_container_statuses: vec![named("c")],
        ..Default::default()
    };
    for name in ["a", "b", "c"] {
        assert_eq!(status.container(name).map(|found| &*found.name), Some(name));
    }
    assert!(status.container("d").is_none());
}

#[test]
fn terminal_phases() {
    for (phase, terminal) in [
        (PodPhase::Pending, false),
        (PodPhase::Running, false),
        (PodPhase::Unknown, false),
        (PodPhase::Succeeded, true),
        (PodPhase::Failed, true),
    ] {
        assert_eq!(PodStatus { phase, ..Default::default() }.is_terminal(), terminal);
    }
}

/// JSON without its quotes, which is enough to compare.
fn written(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap().replace('"', "")
}
