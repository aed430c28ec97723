//! The one binary: its verbs, and the kubelet when it is called by that name.
//!
//! Rule: composes adapters and shell; decides nothing about pods. Every verb's error is one line
//! that names the next step. Arguments, environment and working directory are read here, once.

mod check_config;
mod config_files;
mod cri;
mod cri_client;
mod doctor;
mod environment;
mod idle_memory;
mod kubelet;
mod logging;
mod node_controller;
mod node_pods;
mod pod_copy;
mod pod_streams;
mod progress_line;
mod run_pods;
mod supervisor_program;
mod table;
mod terminal;
mod version;

use clap::error::ErrorKind;
use clap::{Parser, Subcommand};
use environment::Environment;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use terminal::Palette;

const EXAMPLES: &str = "\
Examples:
  keelson doctor                                      what this machine can do for pods
  keelson check-config --config kubelet.yaml          what a kubelet would run with
  keelson kubelet --config kubelet.yaml               run the node agent
  keelson node-controller --kubeconfig admin.conf     watch over the nodes of a cluster
  keelson cri                                         serve the embedded runtime to any kubelet
  keelson cri-client ps                               containers of the runtime that is there
  keelson run pod.yaml                                run pods here, nothing else installed
  keelson run --detach pod.yaml                       the same in the background
  keelson run --image busybox -it -- sh               a pod from an image alone
  keelson ps; keelson explain web; keelson logs -f web
  keelson exec -it web -- sh; keelson stop web

A link named `kubelet` to this binary takes a kubelet's command line.";

/// The argument under which this program does one step of volume work and exits.
pub(crate) const HOST_VOLUME_STEP: &str = "host-volume-step";

/// A Kubernetes node agent
#[derive(Debug, Parser)]
#[command(name = "keelson", version, after_help = EXAMPLES)]
struct Keelson {
    #[command(subcommand)]
    verb: CliVerb,
}

#[derive(Debug, Subcommand)]
enum CliVerb {
    /// Run the node agent; takes the flags of the Kubernetes v1.36 kubelet
    #[command(disable_help_flag = true)]
    Kubelet(RawArguments),
    /// Watch over the nodes of a cluster; takes the flags of kube-controller-manager
    #[command(disable_help_flag = true)]
    NodeController(RawArguments),
    /// Show the configuration that kubelet flags and files come to, and what is wrong with it
    #[command(disable_help_flag = true)]
    CheckConfig(RawArguments),
    /// Ask a container runtime over CRI: list, inspect, run, stop
    CriClient(cri_client::CriClientCommand),
    /// Serve the embedded container runtime: CRI v1 for any kubelet or CRI client
    Cri(cri::CriCommand),
    /// Work with the images of the embedded runtime
    Image(cri::ImageCommand),
    /// Examine what this machine can do for pods
    Doctor(doctor::DoctorCommand),
    /// Run pods on this machine with the embedded runtime
    Run(run_pods::RunCommand),
    /// The background agent of `run --detach`; not for people
    #[command(hide = true)]
    RunAgent(run_pods::RunAgentCommand),
    /// List the pods on this machine
    Ps(node_pods::PsCommand),
    /// Print what a container wrote
    Logs(node_pods::LogsCommand),
    /// Say why a pod is not where it should be, and what to do next
    Explain(node_pods::ExplainCommand),
    /// Run a command in a container
    Exec(pod_streams::ExecCommand),
    /// Join a container: see what it writes, and write to it
    Attach(pod_streams::AttachCommand),
    /// Make ports of a pod answer on this machine
    PortForward(pod_streams::PortForwardCommand),
    /// Copy files into and out of a container
    Cp(pod_copy::CpCommand),
    /// Show what containers use of processors and memory
    Top(node_pods::TopCommand),
    /// List the images of the runtime, or remove some
    Images(node_pods::ImagesCommand),
    /// List the plugins of this node, and what is wrong with them
    Plugins(node_pods::PluginsCommand),
    /// Show where the time of a pod's start went
    Timeline(node_pods::TimelineCommand),
    /// End a pod (of a manifest's pod it says which file to remove)
    Stop(node_pods::StopCommand),
    /// Show the version
    Version,
}

/// Arguments that the verb reads by itself.
#[derive(Debug, clap::Args)]
struct RawArguments {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "FLAGS")]
    arguments: Vec<OsString>,
}

fn main() -> ExitCode {
    // A pod's supervisor and its init are this program under other names; nothing may come before.
    if let Some(code) = pod_supervisor::supervisor::run_if_called() {
        return code;
    }
    let code = run();
    logging::finish();
    code
}

fn run() -> ExitCode {
    let environment = Environment::read();
    let working_directory = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
    let mut arguments: Vec<OsString> = std::env::args_os().collect();
    // These verbs have parsers of their own; clap would trip over a kubelet's flags.
    if called_kubelet(arguments.first()) {
        return kubelet::run(arguments.split_off(1), &environment, &working_directory);
    }
    match arguments.get(1).and_then(|verb| verb.to_str()) {
        Some("kubelet") => {
            return kubelet::run(arguments.split_off(2), &environment, &working_directory);
        }
        Some("node-controller") => {
            return node_controller::run(arguments.split_off(2), &environment, &working_directory);
        }
        Some("check-config") => {
            return check_config::run(arguments.split_off(2), &working_directory);
        }
        // Internal: the node agent runs itself this way for work on foreign file systems.
        Some(HOST_VOLUME_STEP) => {
            let answered = host_volumes::answer_step(std::io::stdin(), std::io::stdout());
            return if answered.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
        }
        _ => {}
    }
    let palette = Palette::for_output(environment.no_color.as_deref());
    match Keelson::try_parse_from(arguments) {
        Ok(keelson) => run_verb(keelson.verb, &environment, &working_directory, palette),
        Err(error) => show_parse_error(&error),
    }
}

fn run_verb(
    verb: CliVerb,
    environment: &Environment,
    working_directory: &Path,
    palette: Palette,
) -> ExitCode {
    match verb {
        CliVerb::Kubelet(raw) => kubelet::run(raw.arguments, environment, working_directory),
        CliVerb::NodeController(raw) => {
            node_controller::run(raw.arguments, environment, working_directory)
        }
        CliVerb::CheckConfig(raw) => check_config::run(raw.arguments, working_directory),
        CliVerb::Cri(command) => command.run(environment),
        CliVerb::Image(command) => command.run(),
        CliVerb::Doctor(command) => command.run(palette),
        CliVerb::Run(command) => command.run(palette),
        CliVerb::CriClient(command) => run_async(command.run()),
        CliVerb::Ps(command) => run_async(command.run()),
        CliVerb::Logs(command) => run_async(command.run()),
        CliVerb::Explain(command) => run_async(command.run()),
        CliVerb::RunAgent(command) => {
            environment.arm_crash_points();
            command.run()
        }
        CliVerb::Exec(command) => run_async(command.run()),
        CliVerb::Attach(command) => run_async(command.run()),
        CliVerb::PortForward(command) => run_async(command.run()),
        CliVerb::Cp(command) => run_async(command.run()),
        CliVerb::Top(command) => run_async(command.run()),
        CliVerb::Images(command) => run_async(command.run()),
        CliVerb::Plugins(command) => run_async(command.run()),
        CliVerb::Timeline(command) => run_async(command.run()),
        CliVerb::Stop(command) => run_async(command.run()),
        CliVerb::Version => {
            terminal::print(&version::own());
            ExitCode::SUCCESS
        }
    }
}

/// Runs a verb that waits for a server.
fn run_async(verb: impl Future<Output = anyhow::Result<ExitCode>>) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let outcome = runtime.map_err(anyhow::Error::from).and_then(|runtime| runtime.block_on(verb));
    outcome.unwrap_or_else(|error| {
        terminal::print_error(&format!("error: {error:#}"));
        ExitCode::FAILURE
    })
}

fn called_kubelet(program: Option<&OsString>) -> bool {
    program.and_then(|program| Path::new(program).file_name()).is_some_and(|name| name == "kubelet")
}

/// Help is printed in full, the version as its verb has it; an error is cut to its first line and
/// the next step.
fn show_parse_error(error: &clap::Error) -> ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp => {
            terminal::print(&error.to_string());
            return ExitCode::SUCCESS;
        }
        ErrorKind::DisplayVersion => {
            terminal::print(&version::own());
            return ExitCode::SUCCESS;
        }
        _ => {}
    }
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        terminal::print_error(error.to_string().trim_end());
        return ExitCode::from(2);
    }
    let text = error.to_string();
    let (what, _) = text.split_once("\n\n").unwrap_or((&text, ""));
    let what = what.split_whitespace().collect::<Vec<_>>().join(" ");
    terminal::print_error(&format!("{what}; see keelson --help"));
    ExitCode::from(2)
}

/// An argument that must be text.
pub(crate) fn text_argument(argument: OsString) -> Result<String, String> {
    argument.into_string().map_err(|odd| format!("the argument {} is not UTF-8", odd.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        use clap::CommandFactory;
        Keelson::command().debug_assert();
    }

    #[test]
    fn only_the_file_name_of_the_program_decides() {
        for (program, expected) in [
            ("kubelet", true),
            ("/usr/bin/kubelet", true),
            ("/opt/kubelet/keelson", false),
            ("kubelet-old", false),
        ] {
            assert_eq!(called_kubelet(Some(&program.into())), expected, "{program}");
        }
        assert!(!called_kubelet(None));
    }
}
