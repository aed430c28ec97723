//! Checks what a run left on the machine: a snapshot before, a comparison after.
//!
//! Rule: the check is a program of its own and relies on no other program's report. It examines the
//! host itself: processes, mounts, cgroups, links, addresses, network namespaces, nftables rules
//! and directories. Beds in use (warden and test process alive) are not leftovers, and neither is
//! what has nothing to do with beds and parts: other things start and end on a busy machine all the
//! time.
//!
//! Inside a bed everything is the bed's, and what counts is what the bed, or a part in it, could
//! have created, recognized by its mark:
//!
//! | kind | counts in a bed when |
//! |---|---|
//! | process | it is in a bed's cgroup, or a pod's, has a bed's role, or its program is a part or ours |
//! | mount | its point, root, source or options lie in beds, in a directory of parts, or in one of ours in the temporary directory |
//! | cgroup | it is a bed's or a pod's, or neither a systemd unit nor a sibling of the check's own cgroup |
//! | link | it has a name that beds, CNI plugins or kube programs give; not when its bridge is another's |
//! | address | it is on such a link, or is the node's address in beds |
//! | network namespace | its name is one that CNI runtimes or our runtime give |
//! | nftables rule | its table or chain has such a name, or it names such a chain, link or address |
//! | directory | it is a bed's, one of parts, or has a name of ours in the temporary directory |
//!
//! On the host other pods may run meanwhile, also Keelson's with another root. None of it can come
//! from a bed, which has namespaces, cgroups and directories of its own; so on the host only these
//! count: a bed's cgroup and what runs in it, processes with a bed's role, mounts of a bed's
//! directory, `bed0`, `pods0` and the node's address, network namespaces called `bed-`, and
//! directories of beds.

mod collect;
mod ownership;
mod traces;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

/// How long the kernel and dying processes may take to clean up before something counts as left.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(10);

/// What is there, by kind.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostSnapshot {
    kinds: BTreeMap<String, BTreeSet<String>>,
}

impl HostSnapshot {
    /// Takes a snapshot of this machine.
    ///
    /// # Errors
    /// When something cannot be examined: then there is no result.
    pub fn take() -> Result<Self> {
        let mut kinds = BTreeMap::new();
        for (kind, collect) in collect::KINDS {
            let found = collect().with_context(|| format!("look at {kind}"))?;
            kinds.insert((*kind).to_owned(), found);
        }
        Ok(Self { kinds })
    }

    /// What is here and was not there before, as `kind: thing`.
    #[must_use]
    pub fn added_since(&self, before: &Self) -> Vec<String> {
        let none = BTreeSet::new();
        let mut found = Vec::new();
        for (kind, things) in &self.kinds {
            let earlier = before.kinds.get(kind).unwrap_or(&none);
            found.extend(things.difference(earlier).map(|thing| format!("{kind}: {thing}")));
        }
        found
    }
}

/// Compares with an earlier snapshot, and gives what is just ending time to end. A leftover is what
/// is found in every observation: other programs' short-lived things come and go.
///
/// # Errors
/// As [`HostSnapshot::take`].
pub fn settle(before: &HostSnapshot) -> Result<Vec<String>> {
    let began = Instant::now();
    let mut left = HostSnapshot::take()?.added_since(before);
    while !left.is_empty() && began.elapsed() < SETTLE_TIMEOUT {
        sleep(Duration::from_millis(100));
        let now = HostSnapshot::take()?.added_since(before);
        left.retain(|thing| now.contains(thing));
    }
    Ok(left)
}

/// The program: `leftovers snapshot FILE`, `leftovers compare FILE`, or `compare-now`, which does
/// not wait. Exit code 1 means leftovers, 2 that the check itself failed.
#[must_use]
pub fn program(arguments: &[String]) -> ExitCode {
    match run_command(arguments) {
        Ok(left) if left.is_empty() => ExitCode::SUCCESS,
        Ok(left) => {
            for thing in &left {
                println!("{thing}");
            }
            println!("{} left behind", left.len());
            ExitCode::from(1)
        }
        Err(error) => {
            eprintln!("leftovers: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run_command(arguments: &[String]) -> Result<Vec<String>> {
    match arguments {
        [verb, file] if verb == "snapshot" => {
            let snapshot = serde_json::to_vec_pretty(&HostSnapshot::take()?)?;
            fs::write(file, snapshot).with_context(|| format!("write {file}"))?;
            Ok(Vec::new())
        }
        [verb, file] if verb == "compare" || verb == "compare-now" => {
            let text = fs::read(file).with_context(|| file.clone())?;
            let before = serde_json::from_slice(&text).with_context(|| file.clone())?;
            if verb == "compare" {
                settle(&before)
            } else {
                Ok(HostSnapshot::take()?.added_since(&before))
            }
        }
        _ => bail!("usage: leftovers snapshot FILE | compare FILE | compare-now FILE"),
    }
}

/// The check's program, built from this work tree beside the caller's executable. For tests.
///
/// # Errors
/// When cargo cannot build it.
pub fn build_program() -> Result<std::path::PathBuf> {
    crate::programs::build("node-testkit", "leftovers")
}

#[cfg(test)]
mod tests;
