//! Only time in sight counts.

use super::*;

const GAP: Duration = Duration::from_secs(10);
const SETTLING: Duration = Duration::from_secs(15);

fn looked(moments: &[i64]) -> (Attention, Duration) {
    let mut attention = Attention::new(GAP, SETTLING);
    for &moment in moments {
        attention.look(Moment::from_secs(moment));
    }
    let attended = attention.attended().since(Attended::default());
    (attention, attended)
}

#[test]
fn what_counts_as_attention() {
    let rows: [(&str, &[i64], u64); 6] = [
        ("the first look is a beginning", &[100], 0),
        ("steps add up", &[100, 105, 110], 10),
        ("a step of exactly the bound counts", &[100, 110], 10),
        ("a larger one was absence", &[100, 111, 112], 1),
        ("a clock set back adds nothing", &[100, 90, 95, 100, 101], 1),
        ("years ahead is absence too", &[100, 2_000_000_000, 2_000_000_003], 3),
    ];
    for (name, moments, seconds) in rows {
        assert_eq!(looked(moments).1, Duration::from_secs(seconds), "{name}");
    }
}

#[test]
fn freshness_and_forecast() {
    let (attention, _) = looked(&[100, 105]);
    assert!(attention.is_fresh(Moment::from_secs(115)));
    assert!(!attention.is_fresh(Moment::from_secs(116)));
    assert!(!Attention::new(GAP, SETTLING).is_fresh(Moment::from_secs(0)), "never looked, never fresh");
    let ahead = |seconds| {
        attention.at_most(Moment::from_secs(seconds)).since(attention.attended()).as_secs()
    };
    assert_eq!([ahead(100), ahead(105), ahead(115), ahead(116)], [0, 0, 10, 0]);
    let point = attention.attended().after(Duration::from_secs(7));
    assert_eq!(attention.reaches(point), Some(Moment::from_secs(112)));
    assert_eq!(attention.reaches(Attended::default()), Some(Moment::from_secs(105)));
}

#[test]
fn acting_waits_until_things_have_settled() {
    let rows: [(&[i64], i64, bool); 7] = [
        (&[100], 105, false),
        (&[100, 110], 114, false),
        (&[100, 110], 115, true),
        (&[100, 110], 121, false),
        (&[100, 110, 120, 131], 131, false),
        (&[100, 110, 120, 131, 140], 145, false),
        (&[100, 110, 120, 131, 140], 146, true),
    ];
    for (moments, now, expected) in rows {
        let (attention, _) = looked(moments);
        assert_eq!(attention.may_act(Moment::from_secs(now)), expected, "{moments:?} at {now}");
    }
}
