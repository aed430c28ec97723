//! Each error alone, and their order.

use super::*;

const MAY_NOT_HAVE_COMPLETED: &str = "container runtime status check may not have completed yet";
const IS_DOWN: &str = "container runtime is down";

fn condition(met: bool, text: &str) -> Option<ObservedRuntimeCondition> {
    Some(ObservedRuntimeCondition { met, text: text.to_owned() })
}

fn conditions(
    ready: Option<ObservedRuntimeCondition>,
    network: Option<ObservedRuntimeCondition>,
) -> Option<ObservedRuntimeConditions> {
    Some(ObservedRuntimeConditions { ready, network })
}

fn last_seen(milliseconds: u64) -> RelistHealth {
    RelistHealth::LastSeen(Duration::from_millis(milliseconds))
}

#[test]
fn each_runtime_error_has_its_message() {
    let well = RuntimeObservation {
        ready_ago: Some(Duration::ZERO),
        conditions: conditions(condition(true, "r"), condition(true, "n")),
        relist: last_seen(0),
    };
    let ready_ago = |seconds| RuntimeObservation {
        ready_ago: Some(Duration::from_secs(seconds)),
        ..well.clone()
    };
    let relist = |relist| RuntimeObservation { relist, ..well.clone() };
    let reported = |ready, network| RuntimeObservation {
        conditions: conditions(ready, network),
        ..well.clone()
    };
    let rows: [(RuntimeObservation, &[&str]); 9] = [
        (well.clone(), &[]),
        (ready_ago(29), &[]),
        (ready_ago(30), &[IS_DOWN]),
        (RuntimeObservation { ready_ago: None, ..well.clone() }, &[MAY_NOT_HAVE_COMPLETED]),
        (
            relist(RelistHealth::NeverListed),
            &["PLEG is not healthy: pleg has yet to be successful"],
        ),
        (relist(last_seen(180_000)), &[]),
        (
            relist(last_seen(186_500)),
            &["PLEG is not healthy: pleg was last seen active 3m6.5s ago; threshold is 3m0s"],
        ),
        (
            reported(
                condition(true, "r"),
                condition(false, "NetworkReady=false reason:R message:m"),
            ),
            &["container runtime network not ready: NetworkReady=false reason:R message:m"],
        ),
        (
            reported(None, None),
            &["container runtime not ready: <nil>", "container runtime network not ready: <nil>"],
        ),
    ];
    for (seen, expected) in rows {
        assert_eq!(runtime_errors(&seen), expected, "{seen:?}");
    }
}

#[test]
fn several_errors_come_in_the_references_order() {
    let unready = || conditions(condition(false, "RuntimeReady=false"), None);
    let rows: [(RuntimeObservation, &[&str]); 3] = [
        (
            RuntimeObservation::default(),
            &[
                MAY_NOT_HAVE_COMPLETED,
                "PLEG is not healthy: pleg has yet to be successful",
                "network state unknown",
            ],
        ),
        (
            RuntimeObservation { conditions: unready(), ..RuntimeObservation::default() },
            &[
                MAY_NOT_HAVE_COMPLETED,
                "PLEG is not healthy: pleg has yet to be successful",
                "container runtime not ready: RuntimeReady=false",
                "container runtime network not ready: <nil>",
            ],
        ),
        (
            RuntimeObservation {
                ready_ago: Some(Duration::from_secs(3600)),
                conditions: unready(),
                relist: last_seen(3_600_000),
            },
            &[
                IS_DOWN,
                "PLEG is not healthy: pleg was last seen active 1h0m0s ago; threshold is 3m0s",
                "container runtime not ready: RuntimeReady=false",
                "container runtime network not ready: <nil>",
            ],
        ),
    ];
    for (seen, expected) in rows {
        assert_eq!(runtime_errors(&seen), expected, "{seen:?}");
    }
}
