//! `keelson run FILE…`: will run pod manifests on this machine with the embedded runtime.
//!
//! Rule: nothing is pretended. What exists does real work (the manifests are read and checked, the
//! machine is examined for what pods need) and then one sentence says that containers are not
//! started yet, with an exit code of its own.

mod manifest;
mod split;

use crate::config_files;
use crate::doctor::{self, Verdict};
use crate::terminal::{self, Colour, Palette};
use manifest::PodManifest;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The manifests are fine and the machine is too, but starting containers does not exist yet.
const NOT_BUILT: u8 = 3;

#[derive(Debug, clap::Args)]
pub(crate) struct RunCommand {
    /// Pod manifests, YAML (one or more documents) or JSON
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

impl RunCommand {
    pub(crate) fn run(&self, palette: Palette) -> ExitCode {
        let (pods, errors) = self.read_all();
        for pod in &pods {
            terminal::print(&describe(pod, palette));
        }
        for error in &errors {
            terminal::print_error(&format!("error: {error}"));
        }
        if !errors.is_empty() {
            return ExitCode::FAILURE;
        }
        let findings: Vec<doctor::Finding> = doctor::examine()
            .into_iter()
            .filter(|finding| finding.name != "container runtime")
            .collect();
        terminal::print(&format!("\n{}", doctor::table(&findings, palette)));
        if findings.iter().any(|finding| finding.verdict == Verdict::Missing) {
            terminal::print_error("error: this machine lacks what is marked as missing above");
            return ExitCode::FAILURE;
        }
        terminal::print_error(
            "not built yet: keelson does not start containers by itself so far, so nothing was \
             started; `keelson cri-client` talks to a runtime that is there",
        );
        ExitCode::from(NOT_BUILT)
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
        (pods, errors)
    }
}

/// All pods of one file, or everything that is wrong with it.
fn read(path: &Path) -> Result<Vec<PodManifest>, Vec<String>> {
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
