//! Only observed time counts.

use super::*;

const GAP: Duration = Duration::from_secs(10);
const SETTLING: Duration = Duration::from_secs(15);

fn looked(instants: &[i64]) -> (ObservationClock, Duration) {
    let mut observation_clock = ObservationClock::new(GAP, SETTLING);
    for &instant in instants {
        observation_clock.observed_through(ControllerTime::from_secs(instant));
    }
    let observed_time = observation_clock.observed_time().since(ObservedTime::default());
    (observation_clock, observed_time)
}

#[test]
fn time_is_observed_only_while_the_view_is_whole() {
    let rows: [(&str, &[i64], u64); 11] = [
        ("the first look is a beginning", &[100], 0),
        ("steps add up", &[100, 105, 110], 10),
        ("a step of exactly the bound counts", &[100, 110], 10),
        ("a larger one was absence", &[100, 111], 0),
        ("after which the clock stands for a while", &[100, 111, 116, 121, 126], 0),
        ("and then goes on", &[100, 105, 116, 121, 126, 131, 132], 6),
        ("a pause lets it stand longer", &[100, 105, 116, 124, 129, 134, 139, 140], 6),
        ("a pause after a start does not", &[100, 106, 111], 11),
        ("a clock set back adds nothing", &[100, 90, 95, 100, 101], 1),
        ("nor does one set back later", &[100, 105, 100, 105, 106], 6),
        ("years ahead is absence too", &[100, 101, 2_000_000_000, 2_000_000_003], 1),
    ];
    for (name, instants, seconds) in rows {
        assert_eq!(looked(instants).1, Duration::from_secs(seconds), "{name}");
    }
}

#[test]
fn freshness_and_forecast() {
    let (observation_clock, _) = looked(&[100, 105]);
    assert!(observation_clock.is_fresh(ControllerTime::from_secs(115)));
    assert!(!observation_clock.is_fresh(ControllerTime::from_secs(116)));
    assert!(
        !ObservationClock::new(GAP, SETTLING).is_fresh(ControllerTime::from_secs(0)),
        "never looked, never fresh"
    );
    let ahead = |seconds| {
        observation_clock
            .latest_possible(ControllerTime::from_secs(seconds))
            .since(observation_clock.observed_time())
            .as_secs()
    };
    assert_eq!([ahead(100), ahead(105), ahead(115), ahead(116)], [0, 0, 10, 0]);
    let point = observation_clock.observed_time().after(Duration::from_secs(7));
    assert_eq!(observation_clock.reached_at(point), Some(ControllerTime::from_secs(112)));
    assert_eq!(
        observation_clock.reached_at(ObservedTime::default()),
        Some(ControllerTime::from_secs(105))
    );
    let (back, _) = looked(&[100, 105, 200]);
    let point = back.observed_time().after(Duration::from_secs(7));
    assert_eq!(
        back.reached_at(point),
        Some(ControllerTime::from_secs(222)),
        "15 s settling and 7 s"
    );
    assert_eq!(back.latest_possible(ControllerTime::from_secs(210)), back.observed_time());
}

#[test]
fn acting_waits_until_things_have_settled() {
    let rows: [(&str, &[i64], i64, bool); 9] = [
        ("only just come", &[100], 105, false),
        ("not long enough", &[100, 105, 110, 114], 114, false),
        ("long enough", &[100, 105, 110, 115], 115, true),
        ("settled, and a moment ago", &[100, 105, 110, 115], 125, true),
        ("settled, but too long ago", &[100, 105, 110, 115], 126, false),
        ("time passed, but unseen", &[100, 105, 110], 116, false),
        ("a pause starts it anew", &[100, 105, 111, 116], 116, false),
        ("until that is over", &[100, 105, 111, 116, 121, 126], 126, true),
        ("once settled a pause is nothing", &[100, 105, 110, 115, 124], 124, true),
    ];
    for (name, instants, now, expected) in rows {
        let (observation_clock, _) = looked(instants);
        assert_eq!(observation_clock.may_act(ControllerTime::from_secs(now)), expected, "{name}");
    }
}
