//! Verbs that run programs of the test kit: real parts, the machine, comparisons, benchmarks, soak.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::Path;

use anyhow::{Context as _, Result};
use clap::ValueEnum;
use node_testkit::{machine, parts};

use crate::workspace;

/// The parts that the tests of a landing use; everything else is built by verb only.
const LANDING_PARTS: &[&str] = &[
    "containerd",
    "runc",
    "cni-plugins",
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubectl",
    "registry",
    "kubelet",
];

/// What a comparison with the reference kubelet needs.
const REFERENCE_PARTS: &[&str] = &["kubelet", "containerd", "runc", "cni-plugins"];

/// Processes killed or stalled in one test of two instances that compete for the lease.
const INTERRUPTIONS_PER_FIGHT: u32 = 5;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ConformanceSubject {
    /// The table of configuration cases, fed to the reference kubelet too
    Config,
    /// Every default beside the reference kubelet's own /configz
    Defaults,
    /// Generated pods: verdict and defaults beside a real API server's
    Pods,
    /// The same CRI cases on containerd and on the embedded runtime
    Cri,
    /// Upstream's node suite with one agent over one runtime
    Node,
    /// Upstream's node specs on containers, over containerd and over `keelson cri`
    NodeOverCri,
    /// gRPC's C core, from Python, and its Go library as clients of `keelson cri`
    ForeignGrpc,
    /// The node controller beside kube-controller-manager on one script of events
    NodeController,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum BenchSubject {
    /// The agent without pods: start, memory, idle CPU
    Agent,
    /// Static pods: 30 and 110 of them, one by one, crashes, removal
    Pods,
    /// `keelson cri` beside containerd and runc, by the same CRI calls
    Cri,
    /// The node controller beside kube-controller-manager, with hollow nodes
    NodeController,
}

pub(crate) fn parts_for_landing() -> Result<()> {
    parts::command(LANDING_PARTS)
}

pub(crate) fn parts(names: &[String]) -> Result<()> {
    if names.is_empty() {
        return parts::list();
    }
    parts::command(&names.iter().map(String::as_str).collect::<Vec<_>>())
}

pub(crate) fn machine(payload: Option<&Path>, swap_mib: u32, selinux: bool) -> Result<()> {
    if selinux {
        let mut command =
            workspace::cargo(&["run", "--package", "real-tests", "--bin", "selinux-machine"]);
        return workspace::run(&mut command);
    }
    let Some(payload) = payload else {
        parts::command(&["containerd", "runc", "kubelet"])?;
        let mut command =
            workspace::cargo(&["test", "--package", "real-tests", "--test", "machine"]);
        command.args(["--", "--nocapture"]).env("KEELSON_MACHINE_WHOLE", "1");
        return workspace::run(&mut command);
    };
    machine::command(payload, swap_mib)
}

pub(crate) fn conformance(
    subject: ConformanceSubject,
    node: &crate::node_specs::NodeOptions,
) -> Result<()> {
    if subject != ConformanceSubject::Node {
        node.must_be_unused()?;
        parts::command(LANDING_PARTS)?;
    }
    match subject {
        ConformanceSubject::NodeController => crate::node_controller::conformance(),
        ConformanceSubject::Node => crate::node_specs::conformance(node),
        ConformanceSubject::NodeOverCri => crate::node_specs::over_both_runtimes(),
        ConformanceSubject::ForeignGrpc => crate::runtime_clients::foreign_grpc(),
        ConformanceSubject::Config => real_program("config-cases", &[]),
        ConformanceSubject::Pods => in_bed("pod-differential", &["20000".into(), "97".into()]),
        ConformanceSubject::Cri => {
            let mut command =
                workspace::cargo(&["test", "--package", "real-tests", "--test", "cri_behaviour"]);
            workspace::run(command.args(["--", "--test-threads=1", "--nocapture"]))
        }
        ConformanceSubject::Defaults => {
            let mut command =
                workspace::cargo(&["test", "--package", "real-tests", "--test", "parts"]);
            command.args(["defaults", "--", "--nocapture"]);
            workspace::run(&mut command)?;
            let mut ours =
                workspace::cargo(&["test", "--package", "node-config", "--test", "defaults"]);
            workspace::run(&mut ours)
        }
    }
}

pub(crate) fn bench(subject: BenchSubject) -> Result<()> {
    parts::command(REFERENCE_PARTS)?;
    crate::release::command()?;
    let program = match subject {
        BenchSubject::Agent => "bench",
        BenchSubject::Pods => "pod-bench",
        BenchSubject::Cri => return crate::runtime_clients::bench(),
        BenchSubject::NodeController => return crate::node_controller::bench(),
    };
    in_bed(program, &[crate::release::binary()?.into_os_string()])
}

/// A cluster for people. Its program takes this one's place, so that Ctrl-C reaches it alone and the
/// prompt comes back when nothing is left.
pub(crate) fn cluster(options: &[String]) -> Result<()> {
    let build = ["build", "--package", "real-tests", "--bin", "cluster", "--quiet"];
    workspace::run(&mut workspace::cargo(&build))?;
    let mut command = std::process::Command::new(workspace::built("cluster")?);
    let error = command.args(options).exec();
    Err(error).context("start the cluster's program")
}

/// Runs a program of tests/real in a bed.
fn in_bed(name: &str, arguments: &[OsString]) -> Result<()> {
    workspace::run(&mut workspace::cargo(&["build", "--workspace", "--bins", "--quiet"]))?;
    let mut command = std::process::Command::new(workspace::built("bed")?);
    command.args(["run", "--name", name, "--deadline", "20m", "--"]);
    command.arg(workspace::built(name)?).args(arguments);
    workspace::run(command.current_dir(workspace::root()))
}

/// A part of the soak that can be run alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum SoakPart {
    /// The kill tests of a landing, with as many kills as asked for
    Kills,
    /// Two roots of `keelson run`, for as many minutes as asked for
    TwoRoots,
}

pub(crate) fn soak(kills: u32, minutes: u64, part: Option<SoakPart>) -> Result<()> {
    parts_for_landing()?;
    workspace::run(&mut workspace::cargo(&["build", "--workspace", "--bins", "--quiet"]))?;
    if part != Some(SoakPart::TwoRoots) {
        soak_kills(kills)?;
    }
    if part != Some(SoakPart::Kills) {
        soak_two_roots(minutes)?;
    }
    Ok(())
}

fn soak_two_roots(minutes: u64) -> Result<()> {
    let mut command =
        workspace::cargo(&["test", "--package", "real-tests", "--test", "standalone"]);
    command
        .args(["two_roots_lose_nothing", "--", "--nocapture"])
        .env("KEELSON_ROOTS_SECONDS", (minutes * 60).to_string());
    let report = workspace::target_dir()?.join("two-roots.txt");
    workspace::run(command.env("KEELSON_KILL_REPORT", &report))?;
    print!("{}", std::fs::read_to_string(&report)?);
    Ok(())
}

fn soak_kills(kills: u32) -> Result<()> {
    for tests in ["parts", "standalone", "runtime_clients"] {
        let mut command = workspace::cargo(&["test", "--package", "real-tests", "--test", tests]);
        command
            .args(["kill", "--", "--test-threads=1", "--nocapture"])
            .env("KEELSON_KILLS", kills.to_string());
        workspace::run(&mut command)?;
    }
    // Two node controllers that are killed and stalled, at different times for each seed.
    for seed in 1..=kills.div_ceil(INTERRUPTIONS_PER_FIGHT) {
        let mut command =
            workspace::cargo(&["test", "--package", "real-tests", "--test", "node_controller"]);
        command
            .args(["two_fight_for_the_lease", "--", "--nocapture"])
            .env("KEELSON_SEED", (seed * 2 + 1).to_string());
        workspace::run(&mut command)?;
    }
    // The runtime's kills are cheap beside the others': ten times as many, under thirty pods.
    let mut command =
        workspace::cargo(&["test", "--package", "real-tests", "--test", "runtime_kills"]);
    command
        .args(["kill", "--", "--test-threads=1", "--nocapture"])
        .env("KEELSON_KILLS", (kills * 10).to_string())
        .env("KEELSON_PODS", "30");
    let report = workspace::target_dir()?.join("runtime-kills.txt");
    workspace::run(command.env("KEELSON_KILL_REPORT", &report))?;
    print!("{}", std::fs::read_to_string(&report)?);
    Ok(())
}

/// A program of tests/real that is run by verb only.
fn real_program(name: &str, arguments: &[&str]) -> Result<()> {
    workspace::run(&mut workspace::cargo(&["build", "--workspace", "--bins", "--quiet"]))?;
    let program = workspace::built(name)?;
    workspace::run(
        std::process::Command::new(program).args(arguments).current_dir(workspace::root()),
    )
}
