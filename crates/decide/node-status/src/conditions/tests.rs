//! Conditions, their times and their events.

use super::*;
use crate::object::NodePressure;

const NOW: ApiTime = ApiTime::from_nanos(2_000_000_000);
const BEFORE: ApiTime = ApiTime::from_nanos(1_000_000_000);

fn settings() -> NodeSettings {
    NodeSettings { node_name: "n1".to_owned(), ..NodeSettings::default() }
}

fn with_capacity() -> FullNodeStatus {
    let zero = pod_model::Quantity::ZERO;
    let capacity = [CPU, MEMORY, PODS].map(|name| (name.to_owned(), zero));
    FullNodeStatus { capacity: capacity.into(), ..FullNodeStatus::default() }
}

fn reasons(events: &[NodeStatusEvent]) -> Vec<&str> {
    events.iter().map(|event| event.reason).collect()
}

#[test]
fn a_new_node_gets_four_conditions_with_ready_last_and_three_events() {
    let mut status = with_capacity();
    let events = fill(&mut status, &settings(), &NodeStatusInputs::default(), NOW);
    let shown: Vec<String> = status
        .conditions
        .iter()
        .map(|one| format!("{}={} {}: {}", one.kind, one.status, one.reason, one.message))
        .collect();
    assert_eq!(
        shown,
        [
            "MemoryPressure=False KubeletHasSufficientMemory: kubelet has sufficient memory available",
            "DiskPressure=False KubeletHasNoDiskPressure: kubelet has no disk pressure",
            "PIDPressure=False KubeletHasSufficientPID: kubelet has sufficient PID available",
            "Ready=True KubeletReady: kubelet is posting ready status",
        ]
    );
    assert_eq!(
        reasons(&events),
        ["NodeHasSufficientMemory", "NodeHasNoDiskPressure", "NodeHasSufficientPID"]
    );
    assert_eq!(events[0].message, "Node n1 status is now: NodeHasSufficientMemory");
}

#[test]
fn only_a_change_of_status_moves_the_time_of_transition_and_makes_an_event() {
    let mut status = with_capacity();
    fill(&mut status, &settings(), &NodeStatusInputs::default(), BEFORE);
    let cause = ConditionCause { reason: "Other", message: "set by others" };
    let foreign = condition("NetworkUnavailable", "False", cause, BEFORE);
    status.conditions.insert(0, foreign.clone());
    // (facts, events, types of the conditions whose transition is now)
    let pressed = |pressure| NodeStatusInputs { pressure, ..NodeStatusInputs::default() };
    let none = NodePressure::default();
    let rows: [(NodeStatusInputs, &[&str], &[&str]); 5] = [
        (NodeStatusInputs::default(), &[], &[]),
        (
            pressed(NodePressure { memory: true, ..none }),
            &["NodeHasInsufficientMemory"],
            &["MemoryPressure"],
        ),
        (pressed(NodePressure { disk: true, ..none }), &["NodeHasDiskPressure"], &["DiskPressure"]),
        (
            pressed(NodePressure { pid: true, ..none }),
            &["NodeHasInsufficientPID"],
            &["PIDPressure"],
        ),
        (
            NodeStatusInputs {
                errors: vec!["runtime is down".to_owned()],
                ..NodeStatusInputs::default()
            },
            &["NodeNotReady"],
            &["Ready"],
        ),
    ];
    for (facts, events, moved) in rows {
        let mut after = status.clone();
        let found = fill(&mut after, &settings(), &facts, NOW);
        assert_eq!(reasons(&found), events);
        assert_eq!(after.conditions[0], foreign);
        assert_eq!(after.conditions.last().map(|one| one.kind.as_str()), Some(READY));
        let now: Vec<&str> = after.conditions[1..]
            .iter()
            .filter(|one| one.last_transition_time == Some(NOW))
            .map(|one| one.kind.as_str())
            .collect();
        assert_eq!(now, moved);
        let beats = after.conditions[1..].iter().all(|one| one.last_heartbeat_time == Some(NOW));
        assert!(beats, "{after:?}");
        // And back again, with the events of getting well.
        let back = fill(&mut after, &settings(), &NodeStatusInputs::default(), NOW);
        assert_eq!(back.len(), events.len());
    }
}

#[test]
fn ready_lists_every_error_once_and_missing_capacity() {
    // (errors, warning, counts local storage, message)
    let rows: &[(&[&str], Option<&str>, bool, &str)] = &[
        (&["a"], None, false, "a"),
        (&["a", "b", "a"], None, false, "[a, b]"),
        (&[], None, true, "missing node capacity for resources: ephemeral-storage"),
        (&["a"], None, true, "[a, missing node capacity for resources: ephemeral-storage]"),
        (&[], Some("w"), false, "kubelet is posting ready status. WARNING: w"),
        (&["a"], Some("w"), false, "a. WARNING: w"),
    ];
    for (errors, warning, counts_local_storage, message) in rows {
        let facts = NodeStatusInputs {
            errors: errors.iter().map(|error| (*error).to_owned()).collect(),
            warning: warning.map(ToOwned::to_owned),
            ..NodeStatusInputs::default()
        };
        let settings = NodeSettings { counts_local_storage: *counts_local_storage, ..settings() };
        let mut status = with_capacity();
        fill(&mut status, &settings, &facts, NOW);
        let ready = find(&status.conditions, READY).expect("Ready");
        assert_eq!(ready.message, *message);
        let healthy = errors.is_empty() && !counts_local_storage;
        assert_eq!(ready.status, if healthy { "True" } else { "False" });
        assert_eq!(ready.reason, if healthy { "KubeletReady" } else { "KubeletNotReady" });
    }
}
