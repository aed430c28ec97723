//! The exact sentences.

use super::*;
use crate::facts::PodId;
use crate::facts::{Conditions, NodeConditionFacts};
use crate::lifecycle::{NodeLifecycleSettings, ObservationSource, WriteKind, WriteOutcome};
use crate::no_execute::{Operator, Toleration};
use crate::time::RemoteTime;
use crate::zones::ZoneKey;

fn at(seconds: i64) -> ControllerTime {
    ControllerTime::from_secs(seconds)
}

fn facts(ready: ConditionState) -> NodeHealthFacts {
    let mut conditions = Conditions::default();
    let stamp = RemoteTime::from_nanos(1);
    let condition = NodeConditionFacts { status: ready, heartbeat: stamp, transition: stamp };
    conditions.set(ConditionKind::Ready, Some(condition));
    NodeHealthFacts {
        created: stamp,
        version: 1,
        conditions,
        taints: Vec::new(),
        unschedulable: false,
        zone: ZoneKey::default(),
        excluded: false,
        label_fixes: Vec::new(),
    }
}

#[test]
fn taints_have_reasons() {
    assert_eq!(explain_taints(&facts(ConditionState::True)), ["The node has no taints."]);
    let mut node = facts(ConditionState::Unknown);
    let taint = |key, effect| Taint::new(key, effect, None);
    node.taints = vec![
        taint(TaintKey::Unreachable, TaintEffect::NoExecute),
        taint(TaintKey::NotReady, TaintEffect::NoExecute),
        taint(TaintKey::NotReady, TaintEffect::NoSchedule),
        taint(TaintKey::Unschedulable, TaintEffect::NoSchedule),
        taint(TaintKey::Other("example.com/gpu".into()), TaintEffect::NoSchedule),
    ];
    assert_eq!(
        explain_taints(&node),
        [
            "node.kubernetes.io/unreachable:NoExecute: nothing was heard of the node for longer than its grace.",
            "node.kubernetes.io/not-ready:NoExecute: the node was lost; this no longer fits its Ready condition and is about to change.",
            "node.kubernetes.io/not-ready:NoSchedule: its Ready condition asked for it.",
            "node.kubernetes.io/unschedulable:NoSchedule: the node is cordoned.",
            "example.com/gpu:NoSchedule: somebody else set it; it is not ours to remove.",
        ]
    );
    node = facts(ConditionState::False);
    node.taints = vec![
        taint(TaintKey::NotReady, TaintEffect::NoExecute),
        taint(TaintKey::Unreachable, TaintEffect::NoExecute),
    ];
    assert_eq!(
        explain_taints(&node),
        [
            "node.kubernetes.io/not-ready:NoExecute: the node itself says that it is not ready.",
            "node.kubernetes.io/unreachable:NoExecute: the node was lost; this no longer fits its Ready condition and is about to change.",
        ]
    );
}

fn controller(nodes: &[(u32, NodeHealthFacts)]) -> NodeLifecycle {
    let mut controller = NodeLifecycle::new(NodeLifecycleSettings {
        settling: Duration::ZERO,
        ..NodeLifecycleSettings::default()
    });
    for (node, facts) in nodes {
        controller.observe(at(0), NodeId(*node), facts.clone(), ObservationSource::List);
        let through = WriteOutcome::Written { version: 2 };
        controller.written(at(0), NodeId(*node), WriteKind::Taints, through);
    }
    controller.tick(at(0), at(0));
    controller
}

#[test]
fn explain_names_what_delays_an_eviction() {
    let good = || facts(ConditionState::True);
    let bad = || facts(ConditionState::False);
    let explain = |nodes: &[(u32, NodeHealthFacts)], node, now| {
        explain_eviction_progress(&controller(nodes), NodeId(node), at(now))
    };
    assert_eq!(explain(&[], 1, 0), "This controller does not know the node.");
    assert_eq!(
        explain(&[(1, good())], 1, 0),
        "Nothing is wrong: the node is ready and was heard of lately."
    );
    let mut tainted = facts(ConditionState::Unknown);
    tainted.taints = vec![Taint::new(TaintKey::Unreachable, TaintEffect::NoExecute, None)];
    assert_eq!(
        explain(&[(1, tainted), (2, good())], 1, 0),
        "Nothing: the node is given up, and its pods go as their tolerations say."
    );
    assert!(explain(&[(1, bad())], 1, 0).starts_with("Every zone is dark"));
    let mut mute = good();
    mute.conditions = Conditions::default();
    assert_eq!(
        explain(&[(1, mute), (2, good())], 1, 0),
        "The node said nothing yet; it is waited for."
    );
    assert_eq!(
        explain(&[(1, bad()), (2, bad()), (3, bad()), (4, good())], 2, 0),
        "3 of the 4 nodes of its zone are not ready, which is too many for a zone this small: nobody there is given up until that changes."
    );
    let healthy: Vec<_> =
        (0..9).map(|node| (node, if node < 3 { bad() } else { good() })).collect();
    assert_eq!(
        explain(&healthy, 2, 4),
        "It waits for its zone's turn, one node per 10 s: 1 node before it, so in about 16 s."
    );
    assert_eq!(
        explain(&healthy, 1, 4),
        "It waits for its zone's turn, one node per 10 s: nobody before it, so in about 6 s."
    );
    assert_eq!(
        explain(&healthy, 2, 400),
        "This controller cannot see the cluster at the moment and acts against nobody."
    );
    let large: Vec<_> =
        (0..100).map(|node| (node, if node < 60 { bad() } else { good() })).collect();
    assert_eq!(
        explain(&large, 59, 0),
        "It waits for its zone's turn, one node per 100 s (slowed down, since most of the zone is not ready): 58 nodes before it, so in about 98 min."
    );
}

#[test]
fn silence_in_its_grace() {
    let mut controller = controller(&[(1, facts(ConditionState::True))]);
    for second in 1..=30 {
        controller.tick(at(second), at(second));
    }
    assert_eq!(
        explain_eviction_progress(&controller, NodeId(1), at(30)),
        "The node is ready but was not heard of for 30 s; if that lasts it becomes Unknown in 20 s."
    );
}

#[test]
fn a_pod_is_evicted_by_its_shortest_toleration() {
    let tolerations_of = |seconds| Toleration {
        key: None,
        operator: Operator::Exists,
        value: "".into(),
        effect: None,
        seconds,
    };
    let (timed, always) = ([tolerations_of(Some(300))], [tolerations_of(None)]);
    let pod = |tolerations, terminating| BoundPod {
        pod: PodId(1),
        tolerations,
        bound: None,
        terminating,
    };
    let mut evictions = Evictions::new(false);
    let explain =
        |evictions: &Evictions, pod, now| explain_pod_eviction(evictions, NodeId(1), &pod, at(now));
    assert_eq!(
        explain(&evictions, pod(&[], false), 0),
        "It stays: no taint on its node sends pods away."
    );
    let taint = Taint::new(TaintKey::Unreachable, TaintEffect::NoExecute, Some(at(0).stamp()));
    let mut node = facts(ConditionState::Unknown);
    node.taints = vec![taint];
    evictions.observe_node(at(0), NodeId(1), &node, []);
    assert_eq!(explain(&evictions, pod(&[], true), 0), "It is being deleted already.");
    assert_eq!(
        explain(&evictions, pod(&[], false), 0),
        "It goes now: it does not tolerate node.kubernetes.io/unreachable."
    );
    assert_eq!(
        explain(&evictions, pod(&always, false), 0),
        "It stays: it tolerates its node's taints for ever."
    );
    assert_eq!(
        explain(&evictions, pod(&timed, false), 10),
        "It goes in 4 min, when its toleration ends."
    );
    assert_eq!(
        explain(&evictions, pod(&timed, false), 300),
        "It goes now: its toleration is used up."
    );
}

#[test]
fn a_comparison_counts_only_where_it_is_on() {
    let key = TaintKey::parse("example.com/load");
    let larger = [Toleration {
        key: Some(key.clone()),
        operator: Operator::Gt,
        value: "5".into(),
        effect: None,
        seconds: None,
    }];
    let pod = BoundPod { pod: PodId(1), tolerations: &larger, bound: None, terminating: false };
    let mut node = facts(ConditionState::True);
    let mut taint = Taint::new(key, TaintEffect::NoExecute, Some(at(0).stamp()));
    taint.value = "7".into();
    node.taints = vec![taint];
    for (comparisons, explain) in [
        (true, "It stays: it tolerates its node's taints for ever."),
        (false, "It goes now: it does not tolerate example.com/load."),
    ] {
        let mut evictions = Evictions::new(comparisons);
        evictions.observe_node(at(0), NodeId(1), &node, []);
        assert_eq!(explain_pod_eviction(&evictions, NodeId(1), &pod, at(1)), explain);
    }
}

#[test]
fn a_starting_controller_is_explained() {
    let mut controller = NodeLifecycle::new(NodeLifecycleSettings::default());
    controller.observe(at(0), NodeId(1), facts(ConditionState::False), ObservationSource::List);
    controller.observe(at(0), NodeId(2), facts(ConditionState::True), ObservationSource::List);
    controller.tick(at(0), at(0));
    assert_eq!(
        explain_eviction_progress(&controller, NodeId(1), at(5)),
        "This controller, or its sight, has only just come back and acts against nobody for another 15 s."
    );
}

#[test]
fn a_taint_that_is_on_its_way_or_was_refused() {
    let nodes = [
        (1, facts(ConditionState::False)),
        (2, facts(ConditionState::True)),
        (3, facts(ConditionState::True)),
    ];
    let mut controller = controller(&nodes);
    let explain =
        |controller: &NodeLifecycle| explain_eviction_progress(controller, NodeId(1), at(1));
    // The first token of a zone is available at once.
    let underway = "Its taint is being written, or was refused and will be tried again.";
    assert_eq!(explain(&controller), underway);
    controller.written(at(1), NodeId(1), WriteKind::Taints, WriteOutcome::Failed);
    let failed = "Its taint could not be written yet; it is decided anew in a moment.";
    assert_eq!(explain(&controller), failed);
}

#[test]
fn explain_names_the_fence() {
    use crate::cidr::fence::TouchOutcome;
    let mut fence = Fence::around(at(0), [1, 2].map(NodeId));
    let explanation = |fence: &Fence| explain_missing_pod_cidr(fence, at(30)).unwrap_or_default();
    assert_eq!(
        explanation(&fence),
        "It gets a pod range once what an earlier leader had sent can give none away any more: \
         2 nodes without one still to be written to."
    );
    fence.due(at(0));
    fence.touched(at(0), NodeId(1), TouchOutcome::NoResponse);
    assert!(explanation(&fence).ends_with("to; 1 could not be, and will be tried again."));
    fence.touched(at(10), NodeId(1), TouchOutcome::Refused);
    fence.passes(NodeId(2));
    assert_eq!(
        explanation(&fence),
        "It gets a pod range once what an earlier leader had sent can give none away any more: \
         1 node without one still to be written to; 1 could not be, and will be tried for another \
         100 s at most where there are answers."
    );
    fence.passes(NodeId(1));
    assert_eq!(explanation(&fence), "");
}
