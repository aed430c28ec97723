//! Only observed time counts.

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
    for (name, moments, seconds) in rows {
        assert_eq!(looked(moments).1, Duration::from_secs(seconds), "{name}");
    }
}

#[test]
fn freshness_and_forecast() {
    let (attention, _) = looked(&[100, 105]);
    assert!(attention.is_fresh(Moment::from_secs(115)));
    assert!(!attention.is_fresh(Moment::from_secs(116)));
    assert!(
        !Attention::new(GAP, SETTLING).is_fresh(Moment::from_secs(0)),
        "never looked, never fresh"
    );
    let ahead = |seconds| {
        attention.at_most(Moment::from_secs(seconds)).since(attention.attended()).as_secs()
    };
    assert_eq!([ahead(100), ahead(105), ahead(115), ahead(116)], [0, 0, 10, 0]);
    let point = attention.attended().after(Duration::from_secs(7));
    assert_eq!(attention.reaches(point), Some(Moment::from_secs(112)));
    assert_eq!(attention.reaches(Attended::default()), Some(Moment::from_secs(105)));
    let (back, _) = looked(&[100, 105, 200]);
    let point = back.attended().after(Duration::from_secs(7));
    assert_eq!(back.reaches(point), Some(Moment::from_secs(222)), "15 s settling and 7 s");
    assert_eq!(back.at_most(Moment::from_secs(210)), back.attended());
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
    for (name, moments, now, expected) in rows {
        let (attention, _) = looked(moments);
        assert_eq!(attention.may_act(Moment::from_secs(now)), expected, "{name}");
    }
}
