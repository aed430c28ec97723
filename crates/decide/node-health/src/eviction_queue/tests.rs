//! Eviction tokens: the first at once, then one per interval; rate changes never create a token.

use std::time::Duration;

use proptest::prelude::*;

use super::*;

const A: ZoneId = ZoneId(0);
const B: ZoneId = ZoneId(1);

fn at(seconds: i64) -> ControllerTime {
    ControllerTime::from_secs(seconds)
}

fn queue() -> EvictionQueue {
    EvictionQueue::new(EvictionRate::per_second(0.1))
}

fn drain(queue: &mut EvictionQueue, now: ControllerTime) -> Vec<u32> {
    let mut taken = Vec::new();
    while let Some((_, node)) = queue.due(now) {
        queue.take(node, now);
        taken.push(node.0);
    }
    taken
}

#[test]
fn one_at_once_then_one_per_interval_in_order() {
    let mut queue = queue();
    for (number, instant) in [(7, 0), (3, 1), (5, 1)] {
        queue.join(A, NodeId(number), at(instant));
    }
    assert_eq!(drain(&mut queue, at(1)), [7]);
    assert_eq!((queue.next_wake(), queue.is_empty()), (Some(at(11)), false));
    assert_eq!(drain(&mut queue, at(10)), [0; 0]);
    assert_eq!(drain(&mut queue, at(11)), [3]);
    assert_eq!(drain(&mut queue, at(500)), [5], "turns are not saved up");
    assert_eq!((queue.next_wake(), queue.is_empty()), (None, true));
}

#[test]
fn zones_do_not_wait_for_each_other() {
    let mut queue = queue();
    for node in 0..4 {
        queue.join(if node < 2 { A } else { B }, NodeId(node), at(0));
    }
    assert_eq!(drain(&mut queue, at(0)), [0, 2]);
    assert_eq!(drain(&mut queue, at(10)), [1, 3]);
}

#[test]
fn joining_and_leaving() {
    let mut queue = queue();
    queue.join(A, NodeId(1), at(0));
    queue.join(A, NodeId(2), at(1));
    queue.join(A, NodeId(1), at(2));
    assert_eq!(queue.due(at(2)), Some((A, NodeId(1))), "who waits keeps its place");
    assert!(queue.leave(NodeId(1)));
    assert_eq!(queue.due(at(2)), Some((A, NodeId(2))));
    queue.join(A, NodeId(1), at(9));
    assert_eq!(queue.due(at(9)), Some((A, NodeId(2))), "who left begins at the end");
    assert!(queue.leave(NodeId(2)));
    assert!(!queue.leave(NodeId(2)), "left already");
    assert_eq!(queue.due(at(8)), None);
    assert_eq!(queue.next_wake(), Some(at(9)));
    assert_eq!(queue.due(at(9)), Some((A, NodeId(1))), "leaving spent no turn");
    queue.join(B, NodeId(1), at(9));
    assert_eq!(
        (queue.due(at(9)), queue.len()),
        (Some((B, NodeId(1))), 1),
        "a changed zone moves it"
    );
}

#[test]
fn rates_change() {
    let slow = EvictionRate::per_second(0.01);
    let fast = EvictionRate::per_second(0.1);
    let rows = [
        ("in hand, kept", vec![(0, slow)], false, Some(at(0))),
        ("in hand, none while never", vec![(0, EvictionRate::NEVER)], false, None),
        (
            "after never one has to earn it",
            vec![(0, EvictionRate::NEVER), (5, fast)],
            false,
            Some(at(15)),
        ),
        ("spent, starts anew", vec![(5, slow)], true, Some(at(105))),
        ("same rate, nothing happens", vec![(5, fast)], true, Some(at(10))),
    ];
    for (name, changes, spend, expected) in rows {
        let mut queue = queue();
        queue.join(A, NodeId(1), at(0));
        if spend {
            queue.take(NodeId(1), at(0));
            queue.join(A, NodeId(2), at(0));
        }
        for (instant, rate) in changes {
            queue.set_rate(A, rate, at(instant));
        }
        assert_eq!(queue.next_wake(), expected, "{name}");
    }
}

#[test]
fn a_predecessors_turn_counts() {
    let mut queue = queue();
    queue.join(A, NodeId(1), at(100));
    queue.record_past_eviction(A, at(95), at(100));
    queue.record_past_eviction(A, at(50), at(100));
    assert_eq!(queue.next_wake(), Some(at(105)));
    queue.set_rate(A, EvictionRate::per_second(0.01), at(106));
    assert_eq!(queue.next_wake(), Some(at(195)), "under the rate that turns out to hold, too");
    queue.take(NodeId(1), at(195));
    queue.join(A, NodeId(1), at(195));
    queue.set_rate(A, EvictionRate::per_second(0.1), at(400));
    assert_eq!(queue.next_wake(), Some(at(400)), "but only until we took one ourselves");
}

#[test]
fn a_predecessors_clock_may_be_off() {
    let mut queue = queue();
    queue.join(A, NodeId(1), at(100));
    queue.record_past_eviction(A, at(9_999), at(100));
    assert_eq!(
        queue.next_wake(),
        Some(at(110)),
        "a clock ahead of ours costs one interval at most"
    );
}

#[test]
fn the_queue_position_counts_the_nodes_ahead() {
    let mut queue = queue();
    queue.join(A, NodeId(1), at(0));
    queue.join(A, NodeId(2), at(0));
    let outlook = queue.outlook(NodeId(2)).expect("it waits");
    assert_eq!((outlook.ahead, outlook.next_eviction_at), (1, Some(at(0))));
    assert_eq!(outlook.interval, Some(Duration::from_secs(10)));
    assert_eq!(queue.outlook(NodeId(9)), None);
}

proptest! {
    /// Under any sequence of joins, leaves and rate changes, two evictions of a zone are never
    /// closer than the shortest interval that was in force.
    #[test]
    fn never_faster_than_the_rate(steps in proptest::collection::vec((0_i64..8, 0_u8..5, 0_u32..6), 1..200)) {
        let mut queue = queue();
        let mut now = 0;
        let mut last: Option<i64> = None;
        for (wait, what, node) in steps {
            now += wait;
            match what {
                0 | 1 => queue.join(A, NodeId(node), at(now)),
                2 => { queue.leave(NodeId(node)); }
                3 => queue.set_rate(A, EvictionRate::per_second(0.01), at(now)),
                _ => queue.set_rate(A, if node == 0 { EvictionRate::NEVER } else { EvictionRate::per_second(0.1) }, at(now)),
            }
            for _ in drain(&mut queue, at(now)) {
                prop_assert!(last.is_none_or(|last| now - last >= 10), "{last:?} then {now}");
                last = Some(now);
            }
        }
    }
}
