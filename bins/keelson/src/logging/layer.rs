//! The `tracing` layer that turns events into lines.
//!
//! Rule: fields of the spans around an event come before its own, outermost first, as klog's
//! logger values do. Formatting happens on the caller's thread and takes no lock but the queue's.

use super::record::{LogFields, LogRecord, LogSeverity};
use super::verbosity::{self, Verbosity};
use super::{LineForm, LineSink};
use std::sync::Arc;
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::registry::{LookupSpan, Scope};

pub(crate) struct LogLayer {
    verbosity: Verbosity,
    form: Arc<LineForm>,
    sink: Box<dyn LineSink>,
}

impl LogLayer {
    pub(crate) fn new(
        verbosity: Verbosity,
        form: Arc<LineForm>,
        sink: Box<dyn LineSink>,
    ) -> LogLayer {
        LogLayer { verbosity, form, sink }
    }
}

/// Joins an event's own fields with those of the spans around it.
fn record_of(metadata: &Metadata<'static>, of_spans: LogFields, own: LogFields) -> LogRecord {
    let severity = match *metadata.level() {
        Level::ERROR if own.fatal => LogSeverity::Fatal,
        Level::ERROR => LogSeverity::Error,
        Level::WARN => LogSeverity::Warning,
        _ => LogSeverity::Info,
    };
    let mut fields = of_spans;
    fields.extend(&own);
    let (error, cause_as_field) =
        if severity >= LogSeverity::Error { (own.error, None) } else { (None, own.error) };
    if let Some(cause) = cause_as_field {
        fields.values.push(("err".into(), super::record::Value::Text(cause)));
    }
    LogRecord {
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
        let mut fields = LogFields::default();
        attributes.record(&mut fields);
        if let Some(span) = context.span(id) {
            span.extensions_mut().insert(fields);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut own = LogFields::default();
        event.record(&mut own);
        let mut of_spans = LogFields::default();
        for span in context.event_scope(event).into_iter().flat_map(Scope::from_root) {
            if let Some(fields) = span.extensions().get::<LogFields>() {
                of_spans.extend(fields);
            }
        }
        let record = record_of(event.metadata(), of_spans, own);
        let is_written = record.severity >= LogSeverity::Warning
            || record.verbosity <= self.verbosity.of_file(record.file);
        if is_written {
            self.sink.write(record.severity, self.form.render(&record));
        }
    }
}
