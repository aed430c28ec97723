//! `./dev cluster`: a cluster of one node on this machine until Ctrl-C.
//!
//! Rule: the same program is the process around the bed and the one in it; the arguments say the
//! same to both. It has no logic of its own: see `real_tests::cluster::interactive`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use node_testkit::bed;
use real_tests::cluster::RuntimeKind;
use real_tests::cluster::interactive::{InteractiveOptions, run_around, run_in_bed};

const USAGE: &str = "\
usage: ./dev cluster [--runtime containerd|embedded] [--reference] [--dir DIR]

Starts etcd, kube-apiserver, kube-controller-manager and kube-scheduler, joins this machine as a
node with Keelson's agent, prints the path of a kubeconfig, and stays until Ctrl-C; then nothing is
left. Needs root. The first start builds the parts (Go) and the agent (Rust), which takes a while.

  --runtime embedded    the runtime in this repository; needs nothing else (the default)
  --runtime containerd  containerd with runc and CNI plugins
  --reference           the reference kubelet in the agent's place, to compare (over containerd)
  --dir DIR             where the kubeconfig and sockets are; must not exist (target/cluster)

examples:
  ./dev cluster
  ./dev cluster --runtime containerd
  KUBECONFIG=target/cluster/kubeconfig target/cluster/kubectl get nodes     # in another terminal";

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cluster: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // For a bed's warden or init, which come without arguments, this never returns.
    let bed = bed::enter_role(None)?;
    let Some((options, port)) = parse(&arguments)? else {
        println!("{USAGE}");
        return Ok(());
    };
    match (bed, port) {
        (Some(bed), Some(port)) => run_in_bed(&bed, &options, port),
        (None, None) => run_around(&options, &passed_on(&options)),
        _ => bail!("--port is for the process in the bed\n{USAGE}"),
    }
}

/// The options, and the port for the process in the bed; `None` to print the usage.
fn parse(arguments: &[String]) -> Result<Option<(InteractiveOptions, Option<u16>)>> {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut dir = root.canonicalize().context("the work tree")?.join("target/cluster");
    let (mut runtime, mut is_reference, mut port) = (None, false, None);
    let mut words = arguments.iter().flat_map(|word| match word.split_once('=') {
        Some((name, value)) if name.starts_with("--") => vec![name, value],
        _ => vec![word.as_str()],
    });
    while let Some(word) = words.next() {
        let mut value = || words.next().with_context(|| format!("{word} needs a value\n{USAGE}"));
        match word {
            "--help" | "-h" | "help" => return Ok(None),
            "--runtime" => runtime = Some(runtime_kind(value()?)?),
            "--reference" => is_reference = true,
            "--dir" => dir = std::path::absolute(PathBuf::from(value()?)).context("--dir")?,
            "--port" => port = Some(value()?.parse().context("--port")?),
            other => bail!("unknown option {other:?}\n{USAGE}"),
        }
    }
    let usual = if is_reference { RuntimeKind::Containerd } else { RuntimeKind::Embedded };
    let runtime = runtime.unwrap_or(usual);
    Ok(Some((InteractiveOptions { runtime, is_reference, dir }, port)))
}

fn runtime_kind(name: &str) -> Result<RuntimeKind> {
    match name {
        "containerd" => Ok(RuntimeKind::Containerd),
        "embedded" => Ok(RuntimeKind::Embedded),
        other => bail!("--runtime {other:?}: expected containerd or embedded"),
    }
}

/// The arguments of the process in the bed.
fn passed_on(options: &InteractiveOptions) -> Vec<String> {
    let runtime = match options.runtime {
        RuntimeKind::Containerd => "containerd",
        RuntimeKind::Embedded => "embedded",
    };
    let mut arguments =
        vec![format!("--runtime={runtime}"), format!("--dir={}", options.dir.display())];
    if options.is_reference {
        arguments.push("--reference".to_owned());
    }
    arguments
}
