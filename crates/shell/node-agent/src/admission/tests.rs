//! Which pods are admitted when.

use super::*;

fn pod(uid: &str) -> Arc<Pod> {
    let mut pod = Pod::default();
    pod.metadata.uid = Box::from(uid);
    Arc::new(pod)
}

#[test]
fn those_who_were_here_stay_and_new_ones_need_room() {
    let admissions = Admissions::new(
        NodeRoom { pods: 1, ..NodeRoom::default() },
        NodeAbilities::default(),
        Metrics::default(),
    );
    let changes = admissions.changes();
    for uid in ["old-1", "old-2"] {
        assert!(admissions.decide(&pod(uid), true, true).is_empty());
    }
    assert!(admissions.decide(&pod("new"), false, true).is_empty());
    assert!(changes.has_changed().unwrap());
    let of = |uid: &str| admissions.watch(uid).borrow().clone();
    assert_eq!(of("old-2"), Admission::Admitted);
    assert!(matches!(of("new"), Admission::Rejected { .. }));
    assert_eq!(admissions.admitted().len(), 2);
    for uid in ["old-1", "old-2"] {
        admissions.release(uid);
    }
    assert!(admissions.decide(&pod("new"), false, true).is_empty());
    assert!(matches!(of("new"), Admission::Rejected { .. }), "what was decided holds");
    admissions.release("new");
    assert!(admissions.decide(&pod("new"), false, true).is_empty());
    assert_eq!(of("new"), Admission::Admitted);
    assert_eq!(of("nobody asked"), Admission::Admitted);
}

fn critical(uid: &str, priority: i32, grace: i64) -> Arc<Pod> {
    let mut pod = Pod::clone(&pod(uid));
    pod.metadata.name = Box::from(uid);
    pod.spec.priority = Some(priority);
    pod.spec.termination_grace_period_seconds = Some(grace);
    Arc::new(pod)
}

fn two_at_most() -> Admissions {
    Admissions::new(
        NodeRoom { pods: 2, ..NodeRoom::default() },
        NodeAbilities::default(),
        Metrics::default(),
    )
}

#[tokio::test(start_paused = true)]
async fn a_critical_pod_waits_for_those_who_end_for_it() {
    let admissions = two_at_most();
    let of = |uid: &str| admissions.watch(uid).borrow().clone();
    for uid in ["low", "lower"] {
        let _ = admissions.decide(&critical(uid, 1, 30), false, true);
    }
    let victims = admissions.decide(&critical("high", 2_000_000_000, 30), false, true);
    assert_eq!(victims.len(), 1, "{victims:?}");
    assert_eq!(of("high"), Admission::MakingRoom(vec![format!("{}_", victims[0])]));
    assert_eq!(admissions.admitted().len(), 2, "who was chosen takes no room");
    let again = admissions.decide(&critical("higher", 2_000_000_001, 30), false, true);
    assert_eq!(again.len(), 1, "another one, not the same again");
    assert_ne!(again, victims);
    assert!(admissions.decide(&critical("none", 0, 30), false, true).is_empty());
    assert!(matches!(of("none"), Admission::Rejected { .. }), "no room, and not critical");
    admissions.ended("a stranger");
    assert_ne!(of("high"), Admission::Admitted);
    admissions.ended(&victims[0]);
    assert_eq!(of("high"), Admission::Admitted);
    assert_ne!(of("higher"), Admission::Admitted);
    admissions.release(&again[0]);
    assert_eq!(of("higher"), Admission::Admitted, "gone is ended");
    assert_eq!(admissions.next_give_up(), None);
}

#[tokio::test(start_paused = true)]
async fn it_does_not_wait_for_ever() {
    for (grace, limit) in [(40, 60), (1, 10)] {
        let admissions = two_at_most();
        for uid in ["a", "b"] {
            let _ = admissions.decide(&critical(uid, 1, grace), false, true);
        }
        let began = Instant::now();
        let victims = admissions.decide(&critical("high", 2_000_000_000, 30), false, true);
        assert_eq!(victims.len(), 1);
        assert_eq!(admissions.next_give_up(), Some(began + Duration::from_secs(limit)));
        assert!(admissions.give_up(began).is_empty());
        assert_eq!(admissions.give_up(began + Duration::from_secs(limit)), ["high_"]);
        assert_eq!(admissions.next_give_up(), None);
        assert_eq!(*admissions.watch("high").borrow(), Admission::Admitted);
    }
}

#[test]
fn what_has_ended_takes_no_room() {
    let admissions = two_at_most();
    let _ = admissions.decide(&pod("a"), false, true);
    let _ = admissions.decide(&pod("b"), false, true);
    let mut changes = admissions.changes();
    changes.borrow_and_update();
    admissions.ended("a");
    assert!(changes.has_changed().unwrap());
    changes.borrow_and_update();
    admissions.ended("a");
    assert!(!changes.has_changed().unwrap(), "once");
    assert_eq!(admissions.admitted().len(), 1);
    let _ = admissions.decide(&pod("c"), false, true);
    assert_eq!(*admissions.watch("c").borrow(), Admission::Admitted);
}

/// At most three pods; further ones wait for pods that are ending.
fn three_where_pods_wait() -> Admissions {
    let room = NodeRoom { pods: 3, waits_for_ending: true, ..NodeRoom::default() };
    let admissions = Admissions::new(room, NodeAbilities::default(), Metrics::default());
    for uid in ["a", "b", "c"] {
        let _ = admissions.decide(&named(uid), false, true);
    }
    admissions
}

fn named(uid: &str) -> Arc<Pod> {
    critical(uid, 0, 30)
}

fn waits_for(names: &[&str]) -> Admission {
    Admission::MakingRoom(names.iter().map(|name| format!("{name}_")).collect())
}

#[test]
fn pods_wait_for_those_that_are_ending_in_the_order_in_which_they_came() {
    let admissions = three_where_pods_wait();
    let of = |uid: &str| admissions.watch(uid).borrow().clone();
    for uid in ["a", "b"] {
        admissions.is_ending(uid);
    }
    for uid in ["second", "first-by-name", "too-many"] {
        assert!(admissions.decide(&named(uid), false, true).is_empty());
    }
    assert_eq!(of("second"), waits_for(&["a", "b"]));
    assert_eq!(of("first-by-name"), waits_for(&["a", "b"]));
    assert!(matches!(of("too-many"), Admission::Rejected { .. }), "two of three places come free");
    admissions.ended("b");
    assert_eq!(of("second"), Admission::Admitted, "it came first");
    assert_eq!(of("first-by-name"), waits_for(&["a"]));
    admissions.release("b");
    assert_eq!(of("first-by-name"), waits_for(&["a"]), "once for each");
    admissions.release("a");
    assert_eq!(of("first-by-name"), Admission::Admitted);
    assert_eq!(admissions.admitted().len(), 3);
    assert_eq!(admissions.next_give_up(), None, "nobody ends for them");
}

#[test]
fn who_waits_for_room_and_goes_leaves_it_to_the_next() {
    let admissions = three_where_pods_wait();
    admissions.is_ending("a");
    for uid in ["first", "next"] {
        assert!(admissions.decide(&named(uid), false, true).is_empty());
    }
    let of = |uid: &str| admissions.watch(uid).borrow().clone();
    assert!(matches!(of("next"), Admission::Rejected { .. }), "the place is the first one's");
    admissions.release("first");
    admissions.release("next");
    let _ = admissions.decide(&named("next"), false, true);
    assert_eq!(of("next"), waits_for(&["a"]));
    admissions.release("a");
    assert_eq!(of("next"), Admission::Admitted);
}
