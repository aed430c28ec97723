//! From a record to a line, in the configured format.
//!
//! Rule: the clock is read when the line is made. One format for the whole process: events, panics
//! and the log's own notices look alike.

use super::record::{LogRecord, LogSeverity, Value};
use super::{LogContext, LogFormat, json_lines, klog_text};

pub(crate) struct LineForm {
    format: LogFormat,
    context: LogContext,
}

impl LineForm {
    pub(crate) fn new(format: LogFormat, context: LogContext) -> LineForm {
        LineForm { format, context }
    }

    pub(crate) fn render(&self, record: &LogRecord) -> String {
        let now = (self.context.clock)();
        match self.format {
            LogFormat::Json => json_lines::render(record, now),
            LogFormat::Text => {
                // A clock outside the calendar shows as the epoch; better than no line.
                let timestamp =
                    jiff::Timestamp::try_from(now).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
                let local = timestamp.to_zoned(self.context.time_zone.clone());
                klog_text::render(record, &local, self.context.process)
            }
        }
    }

    /// The line that replaces those that were not read in time.
    pub(crate) fn notice_of_drops(&self, dropped: u64) -> String {
        self.render(&LogRecord {
            severity: LogSeverity::Warning,
            verbosity: 0,
            file: file!(),
            line: line!(),
            message: "Log lines were dropped because they were not read".to_owned(),
            error: None,
            values: vec![("dropped".into(), Value::Unsigned(dropped))],
        })
    }
}
