//! The verbs `cri` (serve the embedded runtime on a socket) and `image` (import images into it).
//!
//! Rule: containers keep running when the server exits, on SIGTERM and SIGINT too; the next server
//! adopts them. Options are checked before anything is opened. Decides nothing about
//! pods.

mod import;
mod serve;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand};
use container_runtime::RuntimeSettings;
use cri_client::Endpoint;

use crate::config_files;
use crate::environment::Environment;
use crate::terminal;

pub(crate) const DEFAULT_SOCKET: &str = "unix:///run/keelson/cri.sock";

const CRI_EXAMPLES: &str = "\
Examples:
  keelson cri
  keelson cri --listen unix:///tmp/k/cri.sock --root /tmp/k/root --state /tmp/k/state
  keelson image import busybox.tar
  keelson cri-client --runtime-endpoint unix:///run/keelson/cri.sock images";

/// Serve the embedded container runtime: CRI v1 for any kubelet or CRI client
#[derive(Debug, Args)]
#[command(after_help = CRI_EXAMPLES)]
pub(crate) struct CriCommand {
    /// Where to listen
    #[arg(long, value_name = "ENDPOINT", default_value = DEFAULT_SOCKET)]
    listen: Endpoint,

    /// What survives a reboot: images and records
    #[arg(long, value_name = "DIR", default_value = "/var/lib/keelson")]
    root: PathBuf,

    /// What does not: sockets, mounts, namespaces
    #[arg(long, value_name = "DIR", default_value = "/run/keelson")]
    state: PathBuf,

    /// A JSON file of settings
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// How much to log: 0 for important messages only, 4 for every rejected call, too
    #[arg(short, long, value_name = "LEVEL", default_value_t = 0)]
    verbosity: u8,
}

/// Work with the images of the embedded runtime
#[derive(Debug, Args)]
pub(crate) struct ImageCommand {
    #[command(subcommand)]
    act: ImageAct,
}

#[derive(Debug, Subcommand)]
enum ImageAct {
    /// Import docker archives, OCI archives, OCI layouts or plain directories
    Import(import::ImportCommand),
}

impl CriCommand {
    pub(crate) fn run(self, environment: &Environment) -> ExitCode {
        if let Some(point) = &environment.crash_at {
            container_runtime::crash_points::arm(point);
        }
        report(serve::run(self))
    }
}

impl ImageCommand {
    pub(crate) fn run(self) -> ExitCode {
        match self.act {
            ImageAct::Import(command) => report(command.run()),
        }
    }
}

/// The settings of a runtime: its directories, the settings of the file, and its pod supervisor.
pub(crate) fn settings(root: &Path, state: &Path, file: Option<&Path>) -> Result<RuntimeSettings> {
    let mut settings = RuntimeSettings::new(root.to_owned(), state.to_owned());
    if let Some(path) = file {
        let file = config_files::read_file(path).map_err(anyhow::Error::msg)?;
        settings = settings.with_file(&file.path, &file.bytes)?;
    }
    crate::supervisor_program::choose(&mut settings);
    Ok(settings)
}

fn report(outcome: Result<()>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            terminal::print_error(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}
