//! Tables of merged statuses and of patches.

use pod_model::pod::Timestamp;
use pod_model::pod::spec::PodPhase;
use pod_model::pod::status::{AddressEntry, ConditionStatus, PodCondition, PodStatus};
use serde_json::json;

use super::{external_conditions, merged, status_patch};

fn condition(kind: &str, met: bool, since: i64) -> PodCondition {
    PodCondition {
        kind: kind.into(),
        status: if met { ConditionStatus::True } else { ConditionStatus::False },
        last_transition_time: Some(Timestamp(since)),
        ..PodCondition::default()
    }
}

fn status(phase: PodPhase, conditions: &[PodCondition]) -> PodStatus {
    PodStatus { phase, conditions: conditions.to_vec(), ..PodStatus::default() }
}

fn kinds(status: &PodStatus) -> Vec<(String, bool, i64)> {
    let all = status.conditions.iter();
    all.map(|each| {
        let since = each.last_transition_time.map_or(0, |time| time.0);
        (each.kind.to_string(), each.status == ConditionStatus::True, since)
    })
    .collect()
}

#[test]
fn conditions_of_others_stay_and_owned_ones_keep_their_times() {
    let api = status(
        PodPhase::Running,
        &[
            condition("example.com/gate", true, 1),
            condition("Ready", true, 2),
            condition("PodScheduled", true, 3),
        ],
    );
    let planned = status(
        PodPhase::Running,
        &[
            condition("example.com/gate", false, 9),
            condition("Ready", false, 9),
            condition("PodScheduled", true, 9),
        ],
    );
    let expected = [("example.com/gate", true, 1), ("Ready", false, 9), ("PodScheduled", true, 3)];
    let expected = expected.map(|(kind, met, since)| (kind.to_owned(), met, since));
    assert_eq!(kinds(&merged(&api, &planned, false)), expected);
    assert_eq!(external_conditions(&api).len(), 1);
}

#[test]
fn a_terminal_phase_waits_until_nothing_can_run() {
    use PodPhase::{Failed, Pending, Running, Succeeded};
    let table = [
        (Running, Failed, true, Running),
        (Running, Failed, false, Failed),
        (Pending, Succeeded, true, Pending),
        (Pending, Running, true, Running),
        // A terminal phase is never left, nor changed.
        (Failed, Running, true, Failed),
        (Failed, Succeeded, false, Failed),
        (Succeeded, Pending, false, Succeeded),
    ];
    for (api, planned, may_run, expected) in table {
        let result = merged(&status(api.clone(), &[]), &status(planned.clone(), &[]), may_run);
        assert_eq!(result.phase, expected, "{api:?} then {planned:?}, may run: {may_run}");
    }
}

#[test]
fn a_disruption_is_written_together_with_the_terminal_phase() {
    let api = status(PodPhase::Running, &[]);
    let planned = status(PodPhase::Failed, &[condition("DisruptionTarget", true, 9)]);
    assert_eq!(kinds(&merged(&api, &planned, true)), []);
    assert_eq!(kinds(&merged(&api, &planned, false)), [("DisruptionTarget".to_owned(), true, 9)]);
    let of_another = status(PodPhase::Running, &[condition("DisruptionTarget", true, 1)]);
    let running = status(PodPhase::Running, &[condition("DisruptionTarget", true, 9)]);
    assert_eq!(
        kinds(&merged(&of_another, &running, true)),
        [("DisruptionTarget".to_owned(), true, 1)]
    );
}

#[test]
fn a_terminal_pod_is_not_ready() {
    let api = status(PodPhase::Failed, &[condition("Ready", true, 1)]);
    let planned = status(PodPhase::Failed, &[condition("Ready", true, 1)]);
    let result = merged(&api, &planned, false);
    assert_eq!(
        result.conditions.first().map(|each| (&*each.reason, each.status.clone())),
        Some(("PodFailed", ConditionStatus::False))
    );
}

#[test]
fn the_start_time_and_the_generation_never_go_back() {
    let api = PodStatus {
        start_time: Some(Timestamp(5)),
        observed_generation: 3,
        ..PodStatus::default()
    };
    let planned = PodStatus {
        start_time: Some(Timestamp(8)),
        observed_generation: 2,
        ..PodStatus::default()
    };
    let result = merged(&api, &planned, false);
    assert_eq!((result.start_time, result.observed_generation), (Some(Timestamp(5)), 3));
    let first = merged(&PodStatus::default(), &planned, false);
    assert_eq!((first.start_time, first.observed_generation), (Some(Timestamp(8)), 2));
}

#[test]
fn equal_statuses_need_no_patch() {
    let one = status(PodPhase::Running, &[condition("Ready", true, 1)]);
    assert_eq!(status_patch("uid", &one, &one), None);
}

#[test]
fn a_patch_holds_what_differs_and_the_uid() {
    let before = PodStatus {
        phase: PodPhase::Pending,
        reason: "Old".into(),
        pod_ips: vec![AddressEntry { ip: "10.0.0.1".into() }],
        conditions: vec![condition("Ready", false, 0), condition("Gone", true, 0)],
        ..PodStatus::default()
    };
    let after = PodStatus {
        phase: PodPhase::Running,
        pod_ip: "10.0.0.2".into(),
        pod_ips: vec![AddressEntry { ip: "10.0.0.2".into() }],
        conditions: vec![condition("Ready", true, 0), condition("PodScheduled", true, 0)],
        ..PodStatus::default()
    };
    let expected = json!({
        "metadata": { "uid": "uid-1" },
        "status": {
            "phase": "Running",
            "reason": null,
            "podIP": "10.0.0.2",
            "$setElementOrder/podIPs": [{ "ip": "10.0.0.2" }],
            "podIPs": [{ "ip": "10.0.0.2" }, { "$patch": "delete", "ip": "10.0.0.1" }],
            "$setElementOrder/conditions": [{ "type": "Ready" }, { "type": "PodScheduled" }],
            "conditions": [
                { "type": "Ready", "status": "True" },
                {
                    "type": "PodScheduled", "status": "True", "lastProbeTime": null,
                    "lastTransitionTime": "1970-01-01T00:00:00Z",
                },
                { "$patch": "delete", "type": "Gone" },
            ],
        },
    });
    assert_eq!(status_patch("uid-1", &before, &after), Some(expected));
}
