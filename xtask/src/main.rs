//! `cargo xtask VERB`: the entry point for daily work, and the checks that have logic.

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

mod checks;
mod fuzz;
mod goldens;
mod house_rules;
mod layers;
mod licences;
mod mutants;
mod node_controller;
mod node_specs;
mod purity;
mod release;
mod runtime_clients;
mod tally;
mod test_run;
mod verbs;
mod watchdog;
mod workspace;

#[derive(Parser)]
#[command(
    bin_name = "cargo xtask",
    about = "Verbs for daily work",
    after_help = "Examples:
  cargo xtask check                         formatting, clippy, layers, licences, house rules
  cargo xtask test                          everything that a landing runs
  cargo xtask real containerd               real-part tests whose name contains `containerd`
  cargo xtask parts containerd runc         build these real parts into the cache
  cargo xtask fuzz quantity --runs 1000000  fuzz one target
  cargo xtask release                       the static binary, and what we promise about it"
)]
struct XtaskCommandLine {
    #[command(subcommand)]
    verb: XtaskVerb,
}

#[derive(Subcommand)]
enum XtaskVerb {
    /// Formatting, clippy, layers, licences and house rules; no test is run
    Check {
        /// Only lower the recorded counts of retired words and doubled type names
        #[arg(long)]
        record: bool,
    },
    /// Everything that a landing runs; ends with the line of counts
    Test,
    /// Tests on real parts (root needed); a word narrows them down
    Real { filter: Option<String> },
    /// Memory, CPU and times beside the reference, in one run
    Bench {
        #[arg(value_enum, default_value = "agent")]
        subject: verbs::BenchSubject,
    },
    /// The kill tests again and again
    Soak {
        /// How many kills each test does
        #[arg(long, default_value_t = 20)]
        kills: u32,
        /// How long two roots are killed side by side
        #[arg(long, default_value_t = 10)]
        minutes: u64,
        /// Only this part
        #[arg(long, value_enum)]
        part: Option<verbs::SoakPart>,
    },
    /// The node controller's decisions against 15 000 nodes in virtual time, seed by seed
    Simulate {
        /// How many runs
        #[arg(long, default_value_t = 1_000)]
        runs: u64,
    },
    /// Fuzz targets, guided by coverage; without a name every one of them
    Fuzz {
        target: Option<String>,
        /// How many inputs each target gets
        #[arg(long, default_value_t = 1_000_000)]
        runs: u64,
    },
    /// Mutants of the pure crates: every rule that is taken out must fail a test
    Mutants {
        /// Only this crate
        package: Option<String>,
    },
    /// Comparisons with the reference kubelet
    Conformance {
        #[arg(value_enum, default_value = "config")]
        subject: verbs::ConformanceSubject,
        #[command(flatten)]
        node: node_specs::NodeOptions,
    },
    /// The static release binary, checked against SPECIFICATION.md
    Release,
    /// Build real parts into the cache; without names, list them
    Parts { names: Vec<String> },
    /// A cluster of one node on this machine until Ctrl-C; `./dev cluster --help` has the options
    #[command(disable_help_flag = true)]
    Cluster {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        options: Vec<String>,
    },
    /// Boot the cgroup v2 machine and run `run` of a payload directory in it; without a directory,
    /// all of the tests there, also those that `test` has no time for
    Machine {
        payload: Option<std::path::PathBuf>,
        /// Swap in MiB
        #[arg(long, default_value_t = 0)]
        swap: u32,
        /// The labels of containers, on a machine with SELinux in AppArmor's place
        #[arg(long, conflicts_with = "payload")]
        selinux: bool,
    },
}

fn main() -> ExitCode {
    match run(XtaskCommandLine::parse().verb) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(verb: XtaskVerb) -> Result<()> {
    match verb {
        XtaskVerb::Check { record } => checks::command(record),
        XtaskVerb::Test => test_run::command(),
        XtaskVerb::Real { filter } => test_run::real_command(filter.as_deref()),
        XtaskVerb::Bench { subject } => verbs::bench(subject),
        XtaskVerb::Soak { kills, minutes, part } => verbs::soak(kills, minutes, part),
        XtaskVerb::Simulate { runs } => node_controller::simulate(runs),
        XtaskVerb::Fuzz { target, runs } => fuzz::command(target.as_deref(), runs),
        XtaskVerb::Mutants { package } => mutants::command(package.as_deref()),
        XtaskVerb::Conformance { subject, node } => verbs::conformance(subject, &node),
        XtaskVerb::Release => release::command(),
        XtaskVerb::Parts { names } => verbs::parts(&names),
        XtaskVerb::Cluster { options } => verbs::cluster(&options),
        XtaskVerb::Machine { payload, swap, selinux } => {
            verbs::machine(payload.as_deref(), swap, selinux)
        }
    }
}
