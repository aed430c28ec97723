//! `keelson kubelet …`, or a binary that is called `kubelet`: from the command line to a running
//! agent.
//!
//! Rule: the order is fixed: flags, files, one validated configuration, log, locks, limits, tasks.
//! Every error in flags and files is printed, not only the first; then the exit code is 1. Optional
//! parts that cannot be served are left out, with a warning.

mod cluster;
mod compose;
mod credential_providers;
mod end_requests;
mod fixed_metrics;
mod host_addresses;
mod host_texts;
mod idle_memory;
mod log_settings;
pub(crate) mod machine;
mod machine_info;
mod node_credentials;
mod plugins;
pub(crate) mod pod_dependencies;
mod pod_settings;
mod port;

use crate::environment::Environment;
use crate::{config_files, logging, terminal, version};
use node_agent::AgentExit;
use node_config::flags::{self, KubeletCommandLine};
use node_config::{Diagnostic, LoadedNodeConfig, NodeConfig};
use ports::ShutdownReason;
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
    let command_line = match arguments {
        Ok(arguments) => flags::parse(&arguments),
        Err(error) => return refuse(&[], &[error]),
    };
    if !command_line.has_errors() {
        if command_line.help {
            let width = if std::io::stdout().is_terminal() { 100 } else { 0 };
            terminal::print(&flags::usage(width));
            return ExitCode::SUCCESS;
        }
        if let Some(request) = command_line.version {
            let reported = command_line.node.reported_version.as_deref();
            terminal::print(&version::kubelet(request, reported));
            return ExitCode::SUCCESS;
        }
    }
    start(command_line, environment, working_directory)
}

fn start(
    command_line: KubeletCommandLine,
    environment: &Environment,
    working_directory: &Path,
) -> ExitCode {
    let mut found = config_files::read(&command_line.node, working_directory);
    let given: Vec<String> = command_line
        .given
        .iter()
        .map(|given| format!("--{}={:?}", given.flag, given.shown()))
        .collect();
    let flags = command_line.node.clone();
    let loaded = node_config::load(command_line, &found.files);
    found.errors.extend(config_files::missing_provider_programs(
        &flags,
        loaded.credential_providers.as_ref(),
        working_directory,
    ));
    let LoadedNodeConfig { config: Some(config), diagnostics, .. } = &loaded else {
        return refuse(&warnings(&loaded.diagnostics), &errors(&found.errors, &loaded.diagnostics));
    };
    if !found.errors.is_empty() {
        return refuse(&warnings(diagnostics), &found.errors);
    }
    logging::start(&log_settings::from(config));
    for flag in &given {
        info!(v = 1, flag, "Flag");
    }
    for warning in warnings(diagnostics) {
        warn!("{warning}");
    }
    for name in &found.skipped {
        info!(
            v = 4,
            file = name,
            "Skipped file in drop-in directory (its name does not end in .conf)"
        );
    }
    run_agent(config, environment)
}

fn run_agent(config: &NodeConfig, environment: &Environment) -> ExitCode {
    warn!(
        missing = "CSI volumes, statistics, eviction, CPU and memory managers, node shutdown",
        "This agent does not do all that the reference does yet"
    );
    match compose::run(config, environment) {
        Ok(ended) if ended.immediate => ExitCode::FAILURE,
        Ok(AgentExit { reason: ShutdownReason::CredentialsLost(_), .. }) => ExitCode::FAILURE,
        Ok(ended) => {
            info!(reason = %ended.reason, "Node agent has ended");
            ExitCode::SUCCESS
        }
        Err(failure) => {
            error!(err = format!("{failure:#}"), "command failed");
            ExitCode::FAILURE
        }
    }
}

fn warnings(diagnostics: &[Diagnostic]) -> Vec<String> {
    diagnostics
        .iter()
        .filter(|diagnostic| !diagnostic.is_error())
        .map(Diagnostic::to_string)
        .collect()
}

fn errors(unreadable: &[String], diagnostics: &[Diagnostic]) -> Vec<String> {
    let judged =
        diagnostics.iter().filter(|diagnostic| diagnostic.is_error()).map(Diagnostic::to_string);
    unreadable.iter().cloned().chain(judged).collect()
}

/// Reports every error, in the log's default format: the configured one is not known.
fn refuse(warnings: &[String], errors: &[String]) -> ExitCode {
    logging::start(&log_settings::before_configuration());
    for warning in warnings {
        warn!("{warning}");
    }
    for cause in errors {
        error!(err = cause, "command failed");
    }
    ExitCode::FAILURE
}
