//! Judges what a run left on the machine: a snapshot before, a comparison after.
//!
//! Rule: the judge is a program of its own and takes nobody's word. It looks at the host itself:
//! processes, mounts, cgroups, links, addresses, network namespaces, nftables rules and folders.
//! Beds that are in use (warden and test process alive) are not leftovers, and neither is what has
//! nothing to do with beds and parts: a busy machine starts and ends other things all the time.
//!
//! In a bed everything is the bed's, and what counts is what it, or a part in it, could have made, known
//! by its mark:
//!
//! | kind | counts in a bed when |
//! |---|---|
//! | process | it is in a bed's cgroup, or a pod's, has a bed's role, or its program is a part or ours |
//! | mount | its point, root, source or options lie in beds, in a folder of parts, or in a folder of ours in the temp folder |
//! | cgroup | it is a bed's or a pod's, or neither a systemd unit nor a neighbour of the judge's |
//! | link | it has a name that beds, CNI plugins or kube programs give; not when its bridge is another's |
//! | address | it is on such a link, or is the node's address in beds |
//! | network namespace | it has a name that CNI runtimes or ours give |
//! | nftables rule | its table or chain has such a name, or it names such a chain, link or address |
//! | folder | it is a bed's, one of parts, or has a name of ours in the temp folder |
//!
//! On the machine other pods may run meanwhile, of Keelson too, from another root. None of it can come
//! from a bed, which has namespaces, cgroups and directories of its own; so there only these count: a
//! bed's cgroup and what runs in it, processes with a bed's role, mounts of a bed's folder, `bed0`, `pods0`
//! and the node's address, network namespaces called `bed-`, and folders of beds.

mod look;
mod marks;
mod traces;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

/// How long the kernel and dying processes may take to clear up before something counts as left.
const PATIENCE: Duration = Duration::from_secs(10);

/// What is there, by kind.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    kinds: BTreeMap<String, BTreeSet<String>>,
}

impl Snapshot {
    /// Looks at this machine.
    ///
    /// # Errors
    /// When something cannot be looked at: then nothing can be said.
    pub fn take() -> Result<Self> {
        let mut kinds = BTreeMap::new();
        for (kind, look) in look::KINDS {
            let found = look().with_context(|| format!("look at {kind}"))?;
            kinds.insert((*kind).to_owned(), found);
        }
        Ok(Self { kinds })
    }

    /// What is here and was not there before, as `kind: thing`.
    #[must_use]
    pub fn beyond(&self, before: &Self) -> Vec<String> {
        let none = BTreeSet::new();
        let mut found = Vec::new();
        for (kind, things) in &self.kinds {
            let earlier = before.kinds.get(kind).unwrap_or(&none);
            found.extend(things.difference(earlier).map(|thing| format!("{kind}: {thing}")));
        }
        found
    }
}

/// Compares with an earlier snapshot, and gives what is just going a while to go. Left is what was
/// there at every look: other people's short-lived things come and go meanwhile.
///
/// # Errors
/// As [`Snapshot::take`].
pub fn settle(before: &Snapshot) -> Result<Vec<String>> {
    let began = Instant::now();
    let mut left = Snapshot::take()?.beyond(before);
    while !left.is_empty() && began.elapsed() < PATIENCE {
        sleep(Duration::from_millis(100));
        let now = Snapshot::take()?.beyond(before);
        left.retain(|thing| now.contains(thing));
    }
    Ok(left)
}

/// The program: `leftovers snapshot FILE`, `leftovers compare FILE`, or `compare-now`, which has no
/// patience. Exit code 1 means that something was left, 2 that the judge could not judge.
#[must_use]
pub fn program(arguments: &[String]) -> ExitCode {
    match judge(arguments) {
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

fn judge(arguments: &[String]) -> Result<Vec<String>> {
    match arguments {
        [verb, file] if verb == "snapshot" => {
            let snapshot = serde_json::to_vec_pretty(&Snapshot::take()?)?;
            fs::write(file, snapshot).with_context(|| format!("write {file}"))?;
            Ok(Vec::new())
        }
        [verb, file] if verb == "compare" || verb == "compare-now" => {
            let text = fs::read(file).with_context(|| file.clone())?;
            let before = serde_json::from_slice(&text).with_context(|| file.clone())?;
            if verb == "compare" { settle(&before) } else { Ok(Snapshot::take()?.beyond(&before)) }
        }
        _ => bail!("usage: leftovers snapshot FILE | compare FILE | compare-now FILE"),
    }
}

/// The judge's program, built from this work tree beside the caller's executable. For tests.
///
/// # Errors
/// When cargo cannot build it.
pub fn build_program() -> Result<std::path::PathBuf> {
    crate::programs::build("node-testkit", "leftovers")
}

#[cfg(test)]
mod tests;
