//! The processes of an exec without its own cgroup, found by session and parent.
//!
//! Rule: every exec starts a session, ours and those of command-line runtimes; only processes of
//! its container are considered. Each process found is stopped before the next pass, so that it can
//! neither fork nor orphan a child; when a pass finds no new process, all are killed. A process
//! with its own session and no parent in the tree has left it, as a daemon does: it ends with the
//! container.

use std::collections::{BTreeMap, BTreeSet};

use cgroup_files::Cgroup;
use container_create::ProcessFiles;
use rustix::fs::OFlags;
use rustix::process::{Pid, Signal, kill_process};

use super::Supervisor;
use super::cgroup_jobs::AfterJob;
use super::pending_creates::in_helper;

#[cfg(test)]
mod tests;

/// Bounds the passes. Stopped processes do not fork: no tree is that deep.
const MAX_ROUNDS: u32 = 200;

/// The first process of an exec, identified by PID and start time.
#[derive(Debug, Clone, Copy)]
struct TreeRoot {
    pid: u32,
    start_ticks: u64,
}

struct ProcessRelations {
    parent: u32,
    session: u32,
}

impl Supervisor {
    /// Sends SIGKILL to all processes of an exec. False: there is nothing to find them by.
    pub(super) fn kill_tree(&mut self, exec: &str) -> bool {
        let Some(exec) = self.execs.get(exec) else { return false };
        let root = TreeRoot { pid: exec.state.pid, start_ticks: exec.start_ticks };
        let container = self.containers.get(&exec.state.container);
        let group = container.and_then(|container| self.group_of(container));
        let Some(group) = group.filter(|_| root.pid != 0) else { return false };
        let files = &self.files;
        let helper = in_helper(|_reporter| kill(root, &group, files));
        let begun = helper.is_ok();
        if begun {
            self.add_cgroup_job(AfterJob::Nothing, helper);
        }
        begun
    }
}

/// Runs in a helper.
fn kill(root: TreeRoot, group: &Cgroup, files: &ProcessFiles) {
    kill_tree_of(root, files, || group.processes_beneath().unwrap_or_default());
}

fn kill_tree_of(root: TreeRoot, files: &ProcessFiles, list: impl Fn() -> Vec<u32>) {
    // The kernel reuses a session's PID only when the session is empty.
    if files.start_ticks(root.pid).is_some_and(|ticks| ticks != root.start_ticks) {
        return;
    }
    let mut found = BTreeSet::new();
    for _ in 0..MAX_ROUNDS {
        let mut all = list();
        all.push(root.pid);
        let table: BTreeMap<u32, ProcessRelations> =
            all.into_iter().filter_map(|pid| Some((pid, relations(files, pid)?))).collect();
        let new = newly_found(root.pid, &table, &mut found);
        if new.is_empty() {
            break;
        }
        for pid in new {
            signal(pid, Signal::STOP);
        }
    }
    for pid in found {
        signal(pid, Signal::KILL);
    }
}

fn newly_found(
    root: u32,
    table: &BTreeMap<u32, ProcessRelations>,
    found: &mut BTreeSet<u32>,
) -> Vec<u32> {
    let mut new = Vec::new();
    loop {
        let before = new.len();
        for (pid, one) in table {
            let belongs = *pid == root || one.session == root || found.contains(&one.parent);
            if belongs && found.insert(*pid) {
                new.push(*pid);
            }
        }
        if new.len() == before {
            return new;
        }
    }
}

fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, signal);
    }
}

fn relations(files: &ProcessFiles, pid: u32) -> Option<ProcessRelations> {
    let file = files.open_file(&format!("{pid}/stat"), OFlags::RDONLY).ok()?;
    let mut text = [0; 1024];
    let count = rustix::io::read(&file, &mut text).ok()?;
    parse(&String::from_utf8_lossy(text.get(..count)?))
}

/// The name in brackets may contain any character; after it come the state, the parent, the process
/// group and the session.
fn parse(stat: &str) -> Option<ProcessRelations> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(1);
    let parent = fields.next()?.parse().ok()?;
    let session = fields.nth(1)?.parse().ok()?;
    Some(ProcessRelations { parent, session })
}
