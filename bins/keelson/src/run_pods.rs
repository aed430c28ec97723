//! `keelson run FILE…`: runs pods on this machine with the embedded runtime, until they have ended
//! or are no longer wanted.
//!
//! Rule: the agent and the runtime are the same as those of `keelson kubelet` and `keelson cri`;
//! here they live in one process, and the manifests come from the command line. What the containers
//! write goes to the terminal. Ctrl-C ends the pods within their grace; a second one leaves.

mod attend;
mod compose;
mod manifest;
mod source;
mod split;

use crate::config_files;
use crate::terminal::{self, Colour, Palette};
use manifest::PodManifest;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  keelson run pod.yaml
  keelson run --import busybox.tar pod.yaml
  keelson run --import docker.io/library/hello:1=./rootfs hello.yaml
  cat pod.yaml | keelson run -

The exit code is 0 when all pods succeeded, else that of the first container that failed.";

/// Run pods on this machine with the embedded runtime
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RunCommand {
    /// Pod manifests, YAML (one or more documents) or JSON; `-` for standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,

    /// Images to bring in first: archives, OCI layouts, or NAME=FOLDER
    #[arg(long, value_name = "IMAGE")]
    import: Vec<String>,

    /// What survives a reboot: images and records
    #[arg(long, value_name = "DIR", default_value = "/var/lib/keelson")]
    root: PathBuf,

    /// What does not: sockets, mounts, namespaces
    #[arg(long, value_name = "DIR", default_value = "/run/keelson")]
    state: PathBuf,

    /// Say what the agent and the runtime do
    #[arg(short, long)]
    verbose: bool,
}

impl RunCommand {
    pub(crate) fn run(&self, palette: Palette) -> ExitCode {
        let (pods, errors) = self.read_all();
        for error in &errors {
            terminal::print_error(&format!("error: {error}"));
        }
        if !errors.is_empty() {
            return ExitCode::FAILURE;
        }
        for pod in &pods {
            terminal::print_error(describe(pod, palette).trim_end());
        }
        compose::run(self, &pods).unwrap_or_else(|error| {
            terminal::print_error(&format!("error: {error:#}"));
            ExitCode::FAILURE
        })
    }

    fn read_all(&self) -> (Vec<PodManifest>, Vec<String>) {
        let mut pods = Vec::new();
        let mut errors = Vec::new();
        for path in &self.files {
            match read(path) {
                Ok(found) => pods.extend(found),
                Err(found) => errors.extend(found),
            }
        }
        for (at, pod) in pods.iter().enumerate() {
            let same = |other: &&PodManifest| {
                (&other.namespace, &other.name) == (&pod.namespace, &pod.name)
            };
            if let Some(first) = pods.iter().take(at).find(same) {
                let (namespace, name) = (&pod.namespace, &pod.name);
                errors.push(format!(
                    "{}: {namespace}/{name} is in {} already",
                    pod.place, first.place
                ));
            }
        }
        (pods, errors)
    }
}

/// All pods of one file, or everything that is wrong with it.
fn read(path: &Path) -> Result<Vec<PodManifest>, Vec<String>> {
    if path.as_os_str() == "-" {
        let mut bytes = Vec::new();
        let limit = u64::try_from(pod_manifest::MAX_MANIFEST_BYTES).unwrap_or(u64::MAX);
        let read = std::io::stdin().lock().take(limit + 1).read_to_end(&mut bytes);
        read.map_err(|error| vec![format!("standard input: {error}")])?;
        return manifest::pods("standard input", &bytes);
    }
    let file = config_files::read_file(path).map_err(|error| vec![error])?;
    manifest::pods(&file.path, &file.bytes)
}

fn describe(pod: &PodManifest, palette: Palette) -> String {
    let name = palette.paint(Colour::Bold, &format!("{}/{}", pod.namespace, pod.name));
    let mut text = format!("pod {name}  ({})\n", pod.place);
    for container in &pod.containers {
        let kind = if container.init { "init container" } else { "container" };
        text.push_str(&format!("  {kind} {}  image {}\n", container.name, container.image));
    }
    text
}

#[cfg(test)]
mod tests;
