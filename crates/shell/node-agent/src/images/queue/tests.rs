//! Orders on a clock that advances between two readings, as real ones do.

use super::*;
use ports::runtime_objects::SandboxConfig;

fn queue(limits: PullLimits) -> Queue {
    let rate = Rate::new(limits.per_second, limits.burst, Instant::now());
    let (order, waiting, running) = (VecDeque::new(), HashMap::new(), HashMap::new());
    Queue { limits, rate, order, waiting, running }
}

type Asker = oneshot::Receiver<Result<Pulled, String>>;

fn order(image: &str) -> (PullOrder, Asker) {
    order_of(image, "namespace", "pod")
}

fn order_of(image: &str, namespace: &str, pod: &str) -> (PullOrder, Asker) {
    let key = PullKey {
        image: image.to_owned(),
        handler: String::new(),
        login: None,
        is_for_all: true,
        namespace: namespace.to_owned(),
    };
    let (answer, asker) = oneshot::channel();
    let (named, owner) = (image.to_owned(), LoginOwner::Node);
    let sandbox = Box::new(SandboxConfig { name: pod.to_owned(), ..SandboxConfig::default() });
    let annotations = Default::default();
    (PullOrder { key, named, owner, annotations, sandbox, answer }, asker)
}

/// Image and pod of the pull that begins.
fn begun(queue: &mut Queue) -> Option<(String, String)> {
    let (key, pull) = queue.next_to_begin(0)?;
    Some((key.image, pull.request.sandbox.expect("always").name))
}

#[test]
fn nothing_begins_for_those_who_are_gone() {
    let limits = PullLimits { side_by_side: Some(1), per_second: 1, burst: 2 };
    let mut queue = queue(limits);
    let mut askers = Vec::new();
    for (image, pod) in
        [("a", "gone"), ("b", "gone"), ("c", "gone"), ("b", "stays"), ("d", "stays")]
    {
        let (order, asker) = order_of(image, "namespace", pod);
        queue.add(order);
        askers.push((pod, asker));
    }
    askers.retain(|(pod, _)| *pod == "stays");
    let pull = |image: &str| Some((image.to_owned(), "stays".to_owned()));
    assert_eq!(begun(&mut queue), pull("b"), "told of the one who waits");
    assert_eq!(begun(&mut queue), pull("d"), "the others have used up nothing of the rate");
    assert!(queue.order.is_empty() && queue.waiting.is_empty());
}

#[test]
fn a_namespace_is_one_pull() {
    let mut queue = queue(PullLimits { side_by_side: None, per_second: 0, burst: 0 });
    let mut askers = Vec::new();
    for (namespace, pod) in [("one", "first"), ("two", "second"), ("one", "third")] {
        let (order, asker) = order_of("i", namespace, pod);
        queue.add(order);
        askers.push(asker);
    }
    let pulls: Vec<String> = std::iter::from_fn(|| begun(&mut queue)).map(|(_, pod)| pod).collect();
    assert_eq!(pulls, ["first", "second"]);
}

#[test]
fn what_may_begin_begins_at_once() {
    for (per_second, burst) in [(0, 0), (5, 10)] {
        let mut queue = queue(PullLimits { side_by_side: Some(1), per_second, burst });
        let ((a, _first), (b, _second)) = (order("a"), order("b"));
        queue.add(a);
        queue.add(b);
        let begun = queue.next_to_begin(0).map(|(key, _)| key.image);
        assert_eq!(begun.as_deref(), Some("a"), "{per_second} per second");
        assert!(queue.next_to_begin(1).is_none(), "one at a time");
        let begun = queue.next_to_begin(0).map(|(key, _)| key.image);
        assert_eq!(begun.as_deref(), Some("b"), "{per_second} per second");
    }
}

#[test]
fn the_rate_holds_the_next_one_back() {
    let mut queue = queue(PullLimits { side_by_side: None, per_second: 1, burst: 1 });
    let ((a, _first), (b, _second)) = (order("a"), order("b"));
    queue.add(a);
    queue.add(b);
    assert!(queue.next_to_begin(0).is_some());
    assert!(queue.next_to_begin(1).is_none());
    let now = Instant::now();
    let turn = queue.turn(1, now).expect("one waits");
    assert!(turn > now && turn <= now + Duration::from_secs(1));
}

#[test]
fn a_refusal_is_told_as_the_reference_tells_it() {
    let refused = |code: &str| ContainerRuntimeError::Refused {
        call: "PullImage",
        code: code.to_owned(),
        message: "no".to_owned(),
    };
    let missing = ContainerRuntimeError::NotFound { call: "PullImage", message: "no".to_owned() };
    for (error, expected) in [
        (refused("Unknown"), "no"),
        (refused("PermissionDenied"), "rpc error: code = PermissionDenied desc = no"),
        (missing, "rpc error: code = NotFound desc = no"),
    ] {
        assert_eq!(in_reference_words(error), expected);
    }
}
