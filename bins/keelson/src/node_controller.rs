//! `keelson node-controller …`: from the command line to a running controller, and `explain NODE`.
//!
//! Rule: the order is fixed: flags, file, one validated configuration, log, tasks. Every error in
//! flags and file is printed, not only the first; then the exit code is 1.

mod access;
mod compose;
mod explain;
mod pages;
mod system_environment;

use crate::environment::Environment;
use crate::logging::{self, FilePattern, LogFormat, LogSettings, Verbosity};
use crate::{config_files, terminal, version};
use controller_config::{ControllerCommandLine, LoadedControllerConfig, NodeControllerConfig};
use node_config::Diagnostic;
use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::Path;
use std::process::ExitCode;
use tracing::{error, info, warn};

/// Runs the verb; `arguments` are those behind its name.
pub(crate) fn run(
    arguments: Vec<OsString>,
    environment: &Environment,
    working_directory: &Path,
) -> ExitCode {
    let arguments: Result<Vec<String>, String> =
        arguments.into_iter().map(crate::text_argument).collect();
    let arguments = match arguments {
        Ok(arguments) => arguments,
        Err(error) => return refuse(&[], &[error]),
    };
    if let Some(("explain", rest)) = arguments.split_first().map(|(one, rest)| (one.as_str(), rest))
    {
        return explain::run(rest);
    }
    let line = controller_config::parse(&arguments);
    if !line.has_errors() {
        if line.help {
            let width = if std::io::stdout().is_terminal() { 100 } else { 0 };
            terminal::print(&controller_config::usage(width));
            return ExitCode::SUCCESS;
        }
        if let Some(request) = line.version {
            terminal::print(&version::kubelet(request, None));
            return ExitCode::SUCCESS;
        }
    }
    start(line, environment, working_directory)
}

fn start(
    line: ControllerCommandLine,
    environment: &Environment,
    working_directory: &Path,
) -> ExitCode {
    let file = match line.config.as_str() {
        "" => None,
        path => match config_files::read_file(&working_directory.join(path)) {
            Ok(file) => Some(file),
            Err(error) => {
                let mut errors = messages(&line.diagnostics, true);
                errors.push(format!("--config: {error}"));
                return refuse(&messages(&line.diagnostics, false), &errors);
            }
        },
    };
    let given = line.given.clone();
    let LoadedControllerConfig { config, diagnostics } =
        controller_config::load(line, file.as_ref());
    let warnings = messages(&diagnostics, false);
    let Some(config) = config else {
        return refuse(&warnings, &messages(&diagnostics, true));
    };
    logging::start(&log_settings(&config));
    for flag in &given {
        info!(v = 1, flag, "Flag");
    }
    for warning in &warnings {
        warn!("{warning}");
    }
    let port_by_name = given.iter().any(|flag| flag.starts_with("--secure-port="));
    match compose::run(&config, port_by_name, environment, working_directory) {
        Ok(reason) => {
            info!(reason, "Node controller has ended");
            ExitCode::SUCCESS
        }
        Err(failure) => {
            error!(err = format!("{failure:#}"), "command failed");
            ExitCode::FAILURE
        }
    }
}

fn messages(diagnostics: &[Diagnostic], errors: bool) -> Vec<String> {
    let wanted = diagnostics.iter().filter(|diagnostic| diagnostic.is_error() == errors);
    wanted.map(Diagnostic::to_string).collect()
}

fn log_settings(config: &NodeControllerConfig) -> LogSettings {
    let settings = &config.logging;
    let files = settings.modules.iter().map(|module| FilePattern {
        pattern: module.file_pattern.clone(),
        level: module.verbosity.into(),
    });
    LogSettings {
        format: if settings.json { LogFormat::Json } else { LogFormat::Text },
        verbosity: Verbosity { level: settings.verbosity, files: files.collect() },
        split_stream: settings.split_stream,
    }
}

/// Reports every error, in the log's default format: the configured one is not known.
fn refuse(warnings: &[String], errors: &[String]) -> ExitCode {
    let verbosity = Verbosity::default();
    logging::start(&LogSettings { format: LogFormat::Text, verbosity, split_stream: false });
    for warning in warnings {
        warn!("{warning}");
    }
    for cause in errors {
        error!(err = cause, "command failed");
    }
    ExitCode::FAILURE
}
