//! Most urgent first, and one write to a node at a time.

use super::*;

const A: NodeId = NodeId(1);
const B: NodeId = NodeId(2);

fn labels(node: NodeId) -> Pending {
    Pending::LifecycleAction(LifecycleAction::SetLabels { node, version: 1, labels: Vec::new() })
}

fn names(queue: &mut WriteQueue) -> Vec<String> {
    std::iter::from_fn(|| queue.pop())
        .map(|pending| match pending {
            Pending::Range(node) => format!("range {}", node.0),
            Pending::Evict(node, _) => format!("evict {}", node.0),
            Pending::LifecycleAction(LifecycleAction::SetLabels { node, .. }) => {
                format!("labels {}", node.0)
            }
            other => format!("{other:?}"),
        })
        .collect()
}

#[test]
fn writes_to_one_node_wait_for_each_other() {
    let mut queue = WriteQueue::default();
    queue.push(labels(A));
    queue.push(Pending::Range(A));
    queue.push(Pending::Range(B));
    queue.push(labels(B));
    queue.push(Pending::Evict(A, Vec::new()));
    assert_eq!(names(&mut queue), ["range 1", "range 2", "evict 1"], "its pods are no node");
    assert!(queue.is_empty(), "nothing can be sent");
    queue.free(A);
    assert!(!queue.is_empty());
    assert_eq!(names(&mut queue), ["labels 1"]);
    queue.free(B);
    queue.free(A);
    assert_eq!(names(&mut queue), ["labels 2"]);
}
