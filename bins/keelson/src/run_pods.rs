//! `keelson run FILE…`: runs pods on this machine with the embedded runtime, until they have ended
//! or are stopped.
//!
//! Rule: the agent and the runtime are the same as those of `keelson kubelet` and `keelson cri`;
//! here they run in one process, and the manifests come from the command line. In the foreground
//! the containers' output goes to the terminal, Ctrl-C ends the pods within their grace periods, a
//! second one kills them; in the background one agent per root runs until its last pod has ended.

mod background;
mod background_store;
mod compose;
mod contents;
mod desired_pods;
mod detach;
mod foreground;
mod image_manifest;
mod leftover_pods;
mod manifest;
mod manifest_contents;
mod monitor_pods;
mod pod_exit;
mod run_api;
mod show;
mod source;
mod split;

use crate::config_files;
use crate::terminal::{self, Colour, Palette};
use anyhow::{Result, bail};
use compose::RunDirs;
use contents::ManifestDocuments;
use desired_pods::WantedPod;
use image_manifest::{ImagePod, PublishedPort, Variable};
use manifest::PodManifest;
use show::OutputMode;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

pub(crate) use background::RunAgentCommand;

/// The response of an agent that accepts no more pods.
const ENDING: &str = "the background agent is ending with its last pod; ask again";

const EXAMPLES: &str = "\
Examples:
  keelson run pod.yaml
  keelson run --import busybox.tar pod.yaml
  keelson run --import docker.io/library/hello:1=./rootfs hello.yaml
  cat pod.yaml | keelson run -
  keelson run --detach pod.yaml        then ps, logs, exec, stop
  keelson run --detach                 take up again what a killed agent left
  keelson run --image docker.io/library/busybox:1 -it -- sh
  keelson run --image web:1 -p 8080:80 -e MODE=test
  keelson run --runtime-config registries.json pod.yaml

The exit code is 0 when all pods succeeded, else that of the first container that failed. Pods
ended by Ctrl-C, SIGTERM, a closed terminal or `stop` count by what their containers ended with
within their grace: 0 where all ended with 0, 137 for one that had to be killed. The background
agent of a --root restarts and probes its pods until the last has ended or is stopped, and then
ends too.";

/// Run pods on this machine with the embedded runtime
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RunCommand {
    /// Pods, and the ConfigMaps and Secrets that they use: YAML (one or more documents) or JSON;
    /// `-` for standard input
    #[arg(required_unless_present_any = ["image", "detach"], value_name = "FILE")]
    files: Vec<PathBuf>,

    /// Leave the pods to a background agent and return
    #[arg(short, long)]
    detach: bool,

    /// Run this image, without a manifest: once, in one container
    #[arg(long, value_name = "NAME", conflicts_with = "files")]
    image: Option<String>,

    /// What to call the pod of --image
    #[arg(long, value_name = "NAME", requires = "image")]
    name: Option<String>,

    /// Make a port of it answer on this machine: [HOST:]CONTAINER[/udp]
    #[arg(short = 'p', long = "publish", value_name = "PORTS", requires = "image")]
    ports: Vec<PublishedPort>,

    /// Set a variable of its environment
    #[arg(short = 'e', long = "env", value_name = "NAME=VALUE", requires = "image")]
    environment: Vec<Variable>,

    /// Pass standard input on to it
    #[arg(short = 'i', long, requires = "image")]
    stdin: bool,

    /// Give it a terminal
    #[arg(short, long, requires = "image")]
    tty: bool,

    /// Images to import first: archives, OCI layouts, or NAME=DIR
    #[arg(long, value_name = "IMAGE")]
    import: Vec<String>,

    /// What survives a reboot: images and records
    #[arg(long, value_name = "DIR", default_value = "/var/lib/keelson")]
    root: PathBuf,

    /// What does not: sockets, mounts, namespaces
    #[arg(long, value_name = "DIR", default_value = "/run/keelson")]
    state: PathBuf,

    /// A JSON file of settings of the embedded runtime, as `keelson cri --config` takes it:
    /// registries (mirrors, certificates, plain HTTP), network, handlers
    #[arg(long, value_name = "FILE")]
    runtime_config: Option<PathBuf>,

    /// Say what the agent and the runtime do
    #[arg(short, long)]
    verbose: bool,

    /// The arguments of --image's program
    #[arg(last = true, value_name = "ARGUMENTS", requires = "image")]
    arguments: Vec<String>,
}

impl RunCommand {
    pub(crate) fn run(self, palette: Palette) -> ExitCode {
        let (pods, errors) = match &self.image {
            Some(image) => self.pod_of_image(image),
            None => self.read_all(),
        };
        for error in &errors {
            terminal::print_error(&format!("error: {error}"));
        }
        if !errors.is_empty() {
            return ExitCode::FAILURE;
        }
        if self.image.is_none() {
            for pod in &pods {
                terminal::print_error(describe(pod, palette).trim_end());
            }
        }
        self.go(&pods).unwrap_or_else(|error| {
            terminal::print_error(&format!("error: {error:#}"));
            ExitCode::FAILURE
        })
    }

    fn go(&self, pods: &[PodManifest]) -> Result<ExitCode> {
        let dirs = RunDirs::new(&self.root, &self.state, self.runtime_config.as_deref())?;
        // An invalid file is reported before anything is done.
        dirs.settings()?;
        if !self.detach {
            let wanted = pods.iter().map(|pod| WantedPod::of(pod, pod.location.clone())).collect();
            return foreground::run(&dirs, wanted, &self.import, self.show(), self.verbose);
        }
        let tasks = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        if pods.is_empty() {
            let background_store = background_store::BackgroundPodStore::below(&dirs.agent_root());
            let no_names = std::iter::empty();
            if tasks.block_on(background_store.load())?.is_empty()
                && tasks
                    .block_on(leftover_pods::below(&dirs.agent_root(), no_names, &[]))?
                    .is_empty()
            {
                bail!("no pods are left in {}; say a FILE or --image", dirs.root.display());
            }
        }
        compose::import(&dirs.root, &self.import)?;
        tasks.block_on(detach::run(&dirs, pods))?;
        Ok(ExitCode::SUCCESS)
    }

    fn show(&self) -> OutputMode {
        match (&self.image, self.stdin, self.tty) {
            (None, ..) => OutputMode::Prefixed,
            (Some(_), stdin, true) => OutputMode::Terminal { stdin },
            (Some(_), true, false) => OutputMode::PlainWithInput,
            (Some(_), false, false) => OutputMode::Plain,
        }
    }

    fn pod_of_image(&self, image: &str) -> (Vec<PodManifest>, Vec<String>) {
        let from_image = ImagePod {
            image: image.to_owned(),
            name: self.name.clone(),
            ports: self.ports.clone(),
            environment: self.environment.clone(),
            stdin: self.stdin,
            tty: self.tty,
            arguments: self.arguments.clone(),
        };
        match manifest::pods("--image", from_image.manifest().as_bytes()) {
            Ok(pods) => (pods, Vec::new()),
            Err(errors) => (Vec::new(), errors),
        }
    }

    fn read_all(&self) -> (Vec<PodManifest>, Vec<String>) {
        let mut files = Vec::new();
        let mut errors = Vec::new();
        for path in &self.files {
            match read(path) {
                Ok(found) => files.push(found),
                Err(found) => errors.extend(found),
            }
        }
        if !errors.is_empty() {
            return (Vec::new(), errors);
        }
        let pods = match contents::assign(files) {
            Ok(pods) => pods,
            Err(errors) => return (Vec::new(), errors),
        };
        if pods.is_empty() && !self.files.is_empty() {
            errors.push("the files have no Pod".to_owned());
        }
        for (at, pod) in pods.iter().enumerate() {
            let same = |other: &&PodManifest| {
                (&other.namespace, &other.name) == (&pod.namespace, &pod.name)
            };
            if let Some(first) = pods.iter().take(at).find(same) {
                let (namespace, name) = (&pod.namespace, &pod.name);
                errors.push(format!(
                    "{}: {namespace}/{name} is in {} already",
                    pod.location, first.location
                ));
            }
        }
        (pods, errors)
    }
}

/// All documents of one file, or everything that is wrong with it.
fn read(path: &Path) -> Result<ManifestDocuments, Vec<String>> {
    if path.as_os_str() == "-" {
        let mut bytes = Vec::new();
        let limit = u64::try_from(pod_manifest::MAX_MANIFEST_BYTES).unwrap_or(u64::MAX);
        let read = std::io::stdin().lock().take(limit + 1).read_to_end(&mut bytes);
        read.map_err(|error| vec![format!("standard input: {error}")])?;
        return manifest::documents("standard input", &bytes);
    }
    let file = config_files::read_file(path).map_err(|error| vec![error])?;
    manifest::documents(&file.path, &file.bytes)
}

fn describe(pod: &PodManifest, palette: Palette) -> String {
    let name = palette.paint(Colour::Bold, &format!("{}/{}", pod.namespace, pod.name));
    let mut text = format!("pod {name}  ({})\n", pod.location);
    for container in &pod.containers {
        let kind = if container.init { "init container" } else { "container" };
        text.push_str(&format!("  {kind} {}  image {}\n", container.name, container.image));
    }
    text
}

#[cfg(test)]
mod tests;
