//! The agent's log: `tracing` events as klog text lines or as JSON lines.
//!
//! Rule: one event, one write, at once; no buffer, so nothing is lost at the end and the settings
//! `flushFrequency` and `infoBufferSize` have nothing to act on (they are accepted and ignored).
//! A stream that is closed or broken costs lines, never the agent. What looks like a secret by its
//! name or form is masked before any format sees it.
//!
//! Field names come out in upstream's form (`restart_in_seconds` is `restartInSeconds`).
//!
//! Levels: `error!`, `warn!` always; `info!` has verbosity 0 unless its field `v` says otherwise;
//! `debug!` 4, `trace!` 6; those of foreign crates `info!` 4, `debug!` 8, `trace!` 10.

mod glob;
mod json_lines;
mod klog_text;
mod layer;
mod panic_report;
mod record;
mod secrets;
mod stream;
#[cfg(test)]
mod tests;
mod verbosity;

pub(crate) use layer::LogLayer;
pub(crate) use panic_report::report_panics;
pub(crate) use stream::{LogStream, ProcessStreams};
pub(crate) use verbosity::{FilePattern, Verbosity};

use std::time::SystemTime;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// The two forms a line can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

/// Everything that the log is set up with.
#[derive(Debug, Clone)]
pub(crate) struct LogSettings {
    pub(crate) format: LogFormat,
    pub(crate) verbosity: Verbosity,
    /// Information to standard output and errors to standard error, instead of all to the latter.
    pub(crate) split_stream: bool,
}

/// What a line needs besides the event: who writes, when, and in which time zone.
pub(crate) struct LogContext {
    pub(crate) process: u32,
    pub(crate) clock: Box<dyn Fn() -> SystemTime + Send + Sync>,
    pub(crate) time_zone: jiff::tz::TimeZone,
}

impl LogContext {
    pub(crate) fn of_this_process() -> LogContext {
        LogContext {
            process: std::process::id(),
            clock: Box::new(SystemTime::now),
            time_zone: jiff::tz::TimeZone::system(),
        }
    }
}

/// Makes `settings` the log of this process, panics included. Later calls change nothing.
pub(crate) fn start(settings: &LogSettings) {
    let streams = ProcessStreams { split: settings.split_stream };
    let layer = LogLayer::new(settings, LogContext::of_this_process(), Box::new(streams));
    // An error means that a log was started before, which then stays.
    if tracing_subscriber::registry().with(layer).try_init().is_ok() {
        report_panics();
    }
}
