//! Orders on a clock that moves between two looks at it, as real ones do.

use super::*;

fn queue(limits: PullLimits) -> Queue {
    let rate = Rate::new(limits.per_second, limits.burst, Instant::now());
    let (order, waiting, running) = (VecDeque::new(), HashMap::new(), HashMap::new());
    Queue { limits, rate, order, waiting, running }
}

fn order(image: &str) -> PullOrder {
    let key =
        PullKey { image: image.to_owned(), handler: String::new(), login: None, is_for_all: true };
    let (answer, _) = oneshot::channel();
    let (named, owner) = (image.to_owned(), LoginOwner::Node);
    let (annotations, sandbox) = (Default::default(), Default::default());
    PullOrder { key, named, owner, annotations, sandbox, answer }
}

#[test]
fn what_may_begin_begins_at_once() {
    for (per_second, burst) in [(0, 0), (5, 10)] {
        let mut queue = queue(PullLimits { side_by_side: Some(1), per_second, burst });
        queue.add(order("a"));
        queue.add(order("b"));
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
    queue.add(order("a"));
    queue.add(order("b"));
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
