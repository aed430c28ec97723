//! Pauses, table-driven.

use super::*;

#[test]
fn pauses_double_up_to_the_longest() {
    let mut back_off = WatchBackOff::new();
    let pauses: Vec<u128> = (0..8).map(|_| back_off.pause(0.0, None).as_millis()).collect();
    assert_eq!(pauses, [800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000]);
}

#[test]
fn the_spread_at_most_doubles_a_pause_and_nonsense_spreads_nothing() {
    for (jitter, expected) in
        [(0.5, 1200), (1.0, 1600), (7.0, 1600), (-3.0, 800), (f64::NAN, 800), (f64::INFINITY, 800)]
    {
        assert_eq!(WatchBackOff::new().pause(jitter, None).as_millis(), expected, "{jitter}");
    }
}

#[test]
fn a_longer_server_pause_is_honoured_and_a_shorter_one_ignored() {
    let mut back_off = WatchBackOff::new();
    assert_eq!(back_off.pause(0.0, Some(Duration::from_secs(5))), Duration::from_secs(5));
    assert_eq!(back_off.pause(0.0, Some(Duration::from_millis(1))), Duration::from_millis(1600));
}

#[test]
fn only_a_long_lived_attempt_resets_the_back_off() {
    let mut back_off = WatchBackOff::new();
    back_off.pause(0.0, None);
    back_off.record_lifetime(Duration::from_secs(29));
    assert_eq!(back_off.pause(0.0, None).as_millis(), 1600);
    back_off.record_lifetime(Duration::from_secs(30));
    assert_eq!(back_off.pause(0.0, None).as_millis(), 800);
}
