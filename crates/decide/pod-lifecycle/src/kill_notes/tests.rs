//! No kill replaces another, and their number is bounded.

use super::{MOST_NOTES, MemoryKillNote, MemoryKillNotes};

fn named(order: u64) -> MemoryKillNote {
    MemoryKillNote { order, ..MemoryKillNote::default() }
}

fn counted(unnamed: u64) -> MemoryKillNote {
    MemoryKillNote { unnamed, ..MemoryKillNote::default() }
}

/// Orders, or counts as negative numbers.
fn kept(notes: &MemoryKillNotes) -> Vec<i64> {
    let one = |note: &MemoryKillNote| match note.unnamed {
        0 => i64::try_from(note.order).unwrap(),
        count => -i64::try_from(count).unwrap(),
    };
    notes.iter().map(one).collect()
}

#[test]
fn which_kills_are_noted() {
    type Row = (&'static [(i64, bool)], &'static [i64], &'static [bool]);
    let rows: [Row; 8] = [
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
        let mut notes = MemoryKillNotes::default();
        let was: Vec<bool> = kills
            .iter()
            .map(|(number, with_another)| {
                let size = number.unsigned_abs();
                let note = if *number < 0 { counted(size) } else { named(size) };
                notes.add(note, *with_another)
            })
            .collect();
        assert_eq!((kept(&notes).as_slice(), was.as_slice()), (expected, noted), "{kills:?}");
        assert_eq!(notes.is_empty(), expected.is_empty());
        assert_eq!(notes.dropped_after(0), 0, "{kills:?}");
    }
}

#[test]
fn of_many_the_last_are_kept_and_that_there_were_more_is_known() {
    let mut notes = MemoryKillNotes::default();
    for kill in 1..=20_u64 {
        assert!(notes.add(named(10 * kill), false));
    }
    assert_eq!(kept(&notes), [130, 140, 150, 160, 170, 180, 190, 200]);
    assert_eq!(notes.iter().len(), MOST_NOTES);
    // Twelve were dropped; how many of them had been reported is not known exactly.
    let rows = [(0, 12), (10, 12), (100, 12), (110, 10), (119, 1), (120, 0), (200, 0)];
    for (told, most) in rows {
        assert_eq!(notes.dropped_after(told), most, "told up to {told}");
    }
    let limited = notes.limited_to(Some(7));
    assert_eq!(kept(&limited), [130, 140, 150, 160, 170, 180, 190, 200]);
    assert!(limited.iter().all(|note| note.limit == Some(7)));
}
