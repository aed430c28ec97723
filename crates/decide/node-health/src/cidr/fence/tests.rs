//! Which nodes delay pod CIDRs, for how long, and how often each is retried.

use super::*;

fn at(seconds: i64) -> ControllerTime {
    ControllerTime::from_secs(seconds)
}

fn around(nodes: &[u32]) -> Fence {
    Fence::around(at(0), nodes.iter().copied().map(NodeId))
}

/// Gives every fence write to node 1 this outcome; returns the seconds of the attempts and when the
/// node was abandoned.
fn tried(outcomes: impl Fn(i64) -> TouchOutcome, until: i64) -> (Vec<i64>, Option<i64>) {
    let mut fence = around(&[1]);
    let mut seconds = Vec::new();
    for second in 0..until {
        // An immediate retry happens in the same second.
        while !fence.due(at(second)).is_empty() {
            seconds.push(second);
            match fence.touched(at(second), NodeId(1), outcomes(second)) {
                TouchEffect::Again => {}
                TouchEffect::Abandoned => return (seconds, Some(second)),
                TouchEffect::Passed => return (seconds, None),
            }
        }
    }
    (seconds, None)
}

#[test]
fn an_empty_fence_is_open() {
    let mut fence = around(&[]);
    assert!(!fence.stands() && !fence.has_opened() && fence.outlook().is_none());
    assert_eq!((fence.due(at(9)), fence.next_wake()), (Vec::new(), None));
    assert_eq!(fence.touched(at(9), NodeId(1), TouchOutcome::Refused), TouchEffect::Passed);
}

#[test]
fn a_node_that_has_passed_is_not_retried() {
    let mut fence = around(&[1, 2]);
    assert_eq!(fence.next_wake(), Some(at(0)));
    fence.passes(NodeId(1));
    fence.passes(NodeId(2));
    assert_eq!(fence.next_wake(), None);
}

#[test]
fn the_fence_opens_when_the_last_node_has_passed() {
    let mut fence = around(&[1, 2, 3, 4]);
    assert_eq!(fence.next_wake(), Some(at(0)));
    assert_eq!(fence.due(at(0)), [1, 2, 3, 4].map(NodeId));
    assert_eq!(
        (fence.due(at(50)), fence.next_wake()),
        (Vec::new(), None),
        "all writes are in flight"
    );
    assert_eq!(fence.touched(at(1), NodeId(1), TouchOutcome::Changed), TouchEffect::Passed);
    assert!(!fence.awaits(NodeId(1)) && fence.awaits(NodeId(2)));
    fence.passes(NodeId(2));
    assert_eq!(fence.touched(at(1), NodeId(3), TouchOutcome::NoResponse), TouchEffect::Again);
    fence.passes(NodeId(3));
    assert_eq!(fence.next_wake(), None, "a node that has passed is not retried");
    assert!(fence.stands() && !fence.has_opened());
    fence.passes(NodeId(4));
    assert!(!fence.stands());
    assert!(fence.has_opened() && !fence.has_opened(), "reported once");
    assert_eq!(fence.touched(at(2), NodeId(4), TouchOutcome::Refused), TouchEffect::Passed);
    assert!(!fence.stands(), "a late outcome does not close the fence again");
}

#[test]
fn retries_back_off_and_end_with_the_timeout() {
    let refused = |_| TouchOutcome::Refused;
    let (tries, abandoned_at) = tried(refused, 1_000);
    assert_eq!(tries[..7], [0, 1, 3, 7, 15, 30, 45]);
    assert_eq!(abandoned_at, Some(120));

    // A conflict is retried at once, on the version read since; but only so often.
    let (tries, abandoned_at) = tried(|_| TouchOutcome::Outdated, 1_000);
    assert_eq!(tries[..7], [0, 0, 0, 0, 0, 15, 30]);
    assert_eq!(abandoned_at, Some(120));

    // While there is no response at all, the fence waits without a limit.
    let (tries, abandoned_at) = tried(|_| TouchOutcome::NoResponse, 10_000);
    assert!(tries.len() > 600 && abandoned_at.is_none(), "{}", tries.len());

    // No response restarts the timeout.
    let refused_then_silent =
        |second| if second < 110 { refused(second) } else { TouchOutcome::NoResponse };
    assert_eq!(tried(refused_then_silent, 10_000).1, None);
    let interrupted =
        |second| if second == 60 { TouchOutcome::NoResponse } else { TouchOutcome::Refused };
    assert_eq!(tried(interrupted, 1_000).1, Some(195));

    // An accepted write ends it at any time.
    let late = |second| if second < 100 { TouchOutcome::Refused } else { TouchOutcome::Changed };
    assert_eq!(tried(late, 1_000), (vec![0, 1, 3, 7, 15, 30, 45, 60, 75, 90, 105], None));
}

#[test]
fn a_fence_summary_counts_nodes_and_failures() {
    let mut fence = around(&[1, 2, 3]);
    let outlook =
        |left, failing, grace_ends_at| Some(FenceSummary { left, failing, grace_ends_at });
    assert_eq!(fence.outlook(), outlook(3, 0, None));
    fence.due(at(0));
    fence.touched(at(1), NodeId(1), TouchOutcome::NoResponse);
    assert_eq!(fence.outlook(), outlook(3, 1, None));
    fence.touched(at(5), NodeId(2), TouchOutcome::Refused);
    fence.touched(at(6), NodeId(3), TouchOutcome::Changed);
    assert_eq!(fence.outlook(), outlook(2, 2, Some(at(125))));
}
