//! Only time in sight counts.

use super::*;

const GAP: Duration = Duration::from_secs(10);

fn looked(moments: &[i64]) -> (Attention, Duration) {
    let mut attention = Attention::new(GAP);
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
    assert!(!Attention::new(GAP).is_fresh(Moment::from_secs(0)), "never looked, never fresh");
    let ahead = |seconds| {
        attention.at_most(Moment::from_secs(seconds)).since(attention.attended()).as_secs()
    };
    assert_eq!([ahead(100), ahead(105), ahead(115), ahead(116)], [0, 0, 10, 0]);
    let point = attention.attended().after(Duration::from_secs(7));
    assert_eq!(attention.reaches(point), Some(Moment::from_secs(112)));
    assert_eq!(attention.reaches(Attended::default()), Some(Moment::from_secs(105)));
}
