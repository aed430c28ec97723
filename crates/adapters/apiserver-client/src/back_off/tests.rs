//! Pauses, table-driven.

use super::*;

#[test]
fn pauses_double_up_to_the_longest() {
    let mut back_off = BackOff::new();
    let pauses: Vec<u128> = (0..8).map(|_| back_off.pause(0.0, None).as_millis()).collect();
    assert_eq!(pauses, [800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000]);
}

#[test]
fn the_spread_at_most_doubles_a_pause_and_nonsense_spreads_nothing() {
    for (spread, expected) in
        [(0.5, 1200), (1.0, 1600), (7.0, 1600), (-3.0, 800), (f64::NAN, 800), (f64::INFINITY, 800)]
    {
        assert_eq!(BackOff::new().pause(spread, None).as_millis(), expected, "{spread}");
    }
}

#[test]
fn a_server_that_asks_for_more_time_gets_it_and_never_shortens_a_pause() {
    let mut back_off = BackOff::new();
    assert_eq!(back_off.pause(0.0, Some(Duration::from_secs(5))), Duration::from_secs(5));
    assert_eq!(back_off.pause(0.0, Some(Duration::from_millis(1))), Duration::from_millis(1600));
}

#[test]
fn only_an_attempt_that_held_starts_afresh() {
    let mut back_off = BackOff::new();
    back_off.pause(0.0, None);
    back_off.held(Duration::from_secs(29));
    assert_eq!(back_off.pause(0.0, None).as_millis(), 1600);
    back_off.held(Duration::from_secs(30));
    assert_eq!(back_off.pause(0.0, None).as_millis(), 800);
}
