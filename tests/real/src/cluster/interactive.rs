//! A cluster for people: in a bed, with the API server reachable from the machine around it.
//!
//! ```text
//! kubectl ─> 127.0.0.1:PORT ─> [this process] ─> DIR/api.sock ─> [in the bed] ─> kube-apiserver
//! ```
//!
//! Rule: a bed's network leads nowhere, so connections cross by a socket in a directory that both
//! sides see. Ctrl-C ends the bed and with it everything; the directory is removed. Nothing of the
//! cluster outlives this process, however it ends.

mod files;
mod forward;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use node_testkit::bed::{Bed, BedOutcome, BedRequest, CommandOutput, NODE_ADDRESS, launch};
use node_testkit::parts;
use tokio::net::TcpListener;

use super::node::{ClusterPrograms, JoinedNode, NEEDS};
use super::node_runtime::RuntimeKind;
use crate::standalone::agent::AgentKind;

/// A forgotten cluster ends by itself.
const LONGEST: Duration = Duration::from_hours(24);
/// The API server's socket, and the one of our agent, in the shared directory.
const API_SOCKET: &str = "api.sock";
const AGENT_SOCKET: &str = "agent.sock";
/// Where our agent listens in the bed.
const AGENT_SOCKET_INSIDE: &str = "/run/keelson/agent.sock";
/// Tells the process in the bed to end.
const STOP_FILE: &str = "stop";
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// What a bed covers with directories of its own; a socket there would not be seen by both sides.
const COVERED: [&str; 6] = ["/run", "/var", "/etc", "/usr", "/proc", "/sys"];

/// Options of an interactive cluster.
#[derive(Debug, Clone)]
pub struct InteractiveOptions {
    pub runtime: RuntimeKind,
    /// The reference kubelet in place of our agent.
    pub is_reference: bool,
    /// Where the kubeconfig and the sockets are; made and removed.
    pub dir: PathBuf,
}

/// Runs the cluster until Ctrl-C. `arguments` are those with which this program becomes the process
/// in the bed; the port of the API server is added.
///
/// # Errors
/// When it cannot be started, or ended otherwise.
pub fn run_around(options: &InteractiveOptions, arguments: &[String]) -> Result<()> {
    let covered = COVERED.iter().find(|covered| options.dir.starts_with(covered));
    if let Some(covered) = covered {
        bail!("{}: a bed covers {covered}; choose another --dir", options.dir.display());
    }
    let needs = NEEDS.iter().copied().chain(options.is_reference.then_some("kubelet"));
    parts::ensure(&needs.collect::<Vec<_>>())?;
    // Built here, so that there is nothing left to build in the bed, which has no network.
    ClusterPrograms::build()?;
    fs::create_dir(&options.dir)
        .with_context(|| format!("make {} (is another cluster running?)", options.dir.display()))?;
    let result = around(options, arguments);
    fs::remove_dir_all(&options.dir)
        .with_context(|| format!("remove {}", options.dir.display()))?;
    result
}

fn around(options: &InteractiveOptions, arguments: &[String]) -> Result<()> {
    let tasks =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    tasks.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("a port of this machine")?;
        let port = listener.local_addr()?.port();
        let executable = std::env::current_exe().context("find this program")?;
        let mut command = vec![executable.display().to_string()];
        command.extend(arguments.iter().cloned());
        command.push(format!("--port={port}"));
        let request = BedRequest {
            name: "cluster".to_owned(),
            deadline: LONGEST,
            command,
            output: CommandOutput::Inherit,
            keep_logs: options.dir.with_extension("logs"),
            reentry: Vec::new(),
            must_enter: false,
        };
        tokio::spawn(forward::tcp_to_unix(listener, options.dir.join(API_SOCKET)));
        let mut bed = tokio::task::spawn_blocking(move || launch(&request));
        let outcome = tokio::select! {
            outcome = &mut bed => outcome,
            signal = tokio::signal::ctrl_c() => {
                signal.context("wait for Ctrl-C")?;
                eprintln!("\ncluster: ending");
                fs::write(options.dir.join(STOP_FILE), "")?;
                bed.await
            }
        };
        match outcome.context("the bed's task")?? {
            BedOutcome::Exited { status: 0, .. } => Ok(()),
            outcome => bail!("{}", outcome.describe()),
        }
    })
}

/// The process in the bed: starts the cluster, prints how to use it, and stays until it is asked to
/// end.
///
/// # Errors
/// When a part does not come up.
pub fn run_in_bed(bed: &Bed, options: &InteractiveOptions, port: u16) -> Result<()> {
    let programs = ClusterPrograms::build()?;
    eprintln!("cluster: starting etcd, API server, controller manager, scheduler and runtime");
    let mut node = JoinedNode::without_agent(bed, &programs, options.runtime)?;
    eprintln!("cluster: starting the agent");
    if options.is_reference {
        node.replace_agent(AgentKind::reference()?)?;
    } else {
        node.start_agent()?;
    }
    node.until_schedulable()?;
    let tasks =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let api_port = files::port_of(&node.plane.url())?;
    let api_socket = options.dir.join(API_SOCKET);
    tasks.spawn(forward::unix_to_tcp(api_socket, format!("{NODE_ADDRESS}:{api_port}")));
    if !options.is_reference {
        let agent_socket = options.dir.join(AGENT_SOCKET);
        tasks.spawn(forward::unix_to_unix(agent_socket, PathBuf::from(AGENT_SOCKET_INSIDE)));
    }
    let kubeconfig = files::write(&node.plane, &options.dir, port)?;
    print!("{}", introduction(options, &kubeconfig, &programs));
    let stop = options.dir.join(STOP_FILE);
    while !stop.exists() {
        ensure!(options.dir.is_dir(), "{} is gone", options.dir.display());
        std::thread::sleep(LOOK_EVERY);
    }
    node.kill_agent()?;
    node.runtime.remove_all()
}

/// What to try.
fn introduction(
    options: &InteractiveOptions,
    kubeconfig: &Path,
    programs: &ClusterPrograms,
) -> String {
    let agent = if options.is_reference { "the reference kubelet" } else { "Keelson" };
    let runtime = match options.runtime {
        RuntimeKind::Containerd => "containerd",
        RuntimeKind::Embedded => "the embedded runtime",
    };
    let kubectl = options.dir.join(files::KUBECTL);
    let mut text = format!(
        "\nA cluster of one node: {agent} over {runtime}. Ctrl-C ends it and leaves nothing.\n\n  \
         export KUBECONFIG={}\n  \
         alias kubectl={}\n\n  \
         kubectl get nodes\n  \
         kubectl create deployment web --replicas=2 --image={} -- sleep 10000\n  \
         kubectl get pods -o wide\n  \
         kubectl exec deployment/web -- hostname\n",
        kubeconfig.display(),
        kubectl.display(),
        node_testkit::images::BUSYBOX,
    );
    if !options.is_reference {
        let keelson = &programs.keelson.command[0];
        let socket = options.dir.join(AGENT_SOCKET);
        for verb in ["ps", "explain POD", "timeline POD"] {
            text.push_str(&format!("  {keelson} {verb} --socket {}\n", socket.display()));
        }
    }
    text.push('\n');
    text
}
