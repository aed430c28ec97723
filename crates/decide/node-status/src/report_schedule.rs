//! When a status is sent although nothing changed.
//!
//! Rule: at `nodeStatusReportFrequency` after the last report. After a report that a change or a start
//! caused, the next one is moved by up to half of that, so that nodes which changed together do not
//! report together ever after.

/// What is remembered of the reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReportSchedule {
    /// In milliseconds, on a clock that never goes back.
    last: Option<i64>,
    shift: i64,
}

impl ReportSchedule {
    /// When the next report is due; at once where none was made.
    pub fn due_at(&self, frequency: i64) -> Option<i64> {
        self.last.map(|last| last.saturating_add(frequency).saturating_add(self.shift))
    }

    pub fn is_due(&self, now: i64, frequency: i64) -> bool {
        self.due_at(frequency).is_none_or(|due| now >= due)
    }

    /// A report was made. `random` is uniform in 0..1000.
    #[must_use]
    pub fn reported(self, now: i64, frequency: i64, cause: ReportCause, random: u16) -> Self {
        let moved = self.last.is_none() || cause == ReportCause::Change;
        let share = i64::from(random.min(1000)) - 500;
        let shift = if moved { frequency.saturating_mul(share) / 1000 } else { 0 };
        Self { last: Some(now), shift }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportCause {
    Change,
    Period,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_spread_after_a_change_and_regular_otherwise() {
        let never = ReportSchedule::default();
        assert!(never.is_due(0, 300_000));
        // (cause, random, when the next report is due)
        let rows = [
            (ReportCause::Change, 0, 1_150_000),
            (ReportCause::Change, 500, 1_300_000),
            (ReportCause::Change, 1000, 1_450_000),
            (ReportCause::Period, 0, 1_300_000),
        ];
        for (cause, random, due) in rows {
            let earlier = never.reported(700_000, 300_000, ReportCause::Change, 500);
            let schedule = earlier.reported(1_000_000, 300_000, cause, random);
            assert_eq!(schedule.due_at(300_000), Some(due), "{cause:?} {random}");
            assert!(!schedule.is_due(due - 1, 300_000), "{cause:?} {random}");
            assert!(schedule.is_due(due, 300_000), "{cause:?} {random}");
        }
        // The first report of a process is moved whatever caused it.
        let first = never.reported(0, 300_000, ReportCause::Period, 1000);
        assert_eq!(first.due_at(300_000), Some(450_000));
    }
}
