//! Starts and absences of the controller.

use super::*;

#[test]
fn no_node_is_tainted_right_after_a_start_or_an_absence() {
    let mut fixture = LifecycleFixture::new();
    fixture.controller = NodeLifecycle::new(NodeLifecycleSettings::default());
    for node in [1, 2, 3] {
        fixture.see(node, facts(1, ConditionState::True, 1));
    }
    fixture.see(9, facts(1, ConditionState::Unknown, 1));
    fixture.tick();
    assert_eq!(fixture.controller.next_wake(), Some(at(fixture.now + 20)));
    fixture.pass(19, &OTHERS);
    assert!(!fixture.no_execute_tainted(9));
    fixture.pass(1, &OTHERS);
    assert!(fixture.no_execute_tainted(9));
    fixture.see(8, facts(1, ConditionState::Unknown, 1));
    fixture.now += 60;
    fixture.tick();
    assert!(!fixture.no_execute_tainted(8), "its turn came while we were away");
    fixture.pass(20, &OTHERS);
    assert!(fixture.no_execute_tainted(8));
}

#[test]
fn a_silent_node_may_report_first_after_an_absence() {
    let mut fixture = LifecycleFixture::new();
    fixture.controller = NodeLifecycle::new(NodeLifecycleSettings::default());
    for node in [1, 2, 3, 9] {
        fixture.see(node, facts(1, ConditionState::True, 1));
    }
    fixture.tick();
    fixture.pass(50, &OTHERS);
    fixture.now += 300;
    fixture.tick();
    fixture.pass(20, &OTHERS);
    assert_eq!(fixture.ready(9), Some(ConditionState::True), "not a moment was left to it");
    fixture.pass(1, &OTHERS);
    assert_eq!(fixture.ready(9), Some(ConditionState::Unknown));
}

#[test]
fn a_write_decided_before_an_absence_is_not_the_first_thing_after_it() {
    let mut fixture = LifecycleFixture::new();
    fixture.controller = NodeLifecycle::new(NodeLifecycleSettings::default());
    for node in [1, 2, 3, 9] {
        fixture.see(node, facts(1, ConditionState::True, 1));
    }
    fixture.tick();
    fixture.refuse = true;
    fixture.pass(55, &OTHERS);
    let proven = at(fixture.now);
    for _ in 0..100 {
        fixture.now += 1;
        let actions = fixture.controller.tick(at(fixture.now), proven);
        fixture.carry_out(actions);
    }
    fixture.refuse = false;
    fixture.pass(19, &OTHERS);
    assert_eq!(fixture.ready(9), Some(ConditionState::True), "it may speak first");
    assert!(
        fixture.controller.next_wake().is_some_and(|wake| wake > at(fixture.now)),
        "and is waited for"
    );
    fixture.pass(3, &OTHERS);
    assert_eq!(fixture.ready(9), Some(ConditionState::Unknown));
}

#[test]
fn the_first_status_shortens_the_startup_grace() {
    let mut fixture = four();
    let mut mute = facts(1, ConditionState::True, 1);
    mute.conditions = Conditions::default();
    fixture.see(8, mute);
    fixture.see(8, facts(2, ConditionState::True, 1));
    fixture.pass(51, &[1, 2, 3, 9]);
    assert_eq!(fixture.ready(8), Some(ConditionState::Unknown), "50 s, not 60");
}

#[test]
fn a_taint_swap_waits_for_settling_and_a_removal_does_not() {
    let mut fixture = LifecycleFixture::new();
    fixture.controller = NodeLifecycle::new(NodeLifecycleSettings::default());
    let wearing = |ready| {
        let mut node = facts(1, ready, 1);
        node.taints = vec![Taint::new(TaintKey::NotReady, TaintEffect::NoExecute, None)];
        node
    };
    for node in [1, 2, 3] {
        fixture.see(node, facts(1, ConditionState::True, 1));
    }
    fixture.see(8, wearing(ConditionState::True));
    fixture.see(9, wearing(ConditionState::Unknown));
    assert_eq!(fixture.taints(8), []);
    fixture.pass(19, &OTHERS);
    let lost = |key| (key, TaintEffect::NoExecute);
    assert!(fixture.taints(9).contains(&lost(TaintKey::NotReady)));
    fixture.pass(2, &OTHERS);
    assert!(fixture.taints(9).contains(&lost(TaintKey::Unreachable)));
}

/// The memory of a node for its lifetime, without what its own lists allocate.
#[test]
fn a_node_takes_few_bytes() {
    let size = size_of::<NodeRecord>();
    assert!(size <= 416, "{size} bytes");
}
