//! The log settings in the kubelet's configuration.

use crate::logging::{FilePattern, LogFormat, LogSettings, Verbosity};
use node_config::NodeConfig;

/// The log settings before the configuration is read.
pub(super) fn before_configuration() -> LogSettings {
    LogSettings { format: LogFormat::Text, verbosity: Verbosity::default(), split_stream: false }
}

pub(super) fn from(config: &NodeConfig) -> LogSettings {
    let logging = &config.settings().logging;
    // Validation accepts only `json` and `text`.
    let format = if logging.format == "json" { LogFormat::Json } else { LogFormat::Text };
    let format_options = match format {
        LogFormat::Json => &logging.options.json,
        LogFormat::Text => &logging.options.text,
    };
    let files = logging.vmodule.iter().map(|module| FilePattern {
        pattern: module.file_pattern.clone(),
        level: module.verbosity.into(),
    });
    LogSettings {
        format,
        verbosity: Verbosity { level: logging.verbosity.into(), files: files.collect() },
        split_stream: format_options.split_stream,
    }
}
