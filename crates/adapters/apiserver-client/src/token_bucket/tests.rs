//! The token bucket on a simulated clock.

use super::*;

fn new_bucket(per_second: f64, burst: u32) -> RequestTokenBucket {
    RequestTokenBucket::new(RateLimit { per_second, burst })
}

#[test]
fn a_burst_passes_at_once_and_then_the_rate_applies() {
    let mut bucket = new_bucket(5.0, 3);
    let waits: Vec<u128> = (0..6).map(|_| bucket.take(Duration::ZERO).as_millis()).collect();
    assert_eq!(waits, [0, 0, 0, 200, 400, 600]);
    // Three tokens were taken in advance; one second adds five, so two are left.
    let waits: Vec<u128> =
        (0..3).map(|_| bucket.take(Duration::from_secs(1)).as_millis()).collect();
    assert_eq!(waits, [0, 0, 200]);
}

#[test]
fn the_bucket_never_exceeds_its_burst_even_if_the_clock_goes_back() {
    let mut bucket = new_bucket(5.0, 2);
    let hour = Duration::from_secs(3600);
    let waits: Vec<u128> = (0..3).map(|_| bucket.take(hour).as_millis()).collect();
    assert_eq!(waits, [0, 0, 200]);
    assert_eq!(bucket.take(Duration::ZERO).as_millis(), 400);
}

#[test]
fn an_unused_token_can_be_given_back() {
    let mut bucket = new_bucket(1.0, 1);
    assert_eq!(bucket.take(Duration::ZERO), Duration::ZERO);
    // Asking for the wait takes no token.
    assert_eq!(bucket.wait(Duration::ZERO), Duration::from_secs(1));
    assert_eq!(bucket.take(Duration::ZERO), Duration::from_secs(1));
    bucket.give_back();
    assert_eq!(bucket.take(Duration::ZERO), Duration::from_secs(1));
}

#[test]
fn a_rate_that_is_not_positive_and_finite_means_no_limit() {
    for rate in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert_eq!(RateLimit::new(rate, 10), None, "{rate}");
    }
    assert_eq!(RateLimit::new(5.0, 0), Some(RateLimit { per_second: 5.0, burst: 1 }));
}

#[test]
fn tokens_due_close_together_become_due_at_the_same_time() {
    let mut bucket = new_bucket(20.0, 1);
    let waits: Vec<u128> = (0..10).map(|_| bucket.take(Duration::ZERO).as_millis()).collect();
    assert_eq!(waits, [0, 200, 200, 200, 200, 400, 400, 400, 400, 600]);
    // A caller between two steps waits for the next one, and never shorter than its token requires.
    let mut bucket = new_bucket(20.0, 1);
    bucket.take(Duration::from_millis(90));
    assert_eq!(bucket.take(Duration::from_millis(90)).as_millis(), 110);
    let mut bucket = new_bucket(1000.0, 1);
    let waits: Vec<u128> = (0..6).map(|_| bucket.take(Duration::ZERO).as_millis()).collect();
    assert_eq!(waits, [0, 4, 4, 4, 4, 8]);
}
