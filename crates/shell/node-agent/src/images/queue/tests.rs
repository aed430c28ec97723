//! Orders on a clock that advances between two readings, as real ones do.

use super::*;
use ports::runtime_objects::SandboxConfig;

fn queue(limits: PullLimits) -> PullQueue {
    let token_bucket = TokenBucket::new(limits.per_second, limits.burst, Instant::now());
    let (order, waiting, running) = (VecDeque::new(), HashMap::new(), HashMap::new());
    PullQueue { limits, token_bucket, order, waiting, running }
}

type PullWaiter = oneshot::Receiver<Result<Pulled, String>>;

fn order(image: &str) -> (PullJob, PullWaiter) {
    order_of(image, "namespace", "pod")
}

fn order_of(image: &str, namespace: &str, pod: &str) -> (PullJob, PullWaiter) {
    let key = PullKey {
        image: image.to_owned(),
        handler: String::new(),
        login: None,
        is_for_all: true,
        namespace: namespace.to_owned(),
    };
    let (answer, asker) = oneshot::channel();
    let (named, owner) = (image.to_owned(), CredentialOwner::Node);
    let sandbox = Box::new(SandboxConfig { name: pod.to_owned(), ..SandboxConfig::default() });
    let annotations = Default::default();
    (PullJob { key, named, owner, annotations, sandbox, answer }, asker)
}

/// Image and pod of the pull that begins.
fn begun(queue: &mut PullQueue) -> Option<(String, String)> {
    let (key, pull) = queue.pop_next(0)?;
    Some((key.image, pull.request.sandbox.expect("always").name))
}

#[test]
fn cancelled_jobs_start_no_pull() {
    let limits = PullLimits { max_parallel: Some(1), per_second: 1, burst: 2 };
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
fn each_namespace_has_its_own_pull() {
    let mut queue = queue(PullLimits { max_parallel: None, per_second: 0, burst: 0 });
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
fn an_allowed_pull_starts_at_once() {
    for (per_second, burst) in [(0, 0), (5, 10)] {
        let mut queue = queue(PullLimits { max_parallel: Some(1), per_second, burst });
        let ((a, _first), (b, _second)) = (order("a"), order("b"));
        queue.add(a);
        queue.add(b);
        let begun = queue.pop_next(0).map(|(key, _)| key.image);
        assert_eq!(begun.as_deref(), Some("a"), "{per_second} per second");
        assert!(queue.pop_next(1).is_none(), "one at a time");
        let begun = queue.pop_next(0).map(|(key, _)| key.image);
        assert_eq!(begun.as_deref(), Some("b"), "{per_second} per second");
    }
}

#[test]
fn the_rate_limit_delays_the_next_pull() {
    let mut queue = queue(PullLimits { max_parallel: None, per_second: 1, burst: 1 });
    let ((a, _first), (b, _second)) = (order("a"), order("b"));
    queue.add(a);
    queue.add(b);
    assert!(queue.pop_next(0).is_some());
    assert!(queue.pop_next(1).is_none());
    let now = Instant::now();
    let next_start = queue.next_start(1, now).expect("one waits");
    assert!(next_start > now && next_start <= now + Duration::from_secs(1));
}

#[test]
fn a_pull_error_is_worded_as_upstream_words_it() {
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
        assert_eq!(reference_error_text(error), expected);
    }
}
