//! Events that are counted, combined and dropped.

use super::*;
use ports::cluster_api::ObjectReference;

fn at(seconds: i64) -> ApiTime {
    ApiTime::from_nanos(seconds * 1_000_000_000)
}

fn event(name: &str, reason: &str, message: &str) -> ClusterEvent {
    ClusterEvent {
        about: ObjectReference {
            kind: "Pod".to_owned(),
            name: name.to_owned(),
            ..ObjectReference::default()
        },
        kind: ClusterEventType::Normal,
        reason: reason.to_owned(),
        message: message.to_owned(),
        component: "kubelet".to_owned(),
        host: "n1".to_owned(),
        at: at(0),
    }
}

/// Sends what the correlator says is to be sent; what came of it as text.
fn send(correlator: &mut EventCorrelator, event: ClusterEvent, now: ApiTime) -> String {
    match correlator.correlate(event, now) {
        Correlated::Dropped => "dropped".to_owned(),
        Correlated::Create { key, event } => {
            let stored = StoredEvent { namespace: String::new(), name: event.message.clone() };
            correlator.stored(key, stored, 1);
            format!("create {}", event.message)
        }
        Correlated::Repeat { key, event, stored, count } => {
            correlator.stored(key, stored.clone(), count);
            format!("{} x{count} {}", stored.name, event.message)
        }
    }
}

#[test]
fn the_same_event_is_counted_and_another_is_created() {
    let mut correlator = EventCorrelator::default();
    let rows = [
        (event("a", "Pulled", "m"), "create m"),
        (event("a", "Pulled", "m"), "m x2 m"),
        (event("a", "Pulled", "other"), "create other"),
        (event("a", "Started", "m"), "create m"),
        (event("b", "Pulled", "m"), "create m"),
        (event("a", "Pulled", "m"), "m x3 m"),
    ];
    for (event, expected) in rows {
        assert_eq!(send(&mut correlator, event.clone(), at(1)), expected, "{event:?}");
    }
    let mut in_a_container = event("a", "Pulled", "m");
    in_a_container.about.field_path = "spec.containers{x}".to_owned();
    assert_eq!(send(&mut correlator, in_a_container, at(1)), "create m");
}

#[test]
fn the_tenth_message_of_a_reason_is_combined_until_ten_quiet_minutes_have_passed() {
    let mut correlator = EventCorrelator::default();
    for number in 1..10 {
        let message = format!("m{number}");
        let sent = send(&mut correlator, event("a", "Failed", &message), at(number));
        assert_eq!(sent, format!("create {message}"));
    }
    let combined = "(combined from similar events): ";
    let tenth = send(&mut correlator, event("a", "Failed", "m10"), at(10));
    assert_eq!(tenth, format!("create {combined}m10"));
    let eleventh = send(&mut correlator, event("a", "Failed", "m11"), at(610));
    assert_eq!(eleventh, format!("{combined}m10 x2 {combined}m11"));
    let later = send(&mut correlator, event("a", "Failed", "m12"), at(1211));
    assert_eq!(later, "create m12");
}

#[test]
fn a_source_has_twenty_five_events_of_an_object_and_then_one_in_five_minutes() {
    let mut correlator = EventCorrelator::default();
    let dropped = |correlator: &mut EventCorrelator, name: &str, now| {
        send(correlator, event(name, "BackOff", "m"), now) == "dropped"
    };
    for number in 0..25 {
        assert!(!dropped(&mut correlator, "a", at(0)), "{number}");
    }
    assert!(dropped(&mut correlator, "a", at(0)));
    assert!(!dropped(&mut correlator, "b", at(0)));
    assert!(dropped(&mut correlator, "a", at(299)));
    assert!(!dropped(&mut correlator, "a", at(300)));
    assert!(dropped(&mut correlator, "a", at(301)));
    // A clock that was set back refills nothing and takes nothing.
    assert!(dropped(&mut correlator, "a", at(0)));
}

#[test]
fn an_event_that_expired_on_the_server_is_created_again() {
    let mut correlator = EventCorrelator::default();
    assert_eq!(send(&mut correlator, event("a", "Pulled", "m"), at(1)), "create m");
    let Correlated::Repeat { key, .. } = correlator.correlate(event("a", "Pulled", "m"), at(2))
    else {
        panic!("not repeated");
    };
    correlator.expired(key);
    assert_eq!(send(&mut correlator, event("a", "Pulled", "m"), at(3)), "create m");
}

#[test]
fn remembered_events_are_bounded() {
    let mut correlator = EventCorrelator::default();
    for number in 0..MAX_ENTRIES + 10 {
        let name = format!("pod-{number}");
        send(&mut correlator, event(&name, "Pulled", "m"), at(1));
    }
    let sizes = [
        correlator.similar.order.len(),
        correlator.sent.order.len(),
        correlator.sources.order.len(),
    ];
    assert_eq!(sizes, [MAX_ENTRIES; 3]);
    assert_eq!(correlator.sent.entries.len(), MAX_ENTRIES);
    assert_eq!(send(&mut correlator, event("pod-0", "Pulled", "m"), at(2)), "create m");
}
