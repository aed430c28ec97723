//! The built `keelson` on a real containerd: the CRI client's complete round, and restarts of the
//! agent that do not affect containers.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use node_testkit::bed::{Bed, BedTest, free_port};
use node_testkit::start::{Containerd, ContainerdOptions, RunningPart};
use node_testkit::{images, parts, programs};
use serde_json::{Value, json};

/// `keelson cri-client` on one runtime.
struct CriClientCli<'a> {
    keelson: &'a Path,
    endpoint: String,
}

impl CriClientCli<'_> {
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.keelson);
        command.args(["cri-client", "--runtime-endpoint", &self.endpoint]).args(arguments);
        command
    }

    fn run(&self, arguments: &[&str]) -> Result<String> {
        let output = self.command(arguments).output()?;
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.success(), "cri-client {arguments:?}: {} {words}", output.status);
        Ok(String::from_utf8(output.stdout)?.trim().to_owned())
    }

    fn json(&self, arguments: &[&str]) -> Result<Value> {
        let mut all = vec!["-o", "json"];
        all.splice(0..0, arguments.iter().copied());
        Ok(serde_json::from_str(&self.run(&all)?)?)
    }
}

fn write_json(bed: &Bed, name: &str, content: &Value) -> Result<String> {
    let path = bed.dir().join(name);
    fs::write(&path, content.to_string()).with_context(|| path.display().to_string())?;
    Ok(path.display().to_string())
}

/// Starts containerd with the images of a small pod, imported from files.
fn runtime_with_images(bed: &Bed, archives: &[PathBuf]) -> Result<Containerd> {
    let options = ContainerdOptions {
        sandbox_image: Some(images::PAUSE.to_owned()),
        ..ContainerdOptions::default()
    };
    let containerd = Containerd::start(bed, &options)?;
    for archive in archives {
        containerd.import(archive)?;
    }
    Ok(containerd)
}

/// A pod sandbox with one sleeping container; returns both ids.
fn start_sleeper(bed: &Bed, client: &CriClientCli<'_>) -> Result<(String, String)> {
    let logs = bed.create_dir("pod-logs")?;
    let pod = write_json(
        bed,
        "pod.json",
        &json!({
            "metadata": {"name": "sleeper", "namespace": "default", "uid": "u-1", "attempt": 0},
            "log_directory": logs, "linux": {"cgroup_parent": "/kubepods/sleeper"},
        }),
    )?;
    let container = write_json(
        bed,
        "container.json",
        &json!({
            "metadata": {"name": "main"}, "image": {"image": images::BUSYBOX},
            "command": ["sleep", "1000"], "log_path": "main.log", "linux": {},
        }),
    )?;
    let sandbox = client.run(&["runp", &pod])?;
    let main = client.run(&["create", &sandbox, &container, &pod])?;
    client.run(&["start", &main])?;
    Ok((sandbox, main))
}

#[test]
fn cri_client_runs_a_pod_from_creation_to_removal() -> Result<()> {
    let keelson = programs::build("keelson", "keelson")?;
    let archives = [images::pause()?.oci_archive()?, images::busybox()?.oci_archive()?];
    BedTest::new().needs(Containerd::NEEDS).deadline(Duration::from_secs(120)).run(|bed| {
        let containerd = runtime_with_images(bed, &archives)?;
        let client = CriClientCli { keelson: &keelson, endpoint: containerd.endpoint() };

        let version = client.run(&["version"])?;
        let pinned = parts::version("containerd")?;
        ensure!(version.contains("containerd") && version.contains(&pinned), "{version}");
        let listed = client.run(&["images"])?;
        ensure!(listed.contains("e2e-test-images/busybox"), "{listed}");

        let (sandbox, main) = start_sleeper(bed, &client)?;
        ensure!(client.run(&["pods"])?.contains("sleeper"), "the pod is listed");
        ensure!(client.run(&["ps"])?.contains("main"), "the container is listed");
        let state = &client.json(&["inspect", &main])?["status"]["state"];
        ensure!(state == "CONTAINER_RUNNING", "{state}");
        ensure!(
            client.json(&["inspectp", &sandbox])?["status"]["network"]["ip"].is_string(),
            "an address"
        );

        let printed = client.run(&["exec", &main, "--", "sh", "-c", "echo in; hostname"])?;
        ensure!(printed.starts_with("in\n"), "{printed}");
        let failed = client.command(&["exec", &main, "--", "sh", "-c", "exit 7"]).status()?;
        ensure!(failed.code() == Some(7), "exit code passed on: {failed}");
        ensure!(client.run(&["stats"])?.contains("main"), "statistics");

        client.run(&["stop", &main])?;
        client.run(&["rm", &main])?;
        client.run(&["stopp", &sandbox])?;
        client.run(&["rmp", &sandbox])?;
        ensure!(!client.json(&["pods"])?.to_string().contains("sleeper"), "gone");
        Ok(())
    })
}

/// How often the agent is killed: a few times in `cargo xtask test`, more with `cargo xtask soak`.
fn kills() -> Result<u32> {
    std::env::var("KEELSON_KILLS").map_or(Ok(5), |text| text.parse().context("KEELSON_KILLS"))
}

/// The instants of the kills, spread over the agent's start: the same in every run.
fn instants() -> impl Iterator<Item = Duration> {
    let mut state: u64 = 0x9e37_79b9_7f4a_7c15;
    std::iter::repeat_with(move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        Duration::from_millis(state % 120)
    })
}

/// Starts an agent on the bed's default root directory without waiting.
fn start_agent(bed: &Bed, keelson: &Path, name: &str, config: &str) -> Result<RunningPart> {
    let mut command = Command::new(keelson);
    command.args(["kubelet", config, "--root-dir=/var/lib/kubelet"]);
    RunningPart::start(bed, name, &mut command)
}

fn write_config(bed: &Bed, endpoint: &str) -> Result<String> {
    let text = format!(
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n\
         authentication: {{webhook: {{enabled: false}}}}\nauthorization: {{mode: AlwaysAllow}}\n\
         failCgroupV1: false\nhealthzPort: {}\ncontainerRuntimeEndpoint: {endpoint}\n",
        free_port()?,
    );
    let path = bed.dir().join("kubelet.yaml");
    fs::write(&path, text)?;
    Ok(format!("--config={}", path.display()))
}

#[test]
fn killing_the_agent_touches_no_container_and_the_next_one_starts() -> Result<()> {
    let keelson = programs::build("keelson", "keelson")?;
    let archives = [images::pause()?.oci_archive()?, images::busybox()?.oci_archive()?];
    BedTest::new().needs(Containerd::NEEDS).deadline(Duration::from_secs(300)).run(|bed| {
        let containerd = runtime_with_images(bed, &archives)?;
        let client = CriClientCli { keelson: &keelson, endpoint: containerd.endpoint() };
        let (_, main) = start_sleeper(bed, &client)?;
        let started = client.json(&["inspect", &main])?["status"]["startedAt"].clone();
        let config = write_config(bed, &containerd.endpoint())?;
        for (round, instant) in (0..kills()?).zip(instants()) {
            let mut agent = start_agent(bed, &keelson, &format!("killed-{round}"), &config)?;
            std::thread::sleep(instant);
            println!("kill {round} after {} ms", instant.as_millis());
            agent.kill()?;
        }
        let mut agent = start_agent(bed, &keelson, "last", &config)?;
        let log = agent.log().to_owned();
        agent.wait_until("see the runtime", Duration::from_secs(20), || {
            let text = fs::read_to_string(&log)?;
            ensure!(text.contains("Container runtime answers"), "{text}");
            Ok(())
        })?;
        let status = &client.json(&["inspect", &main])?["status"];
        ensure!(status["state"] == "CONTAINER_RUNNING", "{status}");
        ensure!(status["startedAt"] == started, "restarted: {status}");
        Ok(())
    })
}
