//! Verbs that run upstream's node suite: `conformance node` with one agent over one runtime, and
//! `conformance node-over-cri` with the reference kubelet over both runtimes.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, ValueEnum};
use node_testkit::parts;
use serde_json::json;

use crate::runtime_clients::{build, in_bed};
use crate::workspace;

const PARTS: &[&str] = &[
    "containerd",
    "runc",
    "cni-plugins",
    "registry",
    "kubelet",
    "agnhost",
    "ginkgo",
    "e2e-node-test",
];

/// What a release must pass upstream.
const CONFORMANCE: &str = "NodeConformance && !Serial && !Slow && !Flaky";

/// The specs that test a container runtime.
const ON_CONTAINERS: &str = "Container Runtime|Security Context|Containers Lifecycle|\
    InitContainer|Probing container|Container Lifecycle Hook|Kubelet Cgroup Manager|Networking|\
    Sysctls|RuntimeClass|ImageID|Mount recursive read-only";

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum AgentChoice {
    Reference,
    Keelson,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum RuntimeChoice {
    Containerd,
    Keelson,
}

/// Options of `conformance node`.
#[derive(Debug, Clone, Args)]
pub(crate) struct NodeOptions {
    /// With `node`: the program in the kubelet's place
    #[arg(long, value_enum)]
    agent: Option<AgentChoice>,
    /// With `node`: the CRI runtime below it
    #[arg(long, value_enum)]
    runtime: Option<RuntimeChoice>,
    /// With `node`: only specs whose text matches this regular expression
    #[arg(long)]
    focus: Option<String>,
    /// With `node`: a label filter of ginkgo; without it, NodeConformance that is not serial, slow or flaky
    #[arg(long)]
    labels: Option<String>,
    /// With `node`: only what failed in the last run of this agent over this runtime
    #[arg(long, conflicts_with = "focus")]
    rerun_failed: bool,
    /// With `node`: how many specs run in parallel (12 when not given)
    #[arg(long)]
    at_once: Option<u32>,
    /// With `node`: write the results to docs/conformance
    #[arg(long)]
    record: bool,
}

impl NodeOptions {
    /// Options of one subject are an error with any other.
    pub(crate) fn must_be_unused(&self) -> Result<()> {
        let Self { agent, runtime, focus, labels, rerun_failed, at_once, record } = self;
        let used = agent.is_some()
            || runtime.is_some()
            || focus.is_some()
            || labels.is_some()
            || at_once.is_some();
        ensure!(!used && !rerun_failed && !record, "these options belong to `conformance node`");
        Ok(())
    }
}

/// Upstream's suite with one agent over one runtime. Fails when a spec fails.
pub(crate) fn conformance(options: &NodeOptions) -> Result<()> {
    parts::command(PARTS)?;
    build()?;
    let agent = options.agent.unwrap_or(AgentChoice::Keelson);
    let runtime = options.runtime.unwrap_or(RuntimeChoice::Containerd);
    let labels = options.labels.as_deref().unwrap_or(CONFORMANCE);
    let name = format!("{}-over-{}", value(&agent), value(&runtime));
    let results = results_dir()?.join(format!("{name}.json"));
    run(&json!({
        "agent": value(&agent),
        "runtime": value(&runtime),
        "keelson": workspace::built("keelson")?,
        "results": results,
        "labels": labels,
        "focus": options.focus,
        "rerun_failed": options.rerun_failed,
        "at_once": options.at_once.unwrap_or(12),
    }))?;
    if options.record {
        record(&results, &name, labels)?;
    }
    let text = std::fs::read_to_string(&results).with_context(|| results.display().to_string())?;
    let specs: serde_json::Value = serde_json::from_str(&text)?;
    let endings = specs.as_object().context("results are no object")?.values();
    let failed = endings.filter(|ending| ending["state"] == "failed").count();
    if failed > 0 {
        bail!(
            "{failed} specs failed; again with --rerun-failed; all results: {}",
            results.display()
        );
    }
    Ok(())
}

/// The reference kubelet over containerd and over `keelson cri`; KEELSON_FOCUS filters the specs.
pub(crate) fn over_both_runtimes() -> Result<()> {
    parts::command(PARTS)?;
    build()?;
    let dir = results_dir()?;
    let results =
        |runtime| dir.join(format!("containers-over-{}.json", value::<RuntimeChoice>(&runtime)));
    let focus = std::env::var("KEELSON_FOCUS").unwrap_or_else(|_| ON_CONTAINERS.to_owned());
    for runtime in [RuntimeChoice::Containerd, RuntimeChoice::Keelson] {
        run(&json!({
            "agent": value(&AgentChoice::Reference),
            "runtime": value(&runtime),
            "keelson": workspace::built("keelson")?,
            "results": results(runtime),
            "labels": null,
            "focus": focus,
            "rerun_failed": false,
            "at_once": 8,
        }))?;
    }
    let mut command = Command::new(workspace::built("node-specs")?);
    command
        .arg("compare")
        .args([results(RuntimeChoice::Containerd), results(RuntimeChoice::Keelson)]);
    let list = format!("tests/real/goldens/node-over-cri-{}.txt", parts::version("kubelet")?);
    workspace::run(command.arg(workspace::root().join(list)))
}

fn run(settings: &serde_json::Value) -> Result<()> {
    in_bed("node-specs", "120m", &["run".into(), OsString::from(settings.to_string())])
}

fn record(results: &std::path::Path, name: &str, labels: &str) -> Result<()> {
    let output_of = |program: &str, arguments: &[&str]| -> Result<String> {
        let output = Command::new(program).args(arguments).current_dir(workspace::root()).output();
        let output = output.with_context(|| program.to_owned())?;
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let (date, commit) =
        (output_of("date", &["+%Y-%m-%d"])?, output_of("git", &["rev-parse", "--short", "HEAD"])?);
    let origin = format!("{date}, {commit}, Kubernetes {}, {labels}", parts::version("kubelet")?);
    let mut command = Command::new(workspace::built("node-specs")?);
    command.arg("record").arg(results).arg(workspace::root().join("docs/conformance"));
    workspace::run(command.args([name, &origin]))
}

fn results_dir() -> Result<PathBuf> {
    let dir = workspace::target_dir()?.join("node-specs");
    std::fs::create_dir_all(&dir).with_context(|| dir.display().to_string())?;
    Ok(dir)
}

/// The value's name on the command line, which is also the one in the settings.
fn value<T: ValueEnum>(of: &T) -> String {
    of.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}
