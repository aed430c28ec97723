//! The processes of an exec that has no group of its own, found by their session and their parents.
//!
//! Rule: every exec begins a session, ours and those of command-line runtimes; only processes of its
//! container are looked at. Each one that is found is stopped before the next look, so that it starts
//! nobody and leaves nobody without a parent; when a look finds nobody new, all are killed. Who has
//! both a session of his own and no parent of the tree any more has left it, as a daemon does: he goes
//! with the container.

use std::collections::{BTreeMap, BTreeSet};

use cgroup_files::Cgroup;
use container_create::ProcessFiles;
use rustix::fs::OFlags;
use rustix::process::{Pid, Signal, kill_process};

use super::Supervisor;
use super::births::in_helper;
use super::chores::Then;

#[cfg(test)]
mod tests;

/// Whoever is found in a round does nothing any more: a tree is not that deep.
const MOST_ROUNDS: u32 = 200;

/// The first process of an exec, by a name that is never used twice.
#[derive(Debug, Clone, Copy)]
struct First {
    pid: u32,
    start_ticks: u64,
}

struct Relations {
    parent: u32,
    session: u32,
}

impl Supervisor {
    /// SIGKILL to what an exec has started. False: there is nothing to find it by.
    pub(super) fn kill_tree(&mut self, exec: &str) -> bool {
        let Some(exec) = self.execs.get(exec) else { return false };
        let first = First { pid: exec.state.pid, start_ticks: exec.start_ticks };
        let container = self.containers.get(&exec.state.container);
        let group = container.and_then(|container| self.group_of(container));
        let Some(group) = group.filter(|_| first.pid != 0) else { return false };
        let files = &self.files;
        let helper = in_helper(|_reporter| kill(first, &group, files));
        let begun = helper.is_ok();
        if begun {
            self.add_chore(Then::Nothing, helper);
        }
        begun
    }
}

/// Runs in a helper.
fn kill(first: First, group: &Cgroup, files: &ProcessFiles) {
    end(first, files, || group.processes_beneath().unwrap_or_default());
}

fn end(first: First, files: &ProcessFiles, list: impl Fn() -> Vec<u32>) {
    // A number is free for others only when nobody of the session is left.
    if files.start_ticks(first.pid).is_some_and(|ticks| ticks != first.start_ticks) {
        return;
    }
    let mut found = BTreeSet::new();
    for _ in 0..MOST_ROUNDS {
        let mut all = list();
        all.push(first.pid);
        let table: BTreeMap<u32, Relations> =
            all.into_iter().filter_map(|pid| Some((pid, relations(files, pid)?))).collect();
        let new = newly_found(first.pid, &table, &mut found);
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
    first: u32,
    table: &BTreeMap<u32, Relations>,
    found: &mut BTreeSet<u32>,
) -> Vec<u32> {
    let mut new = Vec::new();
    loop {
        let before = new.len();
        for (pid, one) in table {
            let belongs = *pid == first || one.session == first || found.contains(&one.parent);
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

fn relations(files: &ProcessFiles, pid: u32) -> Option<Relations> {
    let file = files.open_file(&format!("{pid}/stat"), OFlags::RDONLY).ok()?;
    let mut text = [0; 1024];
    let count = rustix::io::read(&file, &mut text).ok()?;
    parse(&String::from_utf8_lossy(text.get(..count)?))
}

/// The name in brackets may have anything in it; behind it are the state, the parent, the process
/// group and the session.
fn parse(stat: &str) -> Option<Relations> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(1);
    let parent = fields.next()?.parse().ok()?;
    let session = fields.nth(1)?.parse().ok()?;
    Some(Relations { parent, session })
}
