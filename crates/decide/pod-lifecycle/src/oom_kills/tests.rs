//! No kill replaces another, and their number is bounded.

use super::{MAX_RECORDS, OomKillRecord, OomKillRecords};

fn named(order: u64) -> OomKillRecord {
    OomKillRecord { order, ..OomKillRecord::default() }
}

fn counted(unnamed: u64) -> OomKillRecord {
    OomKillRecord { unnamed, ..OomKillRecord::default() }
}

/// Orders, or counts as negative numbers.
fn persisted(notes: &OomKillRecords) -> Vec<i64> {
    let one = |note: &OomKillRecord| match note.unnamed {
        0 => i64::try_from(note.order).unwrap(),
        count => -i64::try_from(count).unwrap(),
    };
    notes.iter().map(one).collect()
}

#[test]
fn a_kill_is_recorded_once_by_number_or_count() {
    type OomKillRow = (&'static [(i64, bool)], &'static [i64], &'static [bool]);
    let rows: [OomKillRow; 8] = [
        (&[(3, false), (4, false)], &[3, 4], &[true, true]),
        // Read again, as when the log is read from its beginning.
        (&[(3, false), (4, false), (3, false), (4, false)], &[3, 4], &[true, true, false, false]),
        // Those killed along with a victim are covered by the victim's kill, or by the first of
        // them.
        (&[(3, false), (4, true), (5, true), (9, false)], &[3, 9], &[true, false, false, true]),
        (&[(4, true), (5, true)], &[4], &[true, false]),
        (&[(-1, false), (-3, false)], &[-3], &[true, true]),
        (&[(5, false), (-1, false), (-2, false)], &[5, -2], &[true, true, true]),
        (&[(-1, false), (5, false), (6, false)], &[-1, 5, 6], &[true, true, true]),
        (&[], &[], &[]),
    ];
    for (kills, expected, noted) in rows {
        let mut notes = OomKillRecords::default();
        let was: Vec<bool> = kills
            .iter()
            .map(|(number, with_another)| {
                let size = number.unsigned_abs();
                let note = if *number < 0 { counted(size) } else { named(size) };
                notes.add(note, *with_another)
            })
            .collect();
        assert_eq!((persisted(&notes).as_slice(), was.as_slice()), (expected, noted), "{kills:?}");
        assert_eq!(notes.is_empty(), expected.is_empty());
        assert_eq!(notes.dropped_after(0), 0, "{kills:?}");
    }
}

#[test]
fn beyond_the_limit_the_oldest_kills_are_dropped_and_counted() {
    let mut notes = OomKillRecords::default();
    for kill in 1..=20_u64 {
        assert!(notes.add(named(10 * kill), false));
    }
    assert_eq!(persisted(&notes), [130, 140, 150, 160, 170, 180, 190, 200]);
    assert_eq!(notes.iter().len(), MAX_RECORDS);
    // Twelve were dropped; how many of them had been reported is not known exactly.
    let rows = [(0, 12), (10, 12), (100, 12), (110, 10), (119, 1), (120, 0), (200, 0)];
    for (effects, most) in rows {
        assert_eq!(notes.dropped_after(effects), most, "told up to {effects}");
    }
    let limited = notes.limited_to(Some(7));
    assert_eq!(persisted(&limited), [130, 140, 150, 160, 170, 180, 190, 200]);
    assert!(limited.iter().all(|note| note.limit == Some(7)));
}
