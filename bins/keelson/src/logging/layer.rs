//! The `tracing` layer that turns events into lines.
//!
//! Rule: fields of the spans around an event come before its own, outermost first, as klog's
//! logger values do. Formatting happens on the caller's thread and takes no lock but the stream's.

use super::record::{Fields, Record, Severity};
use super::verbosity::{self, Verbosity};
use super::{LogContext, LogFormat, LogSettings, LogStream, json_lines, klog_text};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::registry::{LookupSpan, Scope};

pub(crate) struct LogLayer {
    format: LogFormat,
    verbosity: Verbosity,
    context: LogContext,
    stream: Box<dyn LogStream>,
}

impl LogLayer {
    pub(crate) fn new(
        settings: &LogSettings,
        context: LogContext,
        stream: Box<dyn LogStream>,
    ) -> LogLayer {
        let verbosity = settings.verbosity.clone();
        LogLayer { format: settings.format, verbosity, context, stream }
    }

    fn write(&self, record: &Record) {
        let now = (self.context.clock)();
        let line = match self.format {
            LogFormat::Json => json_lines::render(record, now),
            LogFormat::Text => {
                // A clock outside the calendar shows as its beginning; better than no line.
                let moment = jiff::Timestamp::try_from(now).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
                let local = moment.to_zoned(self.context.time_zone.clone());
                klog_text::render(record, &local, self.context.process)
            }
        };
        self.stream.write(record.severity, &line);
    }
}

/// Joins an event's own fields with those of the spans around it.
fn record_of(metadata: &Metadata<'static>, around: Fields, own: Fields) -> Record {
    let severity = match *metadata.level() {
        Level::ERROR if own.fatal => Severity::Fatal,
        Level::ERROR => Severity::Error,
        Level::WARN => Severity::Warning,
        _ => Severity::Info,
    };
    let mut fields = around;
    fields.extend(&own);
    let (error, cause_as_field) =
        if severity >= Severity::Error { (own.error, None) } else { (None, own.error) };
    if let Some(cause) = cause_as_field {
        fields.values.push(("err".into(), super::record::Value::Text(cause)));
    }
    Record {
        severity,
        verbosity: own.verbosity.unwrap_or_else(|| verbosity::implied(metadata)),
        file: metadata.file().unwrap_or("unknown"),
        line: metadata.line().unwrap_or_default(),
        message: own.message,
        error,
        values: fields.values,
    }
}

impl<S> Layer<S> for LogLayer
where
    S: Subscriber + for<'span> LookupSpan<'span>,
{
    fn enabled(&self, metadata: &Metadata<'_>, _context: Context<'_, S>) -> bool {
        self.verbosity.may_write(metadata)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.verbosity.most_detailed().into())
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        if let Some(span) = context.span(id) {
            span.extensions_mut().insert(fields);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut own = Fields::default();
        event.record(&mut own);
        let mut around = Fields::default();
        for span in context.event_scope(event).into_iter().flat_map(Scope::from_root) {
            if let Some(fields) = span.extensions().get::<Fields>() {
                around.extend(fields);
            }
        }
        let record = record_of(event.metadata(), around, own);
        let written = record.severity >= Severity::Warning
            || record.verbosity <= self.verbosity.of_file(record.file);
        if written {
            self.write(&record);
        }
    }
}
