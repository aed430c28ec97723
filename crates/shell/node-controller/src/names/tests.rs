//! Handles stay dense and incarnations distinct.

use super::*;

fn known(uid: &str, list: u32) -> KnownNode {
    KnownNode { uid: Uid::new(uid), list, odd_version: None, odd_taints: false, terminating: false }
}

#[test]
fn a_slot_is_kept_while_a_node_or_pod_uses_it() {
    let mut names = NodeNames::default();
    let a = names.handle("a");
    assert_eq!(names.handle("a"), a);
    names.arrive(a, known("1", 1));
    names.add_pod(a, PodId(7));
    assert_eq!(names.len(), 1);
    let first = names.incarnation(a).expect("there");
    assert!(names.depart(a).is_some());
    assert_eq!((names.len(), names.incarnation(a)), (0, None));
    assert_eq!(names.find("a"), Some(a), "a pod still names it");
    names.arrive(a, known("2", 1));
    assert_ne!(names.incarnation(a), Some(first), "made again, it is another");
    names.depart(a);
    names.remove_pod(a, PodId(7));
    assert_eq!(names.find("a"), None);
    assert_eq!(names.handle("b"), a, "the place is given to the next");
}

#[test]
fn lists_and_samples() {
    let mut names = NodeNames::default();
    let handles: Vec<NodeId> =
        ["a", "b", "c", "d"].into_iter().map(|name| names.handle(name)).collect();
    for (handle, list) in handles.iter().zip([1, 2, 1, 2]) {
        names.arrive(*handle, known("u", list));
    }
    assert_eq!(names.not_in_list(2), [handles[0], handles[2]]);
    names.depart(handles[1]);
    let (some, next) = names.some(0, 2);
    assert_eq!(some, [handles[0], handles[2]]);
    let (more, _) = names.some(next, 2);
    assert_eq!(more, [handles[3], handles[0]]);
    assert_eq!(names.some(0, 10).0.len(), 3);
    assert_eq!(NodeNames::default().some(5, 3), (Vec::new(), 0));
}
