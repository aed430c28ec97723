//! `keelson check-config`: the configuration that a kubelet's command line and files result in,
//! without running it.
//!
//! Rule: the configuration goes to standard output, findings to standard error; the exit code alone
//! shows whether it is usable. Secrets are masked in every form. Nothing is changed.

mod report;

use crate::{config_files, terminal};
use node_config::flags::{self, KubeletCommandLine};
use node_config::load;
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

const USAGE: &str = "\
Show the configuration that a kubelet's flags and files come to, and what is wrong with it

Usage: keelson check-config [-o yaml|json|table] [kubelet flags]

  -o, --output FORMAT  yaml   the effective configuration, origins as comments (default)
                       json   the same for programs: configuration, credential providers, origins,
                              warnings, errors
                       table  only what is not a default, and where it came from

Examples:
  keelson check-config --config /var/lib/kubelet/config.yaml
  keelson check-config --config kubelet.yaml --config-dir kubelet.conf.d -o table
  keelson check-config --config kubelet.yaml --max-pods 50 -o json

Exit code 0: usable; 1: not. All kubelet flags: keelson kubelet --help
";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConfigFormat {
    Yaml,
    Json,
    Table,
}

/// Runs the verb; `arguments` are those behind its name.
pub(crate) fn run(arguments: Vec<OsString>, working_directory: &Path) -> ExitCode {
    let (output, arguments) = match own_options(arguments) {
        Ok(parsed) => parsed,
        Err(error) => {
            terminal::print_error(&format!("error: {error}; see keelson check-config --help"));
            return ExitCode::from(2);
        }
    };
    let command_line = flags::parse(&arguments);
    if command_line.help && !command_line.has_errors() {
        terminal::print(USAGE);
        return ExitCode::SUCCESS;
    }
    let report = examine(command_line, working_directory);
    for line in report.findings() {
        terminal::print_error(&line);
    }
    terminal::print(&report.render(output));
    if report.usable() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn examine(command_line: KubeletCommandLine, working_directory: &Path) -> report::ConfigReport {
    let mut found = config_files::read(&command_line.node, working_directory);
    let flag_rows = report::flag_rows(&command_line);
    let flags = command_line.node.clone();
    let loaded = load(command_line, &found.files);
    found.errors.extend(config_files::missing_provider_programs(
        &flags,
        loaded.credential_providers.as_ref(),
        working_directory,
    ));
    report::ConfigReport { loaded, flag_rows, unreadable: found.errors, skipped: found.skipped }
}

/// Takes `-o` out of the arguments; the rest is a kubelet's.
fn own_options(arguments: Vec<OsString>) -> Result<(ConfigFormat, Vec<String>), String> {
    let mut output = ConfigFormat::Yaml;
    let mut rest = Vec::new();
    let mut arguments = arguments.into_iter();
    while let Some(argument) = arguments.next() {
        let argument = crate::text_argument(argument)?;
        let value = if argument == "-o" || argument == "--output" {
            let value = arguments.next().ok_or(format!("{argument} needs yaml, json or table"))?;
            Some(crate::text_argument(value)?)
        } else {
            let attached =
                argument.strip_prefix("--output=").or_else(|| argument.strip_prefix("-o"));
            attached.map(|value| value.trim_start_matches('=').to_owned())
        };
        match value.as_deref() {
            None => rest.push(argument),
            Some("yaml") => output = ConfigFormat::Yaml,
            Some("json") => output = ConfigFormat::Json,
            Some("table") => output = ConfigFormat::Table,
            Some(other) => return Err(format!("-o {other}: expected yaml, json or table")),
        }
    }
    Ok((output, rest))
}

#[cfg(test)]
mod tests;
