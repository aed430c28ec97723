//! Few bytes each, and one entry per UID.

use serde_json::json;

use super::*;

const NOW: ControllerTime = ControllerTime::from_secs(1_000);

fn pod(name: &str, uid: &str, seconds: i64) -> Pod {
    serde_json::from_value(json!({
        "metadata": {"name": name, "namespace": "default", "uid": uid, "resourceVersion": "7"},
        "spec": {"nodeName": "a", "tolerations": [
            {"key": "node.kubernetes.io/not-ready", "operator": "Exists",
             "effect": "NoExecute", "tolerationSeconds": seconds},
        ]},
        "status": {"phase": "Running"},
    }))
    .expect("a pod")
}

#[test]
fn shared_namespaces_and_tolerations_are_stored_once() {
    let mut pods = PodCache::default();
    let node = Some(NodeId(0));
    let a = pods.upsert(&pod("a", "1", 300), node, 1, NOW);
    let b = pods.upsert(&pod("b", "2", 300), node, 1, NOW);
    let c = pods.upsert(&pod("c", "3", 5), node, 1, NOW);
    assert!(a.newly_bound && b.newly_bound && c.newly_bound);
    assert!(!pods.upsert(&pod("a", "1", 300), node, 2, NOW).newly_bound);
    let list = |pod: PodId| pods.get(pod).expect("there").tolerations.clone();
    assert!(Arc::ptr_eq(&list(a.pod), &list(b.pod)));
    assert!(!Arc::ptr_eq(&list(a.pod), &list(c.pod)));
    assert_eq!(pods.not_in_list(2), [b.pod, c.pod]);
    assert_eq!(pods.len(), 3);
    assert!(size_of::<CachedPod>() <= 160, "{} bytes", size_of::<CachedPod>());
}

#[test]
fn a_number_is_given_again_only_when_its_pod_is_gone() {
    let mut pods = PodCache::default();
    let a = pods.upsert(&pod("a", "1", 1), None, 1, NOW).pod;
    let b = pods.upsert(&pod("a", "2", 1), None, 1, NOW).pod;
    assert_ne!(a, b, "the same name made again is another pod");
    pods.set_interest(a, true);
    assert!(pods.remove(a).is_some());
    assert!(pods.remove(a).is_none());
    assert_eq!(pods.of_interest().count(), 0);
    assert_eq!(pods.upsert(&pod("c", "3", 1), None, 1, NOW).pod, a);
    assert_eq!(pods.find(&Uid::new("1")), None);
}

#[test]
fn unused_toleration_lists_are_swept() {
    let mut pods = PodCache::default();
    for number in 0..5_000 {
        let seen = pods.upsert(&pod("a", "1", number), None, 1, NOW);
        assert!(pods.get(seen.pod).is_some());
    }
    assert!(pods.tolerations.len() <= 2 * SWEEP, "{}", pods.tolerations.len());
}

#[test]
fn unused_namespaces_are_swept() {
    let mut pods = PodCache::default();
    let lasting = pods.upsert(&pod("a", "lasting", 1), None, 1, NOW).pod;
    for number in 0..5_000 {
        let mut passing = pod("a", "passing", 1);
        passing.metadata.namespace = format!("job-{number}");
        let seen = pods.upsert(&passing, None, 1, NOW).pod;
        assert!(pods.remove(seen).is_some());
    }
    assert!(pods.namespaces.len() <= 2 * SWEEP, "{}", pods.namespaces.len());
    let kept = pods.get(lasting).expect("there").namespace.clone();
    assert!(pods.namespaces.get("default").is_some_and(|known| Arc::ptr_eq(known, &kept)));
}

/// The clock that dates the binding may be ahead of ours for good; the next observation must not
/// move it.
#[test]
fn a_binding_ahead_of_us_counts_from_when_it_was_first_seen() {
    let mut pods = PodCache::default();
    let at = ControllerTime::from_secs;
    let dated = |seconds: i64| {
        let mut pod = pod("a", "1", 1);
        pod.metadata.creation_timestamp = Some(ports::ApiTime::from_nanos(at(seconds).nanos()));
        pod
    };
    let mut upsert = |pod: &Pod, node: Option<u32>, second: i64| {
        let seen = pods.upsert(pod, node.map(NodeId), 1, at(second)).pod;
        pods.get(seen).expect("there").bound
    };
    assert_eq!(upsert(&dated(9_000), None, 100), Some(at(100)));
    assert_eq!(upsert(&dated(9_000), Some(1), 200), Some(at(200)), "bound only now");
    assert_eq!(upsert(&dated(9_000), Some(1), 300), Some(at(200)), "seen again");
    assert_eq!(upsert(&dated(9_000), Some(1), 10_000), Some(at(200)), "our clock came to it");
    assert_eq!(upsert(&dated(50), Some(2), 400), Some(at(50)), "one that we can believe");
}
