//! The verb `cri-client`: calls a CRI runtime and shows its answer.
//!
//! Rule: one call of the runtime per subcommand, shown as it was answered; every failure is one
//! line that names the next step. Does not watch, retry or keep anything: it is for people and
//! tests at one machine.

mod files;
mod json;
mod lifecycle;
mod listing;
mod next_step;
mod output;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::{Args, Subcommand, ValueEnum};
use cri_client::{CallLimits, CriClient, Endpoint};
use pod_model::GoDuration;

#[cfg(test)]
mod tests;

const EXAMPLES: &str = "\
Examples:
  keelson cri-client version
  keelson cri-client ps --all
  keelson cri-client exec 3f2a9c -- cat /etc/hosts
  keelson cri-client runp sandbox.json
  keelson cri-client create 51d0aa container.json sandbox.json
  keelson cri-client --runtime-endpoint unix:///run/crio/crio.sock pods -o json";

/// Ask a container runtime over CRI: list, inspect, run, stop
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CriClientCommand {
    /// Where the runtime listens
    #[arg(
        long,
        global = true,
        value_name = "ENDPOINT",
        default_value = "unix:///run/containerd/containerd.sock"
    )]
    runtime_endpoint: Endpoint,

    /// Where the image service listens, if not at the runtime endpoint
    #[arg(long, global = true, value_name = "ENDPOINT")]
    image_endpoint: Option<Endpoint>,

    /// How long a call may take, for example 30s or 2m
    #[arg(long, global = true, value_name = "DURATION", default_value = "2m", value_parser = positive_duration)]
    timeout: Duration,

    /// How to print answers
    #[arg(short, long, global = true, value_enum, default_value_t = CriFormat::Table)]
    output: CriFormat,

    #[command(subcommand)]
    subcommand: CriSubcommand,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum CriFormat {
    Table,
    Json,
}

#[derive(Debug, Subcommand)]
enum CriSubcommand {
    /// Show which runtime answers
    Version,
    /// Show whether the runtime and its network are ready
    Info,
    /// List pod sandboxes
    Pods(ListArgs),
    /// List containers that run
    Ps {
        /// Also those that do not run
        #[arg(short, long)]
        all: bool,
        #[command(flatten)]
        listed: ListArgs,
    },
    /// List images
    Images(ListArgs),
    /// Show all about a container, as JSON
    Inspect { container: String },
    /// Show all about a pod sandbox, as JSON
    Inspectp { sandbox: String },
    /// Show all about an image, as JSON
    Inspecti { image: String },
    /// Show what containers use
    Stats { container: Option<String> },
    /// Show what pod sandboxes use
    Statsp { sandbox: Option<String> },
    /// Show the metrics of pod sandboxes and their containers, one line each
    Metricsp,
    /// Show container events as they come, one line each
    Events,
    #[command(flatten)]
    LifecycleCommand(lifecycle::LifecycleCommand),
}

#[derive(Debug, Clone, Copy, Args)]
struct ListArgs {
    /// Print only the ids
    #[arg(short, long)]
    quiet: bool,
}

impl CriClientCommand {
    /// Asks, prints the answer, and gives the exit code (that of the command, for `exec`).
    pub(crate) async fn run(self) -> Result<ExitCode> {
        for endpoint in std::iter::once(&self.runtime_endpoint).chain(&self.image_endpoint) {
            if let Some(warning) = endpoint.warning() {
                eprintln!("warning: {warning}");
            }
        }
        let limits = CallLimits { request: self.timeout, ..CallLimits::default() };
        let client =
            CriClient::connect(&self.runtime_endpoint, self.image_endpoint.as_ref(), limits);
        match self.subcommand {
            CriSubcommand::LifecycleCommand(act) => return act.run(&client).await,
            CriSubcommand::Version => listing::version(&client, self.output).await,
            CriSubcommand::Info => listing::info(&client, self.output).await,
            CriSubcommand::Pods(listed) => listing::pods(&client, self.output, listed.quiet).await,
            CriSubcommand::Ps { all, listed } => {
                let scope = if all { listing::ListScope::All } else { listing::ListScope::Running };
                listing::containers(&client, self.output, scope, listed.quiet).await
            }
            CriSubcommand::Images(listed) => {
                listing::images(&client, self.output, listed.quiet).await
            }
            CriSubcommand::Inspect { container } => {
                listing::inspect_container(&client, container).await
            }
            CriSubcommand::Inspectp { sandbox } => listing::inspect_sandbox(&client, sandbox).await,
            CriSubcommand::Inspecti { image } => listing::inspect_image(&client, image).await,
            CriSubcommand::Stats { container } => {
                listing::container_stats(&client, self.output, container).await
            }
            CriSubcommand::Statsp { sandbox } => {
                listing::sandbox_stats(&client, self.output, sandbox).await
            }
            CriSubcommand::Metricsp => listing::sandbox_metrics(&client, self.output).await,
            CriSubcommand::Events => listing::events(&client, self.output).await,
        }?;
        Ok(ExitCode::SUCCESS)
    }
}

fn positive_duration(text: &str) -> Result<Duration> {
    let duration = GoDuration::parse(text)?;
    let duration = duration.as_std().context("expected a duration of at least 1ns")?;
    ensure!(!duration.is_zero(), "expected more than zero");
    Ok(duration)
}
