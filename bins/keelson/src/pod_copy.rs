//! `keelson cp`: files into and out of a container.
//!
//! Rule: the container's file tree is opened from outside, through its first process, and the
//! kernel resolves every name below with that directory as the root (openat2): no symlink of the
//! container leads out, no matter when it is made, and an image needs no tool of its own. Files out
//! of a container lose set-user-ID bits; symlinks, devices and pipes are not copied out.
//!
//! Not supported: a container that does not run, as it has no tree to be opened.

mod container_root;
mod id_map;
mod pod_path;
mod tree;

use crate::node_pods::{AgentAddress, AgentClient, find_pod};
use crate::pod_streams::running;
use crate::terminal;
use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use container_root::ContainerRoot;
use pod_path::{Direction, PodPath};
use std::path::Path;
use std::process::ExitCode;
use tree::TreeCopy;

/// Copy files into and out of a container
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  keelson cp web:/var/log/app.log .
  keelson cp ./site web:/srv/site
  keelson cp -c proxy kube-system/edge:/etc/proxy ./proxy

A path of this machine that has a colon is written ./a:b. Folders are copied with all that is in
them; into a folder that is there already, under their own name.")]
pub(crate) struct CpCommand {
    #[command(flatten)]
    address: AgentAddress,
    /// Which container, if the pod has several
    #[arg(short, long, value_name = "NAME")]
    container: Option<String>,
    /// A path, or POD:PATH
    from: String,
    /// A path, or POD:PATH
    to: String,
}

impl CpCommand {
    pub(crate) async fn run(self) -> Result<ExitCode> {
        let direction = pod_path::direction(&self.from, &self.to)?;
        let agent = AgentClient::at(&self.address.socket);
        let pods = agent.pods().await?;
        let PodPath { pod, path } = direction.remote();
        let pod = find_pod(&pods, pod)?;
        let container = running(pod, self.container.as_deref())?;
        let root = open_root(&agent, &container.id).await?;
        let mut walk = TreeCopy::default();
        match &direction {
            Direction::Out { to, .. } => {
                walk.is_outward = true;
                out(&root, path, to, &mut walk)?;
            }
            Direction::In { from, .. } => into(&root, from, path, &mut walk)?,
        }
        for skipped in &walk.skipped {
            terminal::print_error(&format!("warning: {skipped}"));
        }
        ensure!(walk.files + walk.dirs > 0, "nothing was copied");
        Ok(ExitCode::SUCCESS)
    }
}

/// Checks that the container runs before and after its tree is opened: once it has ended, its PID
/// may be another process's.
async fn open_root(agent: &AgentClient, container: &str) -> Result<ContainerRoot> {
    let process = agent.process(container).await?;
    let root = ContainerRoot::open(process.pid)?;
    let still = agent.process(container).await?;
    ensure!(still.pid == process.pid, "the container was restarted meanwhile; try again");
    Ok(root)
}

fn out(root: &ContainerRoot, from: &str, to: &Path, walk: &mut TreeCopy) -> Result<()> {
    let source = root.find(from)?.with_context(|| format!("{from}: not in the container"))?;
    let target = tree::local_target(to, pod_path::last_name(from))?;
    walk.copy(&source, &target, from)
}

fn into(root: &ContainerRoot, from: &Path, to: &str, walk: &mut TreeCopy) -> Result<()> {
    let source = tree::local_source(from)?;
    root.take_its_ids()?;
    let own = from.canonicalize().ok().and_then(|path| path.file_name().map(ToOwned::to_owned));
    let target = root.target(to, own.as_deref())?;
    if target.name.is_empty() {
        bail!("{}: has no name to copy it under", from.display());
    }
    walk.copy(&source, &target, &from.display().to_string())
}

#[cfg(test)]
mod tests;
