//! A standalone node: containerd with images, an agent over a manifest folder, and the agent's own
//! answers.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use node_testkit::bed::{Bed, free_port};
use node_testkit::start::{Containerd, ContainerdOptions, Running};
use node_testkit::{images, programs};
use serde_json::Value;

const SOCKET: &str = "/run/keelson/agent.sock";
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// What must be built before a bed is made.
pub(crate) struct Built {
    keelson: PathBuf,
    archives: Vec<PathBuf>,
}

pub(crate) fn built() -> Result<Built> {
    let keelson = programs::build("keelson", "keelson")?;
    let archives = vec![images::pause()?.oci_archive()?, images::busybox()?.oci_archive()?];
    Ok(Built { keelson, archives })
}

pub(crate) struct Desk<'a> {
    bed: &'a Bed,
    keelson: &'a Path,
    pub(crate) containerd: Containerd,
    config: String,
    pub(crate) agent: Running,
    lives: u32,
}

impl<'a> Desk<'a> {
    pub(crate) fn set_up(bed: &'a Bed, built: &'a Built, more: &str) -> Result<Self> {
        let containerd = Containerd::start(bed, &options())?;
        for archive in &built.archives {
            containerd.import(archive)?;
        }
        let manifests = bed.make_folder("manifests")?;
        let text = format!(
            "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n\
             authentication: {{webhook: {{enabled: false}}}}\nauthorization: {{mode: AlwaysAllow}}\n\
             failCgroupV1: false\nhealthzPort: {}\ncontainerRuntimeEndpoint: {}\n\
             staticPodPath: {}\n{more}",
            free_port()?,
            containerd.endpoint(),
            manifests.display(),
        );
        let path = bed.folder().join("kubelet.yaml");
        fs::write(&path, text)?;
        let config = format!("--config={}", path.display());
        let agent = start(bed, &built.keelson, &config, 0)?;
        Ok(Self { bed, keelson: &built.keelson, containerd, config, agent, lives: 1 })
    }

    /// Puts a manifest into the folder, whole.
    pub(crate) fn write(&self, file: &str, text: &str) -> Result<()> {
        let folder = self.bed.folder();
        let aside = folder.join(format!("{file}.new"));
        fs::write(&aside, text)?;
        fs::rename(&aside, folder.join("manifests").join(file))?;
        Ok(())
    }

    pub(crate) fn remove(&self, file: &str) -> Result<()> {
        let path = self.bed.folder().join("manifests").join(file);
        fs::remove_file(&path).with_context(|| path.display().to_string())
    }

    /// Kills the agent, as a crash would, and starts the next one.
    pub(crate) fn kill_agent(&mut self) -> Result<()> {
        self.agent.kill()?;
        self.agent = start(self.bed, self.keelson, &self.config, self.lives)?;
        self.lives += 1;
        Ok(())
    }

    /// What the agent answers on its socket.
    pub(crate) fn ask(&self, path: &str) -> Result<Value> {
        ask(path)
    }

    /// The pod of this name in its manifest.
    pub(crate) fn pod(&self, name: &str) -> Result<Value> {
        pod(name)
    }

    /// Waits until something of a pod holds.
    pub(crate) fn until(
        &mut self,
        what: &str,
        name: &str,
        holds: impl Fn(&Value) -> bool,
    ) -> Result<Value> {
        let wanted = name.to_owned();
        self.agent.wait_until(what, PATIENCE, || {
            let found = pod(&wanted)?;
            if holds(&found) { Ok(found) } else { bail!("not yet: {found:#}") }
        })
    }

    pub(crate) fn until_gone(&mut self, name: &str) -> Result<()> {
        let wanted = name.to_owned();
        self.agent.wait_until("its end", PATIENCE, || match pod(&wanted) {
            Ok(pod) => bail!("still there: {pod:#}"),
            Err(error) if error.to_string().starts_with("no ") => Ok(()),
            Err(error) => Err(error),
        })
    }

    /// Kills containerd, as a crash would, and starts it again over the same folders.
    pub(crate) fn restart_containerd(&mut self) -> Result<()> {
        self.containerd.process().kill()?;
        self.containerd = Containerd::start(self.bed, &options())?;
        Ok(())
    }

    /// The configuration that the agent has.
    pub(crate) fn configuration(&self) -> Result<String> {
        let path = self.bed.folder().join("kubelet.yaml");
        fs::read_to_string(&path).with_context(|| path.display().to_string())
    }

    /// What runs in containerd: ids and processes.
    pub(crate) fn tasks(&self) -> Result<Vec<String>> {
        let text = self.containerd.run_ctr(&["--namespace", "k8s.io", "tasks", "ls"])?;
        let mut tasks: Vec<String> =
            text.lines().filter(|line| line.contains("RUNNING")).map(str::to_owned).collect();
        tasks.sort();
        Ok(tasks)
    }

    /// Waits until so many run.
    pub(crate) fn wait_for_tasks(
        &self,
        process: &mut Running,
        count: usize,
    ) -> Result<Vec<String>> {
        process.wait_until("running containers", PATIENCE, || {
            let tasks = self.tasks()?;
            ensure!(tasks.len() == count, "{tasks:?}");
            Ok(tasks)
        })
    }

    /// Containers and sandboxes that containerd has.
    pub(crate) fn runtime_containers(&self) -> Result<Vec<String>> {
        let text =
            self.containerd.run_ctr(&["--namespace", "k8s.io", "containers", "ls", "--quiet"])?;
        Ok(text.lines().map(str::to_owned).collect())
    }
}

fn options() -> ContainerdOptions {
    ContainerdOptions {
        sandbox_image: Some(images::PAUSE.to_owned()),
        ..ContainerdOptions::default()
    }
}

fn ask(path: &str) -> Result<Value> {
    let mut stream = UnixStream::connect(SOCKET).context(SOCKET)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: agent\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let (head, body) = text.split_once("\r\n\r\n").context("an answer with a head")?;
    ensure!(head.starts_with("HTTP/1.1 200"), "{head}: {body}");
    Ok(serde_json::from_str(body)?)
}

fn pod(name: &str) -> Result<Value> {
    let answer = ask("/v1/pods")?;
    let pods = answer["pods"].as_array().cloned().unwrap_or_default();
    let prefix = format!("{name}-");
    let is_named =
        |pod: &&Value| pod["name"].as_str().is_some_and(|found| found.starts_with(&prefix));
    pods.iter().find(is_named).cloned().with_context(|| format!("no {name} in {pods:#?}"))
}

fn start(bed: &Bed, keelson: &Path, config: &str, life: u32) -> Result<Running> {
    let mut command = Command::new(keelson);
    command.args([
        "kubelet",
        config,
        "--root-dir=/var/lib/kubelet",
        "--v=2",
        "--hostname-override=desk",
    ]);
    Running::start(bed, &format!("agent-{life}"), &mut command)
}

pub(crate) fn manifest(name: &str, command: &str, rest: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  \
         terminationGracePeriodSeconds: 2\n  containers:\n  - name: main\n    image: {}\n    \
         imagePullPolicy: IfNotPresent\n    command: [sh, -c, {command:?}]\n{rest}",
        images::BUSYBOX
    )
}
