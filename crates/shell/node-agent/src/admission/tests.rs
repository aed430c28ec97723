//! Which pods are admitted when.

use super::*;

fn pod(uid: &str) -> Arc<Pod> {
    let mut pod = Pod::default();
    pod.metadata.uid = Box::from(uid);
    Arc::new(pod)
}

#[test]
fn pods_admitted_before_stay_and_new_pods_need_room() {
    let admissions = Admissions::new(
        NodeCapacity { pods: 1, ..NodeCapacity::default() },
        NodeSupport::default(),
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
        NodeCapacity { pods: 2, ..NodeCapacity::default() },
        NodeSupport::default(),
        Metrics::default(),
    )
}

#[tokio::test(start_paused = true)]
async fn a_critical_pod_waits_for_its_victims_to_end() {
    let admissions = two_at_most();
    let of = |uid: &str| admissions.watch(uid).borrow().clone();
    for uid in ["low", "lower"] {
        let _ = admissions.decide(&critical(uid, 1, 30), false, true);
    }
    let victims = admissions.decide(&critical("high", 2_000_000_000, 30), false, true);
    assert_eq!(victims.len(), 1, "{victims:?}");
    assert_eq!(of("high"), Admission::WaitingForPreemption(vec![format!("{}_", victims[0])]));
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
    assert_eq!(admissions.next_preemption_deadline(), None);
}

#[tokio::test(start_paused = true)]
async fn a_critical_pod_stops_waiting_at_the_preemption_deadline() {
    for (grace, limit) in [(40, 60), (1, 10)] {
        let admissions = two_at_most();
        for uid in ["a", "b"] {
            let _ = admissions.decide(&critical(uid, 1, grace), false, true);
        }
        let began = Instant::now();
        let victims = admissions.decide(&critical("high", 2_000_000_000, 30), false, true);
        assert_eq!(victims.len(), 1);
        assert_eq!(admissions.next_preemption_deadline(), Some(began + Duration::from_secs(limit)));
        assert!(admissions.expire_preemptions(began).is_empty());
        assert_eq!(admissions.expire_preemptions(began + Duration::from_secs(limit)), ["high_"]);
        assert_eq!(admissions.next_preemption_deadline(), None);
        assert_eq!(*admissions.watch("high").borrow(), Admission::Admitted);
    }
}

#[test]
fn ended_pods_release_their_resources() {
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
    let room =
        NodeCapacity { pods: 3, waits_for_terminating_pods: true, ..NodeCapacity::default() };
    let admissions = Admissions::new(room, NodeSupport::default(), Metrics::default());
    for uid in ["a", "b", "c"] {
        let _ = admissions.decide(&named(uid), false, true);
    }
    admissions
}

fn named(uid: &str) -> Arc<Pod> {
    critical(uid, 0, 30)
}

fn waits_for(names: &[&str]) -> Admission {
    Admission::WaitingForPreemption(names.iter().map(|name| format!("{name}_")).collect())
}

#[test]
fn pods_wait_for_ending_pods_in_order_of_arrival() {
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
    assert_eq!(admissions.next_preemption_deadline(), None, "nobody ends for them");
}

#[test]
fn removing_a_waiting_pod_lets_the_next_one_in() {
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
