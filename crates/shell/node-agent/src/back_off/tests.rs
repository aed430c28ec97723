//! The sequence of delays.

use super::*;

#[test]
fn delays_double_up_to_the_longest_and_start_over_after_a_reset() {
    let mut back_off = ExponentialBackOff::new(Duration::from_secs(1), Duration::from_secs(5));
    let delays: Vec<u64> = (0..5).map(|_| back_off.pause().as_secs()).collect();
    assert_eq!(delays, [1, 2, 4, 5, 5]);
    back_off.reset();
    assert_eq!(back_off.pause().as_secs(), 1);
}

#[test]
fn a_first_delay_beyond_the_longest_is_capped() {
    let mut back_off = ExponentialBackOff::new(Duration::from_secs(9), Duration::from_secs(5));
    assert_eq!(back_off.pause().as_secs(), 5);
}
