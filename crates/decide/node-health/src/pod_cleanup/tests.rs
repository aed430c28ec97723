//! Each rule with the pods that it deletes and those that it keeps.

use super::*;

fn at(seconds: i64) -> ControllerTime {
    ControllerTime::from_secs(seconds)
}

fn pod(number: u32, node: &'static str, phase: Phase) -> CleanupPod<'static, u32> {
    let created = RemoteTime::from_nanos(i64::from(number));
    CleanupPod { pod: number, name: "p", node, phase, evicted: false, terminating: false, created }
}

fn nodes(list: &[(&'static str, bool, bool)]) -> BTreeMap<&'static str, CleanupNode> {
    list.iter()
        .map(|(name, ready, out_of_service)| {
            (*name, CleanupNode { ready: *ready, out_of_service: *out_of_service })
        })
        .collect()
}

fn taken(pass: &CleanupPass<u32>) -> Vec<(u32, CleanupReason)> {
    pass.deletes.iter().map(|delete| (delete.pod, delete.why)).collect()
}

#[test]
fn finished_pods_beyond_the_threshold_evicted_then_oldest() {
    let mut pods = vec![
        pod(5, "n", Phase::Succeeded),
        pod(2, "n", Phase::Failed),
        pod(1, "n", Phase::Running),
        pod(9, "n", Phase::Failed),
        pod(3, "n", Phase::Other),
        pod(0, "n", Phase::Pending),
        pod(4, "n", Phase::Unknown),
    ];
    pods[3].evicted = true;
    let all = nodes(&[("n", true, false)]);
    let rows: [(usize, &[u32]); 5] = [(0, &[]), (4, &[]), (3, &[9]), (2, &[9, 2]), (1, &[9, 2, 3])];
    for (threshold, expected) in rows {
        let pass = PodCleanup::new(threshold).pass(at(0), &pods, &all);
        let got: Vec<u32> = pass.deletes.iter().map(|delete| delete.pod).collect();
        assert_eq!(got, expected, "threshold {threshold}");
    }
    let mut same_age = [pod(1, "n", Phase::Failed), pod(1, "n", Phase::Failed)];
    same_age[0].name = "z";
    same_age[1].pod = 7;
    let pass = PodCleanup::new(1).pass(at(0), &same_age, &all);
    assert_eq!(taken(&pass), [(7, CleanupReason::Terminated)], "then by name");
}

#[test]
fn only_the_terminating_on_a_dead_node_declared_so() {
    let all = nodes(&[("dead", false, true), ("ready", true, true), ("silent", false, false)]);
    let mut pods = vec![
        pod(1, "dead", Phase::Running),
        pod(2, "dead", Phase::Running),
        pod(3, "ready", Phase::Running),
        pod(4, "silent", Phase::Running),
        pod(5, "missing", Phase::Running),
    ];
    for pod in &mut pods[1..] {
        pod.terminating = true;
    }
    let pass = PodCleanup::new(0).pass(at(0), &pods, &all);
    assert_eq!(taken(&pass), [(2, CleanupReason::OutOfService)]);
    assert_eq!((pass.deletes[0].fail_first, pass.deletes[0].condition), (true, None));
}

#[test]
fn orphans_after_quarantine_and_a_live_look() {
    let pods = [
        pod(1, "gone", Phase::Running),
        pod(2, "gone", Phase::Failed),
        pod(3, "n", Phase::Running),
    ];
    let all = nodes(&[("n", true, false)]);
    let mut cleanup = PodCleanup::new(0);
    assert_eq!(cleanup.pass(at(0), &pods, &all).nodes_to_verify, [], "in quarantine");
    assert_eq!(cleanup.next_wake(), Some(at(40)));
    assert_eq!(cleanup.pass(at(39), &pods, &all).nodes_to_verify, []);
    let pass = cleanup.pass(at(40), &pods, &all);
    assert_eq!(
        (&*pass.nodes_to_verify, taken(&pass)),
        (&["gone".into()][..], vec![]),
        "look first"
    );
    cleanup.confirm_node_absent("gone");
    let pass = cleanup.pass(at(41), &pods, &all);
    assert_eq!(taken(&pass), [(1, CleanupReason::Orphaned), (2, CleanupReason::Orphaned)]);
    assert_eq!(
        pass.deletes.iter().map(|delete| (delete.fail_first, delete.condition)).collect::<Vec<_>>(),
        [(true, Some(DELETION_BY_CLEANUP)), (false, None)],
        "what ended by itself keeps its phase and gets no condition"
    );
    assert_eq!(pass.nodes_to_verify, [], "the answer is used");
}

#[test]
fn a_node_that_shows_up_saves_its_pods() {
    let pods = [pod(1, "late", Phase::Running)];
    let mut cleanup = PodCleanup::new(0);
    cleanup.pass(at(0), &pods, &nodes(&[]));
    let there = nodes(&[("late", true, false)]);
    cleanup.confirm_node_absent("late");
    assert_eq!(taken(&cleanup.pass(at(50), &pods, &there)), [], "seen after the look");
    cleanup.pass(at(60), &pods, &nodes(&[]));
    assert_eq!(cleanup.next_wake(), Some(at(100)), "a new absence, a new quarantine");
    cleanup.pass(at(100), &pods, &nodes(&[]));
    cleanup.confirm_node_present(at(100), "late");
    assert_eq!(
        cleanup.pass(at(101), &pods, &nodes(&[])).nodes_to_verify,
        [],
        "asked, and it is there"
    );
    cleanup.confirm_node_absent("never-asked");
    let strangers = [pod(2, "never-asked", Phase::Running)];
    assert_eq!(taken(&cleanup.pass(at(101), &strangers, &nodes(&[]))), []);
}

/// There may be no pass between two absences of a node if no other pod was to be deleted.
#[test]
fn an_old_absence_does_not_shorten_a_new_quarantine() {
    let pods = [pod(1, "again", Phase::Running)];
    for comes_back in [true, false] {
        let mut cleanup = PodCleanup::new(0);
        cleanup.pass(at(0), &pods, &nodes(&[]));
        assert_eq!(cleanup.pass(at(40), &pods, &nodes(&[])).nodes_to_verify.len(), 1);
        cleanup.confirm_node_absent("again");
        assert_eq!(cleanup.pass(at(41), &pods, &nodes(&[])).deletes.len(), 1);
        if comes_back {
            cleanup.on_node_added("again");
        } else {
            cleanup.clear_missing_nodes();
        }
        cleanup.confirm_node_absent("again");
        let pass = cleanup.pass(at(900), &pods, &nodes(&[]));
        assert_eq!(
            (pass.deletes.len(), pass.nodes_to_verify),
            (0, vec![]),
            "comes back: {comes_back}"
        );
        assert_eq!(cleanup.next_wake(), Some(at(940)));
    }
}

#[test]
fn terminating_pods_that_were_never_bound() {
    let mut pods = vec![pod(1, "", Phase::Pending), pod(2, "", Phase::Pending)];
    pods[0].terminating = true;
    let mut cleanup = PodCleanup::new(0);
    let pass = cleanup.pass(at(0), &pods, &nodes(&[]));
    assert_eq!((taken(&pass), cleanup.next_wake()), (vec![(1, CleanupReason::Unscheduled)], None));
    assert!(pass.deletes[0].fail_first);
}

#[test]
fn words() {
    let phases = ["Pending", "Running", "Succeeded", "Failed", "Unknown", "", "Later"];
    let ended: Vec<_> = phases.iter().filter(|text| Phase::parse(text).has_ended()).collect();
    assert_eq!(ended, [&"Succeeded", &"Failed", &"", &"Later"]);
    let labels = [
        CleanupReason::Terminated,
        CleanupReason::OutOfService,
        CleanupReason::Orphaned,
        CleanupReason::Unscheduled,
    ]
    .map(CleanupReason::label);
    assert_eq!(labels, ["terminated", "out-of-service", "orphaned", "unscheduled"]);
    assert_eq!(DELETION_BY_CLEANUP.reason, "DeletionByPodGC");
    assert_eq!(DELETION_BY_CLEANUP.message, "PodGC: node no longer exists");
}

#[test]
fn phases_are_read() {
    for (text, phase) in [
        ("Pending", Phase::Pending),
        ("Running", Phase::Running),
        ("Succeeded", Phase::Succeeded),
        ("Failed", Phase::Failed),
        ("Unknown", Phase::Unknown),
        ("", Phase::Other),
        ("succeeded", Phase::Other),
    ] {
        assert_eq!(Phase::parse(text), phase, "{text}");
    }
}

#[test]
fn the_quarantine_is_configurable() {
    let pods = [pod(1, "gone", Phase::Running)];
    let all = nodes(&[]);
    let mut cleanup = PodCleanup::new(0).with_quarantine(Duration::from_secs(5));
    assert!(cleanup.pass(at(0), &pods, &all).nodes_to_verify.is_empty());
    assert!(cleanup.pass(at(4), &pods, &all).nodes_to_verify.is_empty());
    assert_eq!(cleanup.pass(at(6), &pods, &all).nodes_to_verify.len(), 1);
}
