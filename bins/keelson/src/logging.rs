//! The agent's log: `tracing` events as klog text lines or as JSON lines.
//!
//! Rule: one event, one write, at once, by its own thread; queued lines are written before the
//! process ends, as long as the stream is read. The settings `flushFrequency` and `infoBufferSize`
//! have nothing to act on (they are accepted and ignored). A stream that is closed, broken or not
//! read costs lines, never the agent's time. What looks like a secret by its name or form is masked
//! before any format sees it.
//!
//! Field names come out in upstream's form (`restart_in_seconds` is `restartInSeconds`).
//!
//! Levels: `error!`, `warn!` always; `info!` has verbosity 0 unless its field `v` says otherwise;
//! `debug!` 4, `trace!` 6; those of foreign crates `info!` 4, `debug!` 8, `trace!` 10.

mod glob;
mod json_lines;
mod klog_text;
mod layer;
mod line_form;
mod line_queue;
mod panic_report;
mod record;
mod secrets;
mod stream;
#[cfg(test)]
mod tests;
mod verbosity;

pub(crate) use layer::LogLayer;
pub(crate) use line_form::LineForm;
pub(crate) use panic_report::report_panics;
pub(crate) use stream::{LineSink, ProcessStreams};
pub(crate) use verbosity::{FilePattern, Verbosity};

use ports::HealthCheck;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};
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

/// The context of a line: process id, clock, and time zone.
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
            time_zone: local_time_zone(),
        }
    }
}

/// The rules of a zone take a few thousand bytes.
const MAX_ZONE_BYTES: u64 = 1 << 20;

/// The machine's zone. If TZ is not set, its file is read directly: a search by name would keep a
/// list of all the world's zones in memory.
fn local_time_zone() -> jiff::tz::TimeZone {
    let named = std::env::var_os("TZ").is_some();
    let zone = if named { None } else { zone_of_file(Path::new("/etc/localtime")) };
    zone.unwrap_or_else(jiff::tz::TimeZone::system)
}

fn zone_of_file(path: &Path) -> Option<jiff::tz::TimeZone> {
    let mut rules = Vec::new();
    File::open(path).ok()?.take(MAX_ZONE_BYTES).read_to_end(&mut rules).ok()?;
    jiff::tz::TimeZone::tzif("Local", &rules).ok()
}

/// Process-wide like the subscriber and the panic hook, which write to them.
static STREAMS: OnceLock<ProcessStreams> = OnceLock::new();

/// How long the exit of the process waits for a reader.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// Makes `settings` the log of this process, panics included. Later calls change nothing.
pub(crate) fn start(settings: &LogSettings) {
    let form = Arc::new(LineForm::new(settings.format, LogContext::of_this_process()));
    let streams = STREAMS.get_or_init(|| {
        let form = Arc::clone(&form);
        let notice = Arc::new(move |dropped| form.notice_of_drops(dropped));
        ProcessStreams::open(settings.split_stream, &(notice as line_queue::DropNotice))
    });
    let layer = LogLayer::new(settings.verbosity.clone(), form, Box::new(streams));
    // An error means that a log was started before, which then stays.
    if tracing_subscriber::registry().with(layer).try_init().is_ok() {
        report_panics();
    }
}

/// Flushes the last lines. Call once, after the last event.
pub(crate) fn finish() {
    flush(FLUSH_TIMEOUT);
}

/// Whether lines are written. A log that is not is no reason to end the agent: it costs lines only.
pub(crate) struct LogCheck;

/// As long as the kubelet waits for its log.
const MAX_STANDSTILL: Duration = Duration::from_secs(120);

impl HealthCheck for LogCheck {
    fn name(&self) -> &str {
        "log"
    }
    fn check(&self) -> Result<(), String> {
        match STREAMS.get().map(ProcessStreams::standstill) {
            Some(time) if time > MAX_STANDSTILL => {
                Err(format!("logging blocked: no line was read for {} s", time.as_secs()))
            }
            _ => Ok(()),
        }
    }
}

fn flush(longest: Duration) {
    if let Some(streams) = STREAMS.get() {
        streams.flush(longest);
    }
}
