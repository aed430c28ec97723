//! Few bytes each, and one entry per unique id.

use serde_json::json;

use super::*;

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
fn what_pods_share_is_kept_once() {
    let mut pods = Pods::default();
    let node = Some(NodeId(0));
    let a = pods.see(&pod("a", "1", 300), node, 1);
    let b = pods.see(&pod("b", "2", 300), node, 1);
    let c = pods.see(&pod("c", "3", 5), node, 1);
    assert!(a.newly_bound && b.newly_bound && c.newly_bound);
    assert!(!pods.see(&pod("a", "1", 300), node, 2).newly_bound);
    let list = |pod: PodId| pods.get(pod).expect("there").tolerations.clone();
    assert!(Arc::ptr_eq(&list(a.pod), &list(b.pod)));
    assert!(!Arc::ptr_eq(&list(a.pod), &list(c.pod)));
    assert_eq!(pods.missing_from(2), [b.pod, c.pod]);
    assert_eq!(pods.len(), 3);
    assert!(size_of::<PodEntry>() <= 160, "{} bytes", size_of::<PodEntry>());
}

#[test]
fn a_number_is_given_again_only_when_its_pod_is_gone() {
    let mut pods = Pods::default();
    let a = pods.see(&pod("a", "1", 1), None, 1).pod;
    let b = pods.see(&pod("a", "2", 1), None, 1).pod;
    assert_ne!(a, b, "the same name made again is another pod");
    pods.set_interest(a, true);
    assert!(pods.remove(a).is_some());
    assert!(pods.remove(a).is_none());
    assert_eq!(pods.of_interest().count(), 0);
    assert_eq!(pods.see(&pod("c", "3", 1), None, 1).pod, a);
    assert_eq!(pods.find(&Uid::new("1")), None);
}

#[test]
fn lists_that_nobody_uses_are_swept() {
    let mut pods = Pods::default();
    for number in 0..5_000 {
        let seen = pods.see(&pod("a", "1", number), None, 1);
        assert!(pods.get(seen.pod).is_some());
    }
    assert!(pods.tolerations.len() <= 2 * SWEEP, "{}", pods.tolerations.len());
}
