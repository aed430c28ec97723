//! `./dev cluster` as a user has it: it prints a kubeconfig, kubectl outside of the bed works with it,
//! Ctrl-C ends it, and nothing is left.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use node_testkit::{images, parts, programs};
use real_tests::cluster::NEEDS;
use real_tests::leftover_check::LeftoverCheck;
use rustix::process::{Pid, Signal, kill_process};

const START_LIMIT: Duration = Duration::from_secs(180);
const END_LIMIT: Duration = Duration::from_secs(60);

/// The cluster's program; killed if the test fails before it has ended.
struct RunningCluster {
    process: Child,
}

impl Drop for RunningCluster {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn dev_cluster_serves_kubectl_until_ctrl_c_and_leaves_nothing() -> Result<()> {
    let program = programs::build("real-tests", "cluster")?;
    parts::ensure(NEEDS)?;
    let home = tempfile::Builder::new().prefix("cluster").tempdir()?;
    let (dir, log) = (home.path().join("c"), home.path().join("log"));
    let leftovers = LeftoverCheck::start()?;
    let mut cluster = RunningCluster {
        process: Command::new(&program)
            .arg(format!("--dir={}", dir.display()))
            .stdin(Stdio::null())
            .stdout(File::create(&log)?)
            .stderr(File::options().append(true).open(&log)?)
            .spawn()
            .context("start the cluster")?,
    };
    let printed = || std::fs::read_to_string(&log).unwrap_or_default();
    let kubeconfig = dir.join("kubeconfig");
    let begun = Instant::now();
    while !(kubeconfig.exists() && printed().contains("export KUBECONFIG=")) {
        let ended = cluster.process.try_wait()?;
        ensure!(ended.is_none(), "it ended: {ended:?}\n{}", printed());
        ensure!(begun.elapsed() < START_LIMIT, "it did not start:\n{}", printed());
        std::thread::sleep(Duration::from_millis(100));
    }
    let kubectl = |arguments: &[&str]| kubectl(&dir, &kubeconfig, arguments);
    let image = format!("--image={}", images::BUSYBOX);
    kubectl(&["run", "hello", &image, "--", "sleep", "1000"])?;
    kubectl(&["wait", "pod/hello", "--for=condition=Ready", "--timeout=90s"])
        .with_context(|| kubectl(&["get", "pods,events", "--output=yaml"]).unwrap_or_default())?;
    let node = kubectl(&["get", "pod", "hello", "--output=jsonpath={.spec.nodeName}"])?;
    ensure!(node == "node", "the scheduler bound it to {node:?}");
    let name = kubectl(&["exec", "hello", "--", "hostname"])?;
    ensure!(name.trim() == "hello", "exec says {name:?}");
    let keelson = program.with_file_name("keelson");
    let socket = dir.join("agent.sock");
    let listed = output(Command::new(keelson).arg("ps").arg("--socket").arg(socket))?;
    ensure!(listed.contains("hello"), "keelson ps says {listed}");
    let process = Pid::from_raw(i32::try_from(cluster.process.id())?).context("a process")?;
    kill_process(process, Signal::INT)?;
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = cluster.process.try_wait()? {
            break status;
        }
        ensure!(begun.elapsed() < END_LIMIT, "it did not end:\n{}", printed());
        std::thread::sleep(Duration::from_millis(50));
    };
    ensure!(status.success(), "{status}:\n{}", printed());
    ensure!(!dir.exists(), "{} is left", dir.display());
    leftovers.expect_none()
}

fn kubectl(dir: &Path, kubeconfig: &Path, arguments: &[&str]) -> Result<String> {
    let mut command = Command::new(dir.join("kubectl"));
    command.env("KUBECONFIG", kubeconfig).env("KUBECACHEDIR", dir.join("kubectl-cache"));
    output(command.args(arguments))
}

fn output(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {}: {errors}", output.status);
    Ok(String::from_utf8(output.stdout)?)
}
