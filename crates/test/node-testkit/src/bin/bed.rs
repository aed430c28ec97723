//! `bed run [--name N] [--deadline 60s] [--logs DIR] -- COMMAND…`: runs a command in a bed.
//! Exits with the command's status, with 124 after the deadline, with 125 if there is no bed.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use node_testkit::bed::{self, BedOutcome, BedRequest, CommandOutput, EXIT_NO_BED};

const USAGE: &str = "\
usage: bed run [--name NAME] [--deadline 60s] [--logs DIR] -- COMMAND [ARGUMENT…]
       bed sweep

run    runs a command in namespaces, cgroups and a directory (/run/bed) of its own; all of it is
       removed when the command ends, when `bed` is killed, or when the deadline passes
sweep  removes what is left of beds whose warden was killed; the start of a bed does so, too

examples:
  bed run -- sh -c 'ip address; cat /proc/self/cgroup'
  bed run --deadline 10m -- cargo test --package real-tests";

fn main() -> ExitCode {
    let status = match run() {
        Ok(status) => status,
        Err(error) => {
            eprintln!("bed: {error:#}");
            EXIT_NO_BED
        }
    };
    ExitCode::from(u8::try_from(status).unwrap_or(u8::MAX))
}

fn run() -> Result<i32> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.is_empty() {
        // A process without arguments may be a bed's warden or init; for those this never returns.
        bed::enter_role(None)?;
    }
    match arguments.split_first() {
        Some((verb, rest)) if verb == "run" => run_in_bed(rest),
        Some((verb, [])) if verb == "sweep" => bed::sweep().map(|_| 0),
        Some((verb, _)) if verb == "help" || verb == "--help" || verb == "-h" => {
            println!("{USAGE}");
            Ok(0)
        }
        _ => bail!("{USAGE}"),
    }
}

fn run_in_bed(arguments: &[String]) -> Result<i32> {
    let mut request = BedRequest {
        name: "bed".to_owned(),
        deadline: Duration::from_hours(1),
        command: Vec::new(),
        output: CommandOutput::Inherit,
        keep_logs: PathBuf::from("target/bed-logs/bed"),
        reentry: Vec::new(),
        must_enter: false,
    };
    let mut arguments = arguments.iter();
    let mut logs = None;
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().with_context(|| format!("{argument} needs a value"));
        match argument.as_str() {
            "--name" => request.name = value()?.clone(),
            "--deadline" => request.deadline = duration(value()?)?,
            "--logs" => logs = Some(PathBuf::from(value()?)),
            "--" => break,
            other => bail!("unknown option {other:?}\n{USAGE}"),
        }
    }
    request.command = arguments.cloned().collect();
    if request.command.is_empty() {
        bail!("no command after --\n{USAGE}");
    }
    request.keep_logs =
        logs.unwrap_or_else(|| PathBuf::from("target/bed-logs").join(&request.name));
    let outcome = bed::launch(&request)?;
    match &outcome {
        BedOutcome::Exited { .. } => {}
        BedOutcome::DeadlinePassed { .. } | BedOutcome::Failed { .. } => {
            eprintln!("bed: {}", outcome.describe());
        }
    }
    Ok(outcome.exit_status())
}

/// `90`, `90s`, `5m`, `1h`.
fn duration(text: &str) -> Result<Duration> {
    let (digits, unit) = match text.find(|letter: char| !letter.is_ascii_digit()) {
        Some(at) => text.split_at(at),
        None => (text, "s"),
    };
    let number: u64 =
        digits.parse().with_context(|| format!("{text:?}: expected 60s, 5m or 1h"))?;
    let factor = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => bail!("{text:?}: expected 60s, 5m or 1h"),
    };
    Ok(Duration::from_secs(number.saturating_mul(factor)))
}
