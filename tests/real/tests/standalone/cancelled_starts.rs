//! What containerd v2.2 loses track of when the client of a start request is killed.
//!
//! A request whose client disconnects is cancelled half-way, and the shim continues all the same:
//! - the program that starts the shim is killed after it has started it ("failed to start shim:
//!   start failed: : signal: killed"): containerd never learns of that shim;
//! - the shim has created the task, containerd considers it failed ("failed to get task pid:
//!   context canceled") and drops the sandbox's container, so that stopping and removing the
//!   sandbox succeed without touching it: shim and root mount stay;
//! - the task is still being created when it is deleted again ("container not created"), or
//!   deleting it takes longer than containerd waits ("failed to delete task": "context deadline
//!   exceeded"): the shim has a task that containerd does not know, and therefore ignores the
//!   shutdown at the end of its sandbox, however regular that end is.
//!
//! These are invisible over CRI, so an agent cannot remove them; the reference kubelet leaves the
//! same. Their processes are in the pod's cgroup, which is ours and never excused. So only shims
//! and root mounts are excused, and only those of whose start (or the start of a container in whose
//! sandbox) containerd's own log says that it was cancelled.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use node_testkit::bed::{Bed, BedTest};
use node_testkit::start::Containerd;
use real_tests::leftover_check::LeftoverCheck;
use real_tests::standalone::agent::{AgentHome, AgentKind, AgentProcess};

use crate::node::{STEADY, archives, containerd, pod};

/// The error texts of a cancelled request: the second when a program that containerd ran for the
/// request was killed with it.
const CANCELLED: [&str; 2] =
    ["context canceled", "failed to start shim: start failed: : signal: killed"];

/// Ids whose start was cancelled, and their sandboxes.
pub(crate) struct CancelledStarts {
    cancelled: BTreeSet<String>,
    sandboxes: BTreeSet<String>,
}

impl CancelledStarts {
    pub(crate) fn of(bed: &Bed) -> Result<Self> {
        let path = bed.logs().join("containerd.log");
        let log = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        Ok(Self::in_log(&log))
    }

    fn in_log(log: &str) -> Self {
        let mut cancelled = BTreeSet::new();
        let is_cancelled = |line: &&str| CANCELLED.iter().any(|words| line.contains(words));
        for line in log.lines().filter(is_cancelled) {
            let start = line.contains("msg=\"StartContainer for ") && line.contains(" failed\"");
            let id = if start {
                ids(line).next()
            } else if line.contains("msg=\"RunPodSandbox for ") {
                line.split_once("failed to start sandbox ").and_then(|(_, rest)| ids(rest).next())
            } else {
                None
            };
            cancelled.extend(id.map(str::to_owned));
        }
        let mut sandboxes = cancelled.clone();
        for line in log.lines().filter(|line| line.contains(" returns container id ")) {
            let Some((_, rest)) = line.split_once("CreateContainer within sandbox ") else {
                continue;
            };
            let mut both = ids(rest);
            if let (Some(sandbox), Some(container)) = (both.next(), both.next())
                && cancelled.contains(container)
            {
                sandboxes.insert(sandbox.to_owned());
            }
        }
        Self { cancelled, sandboxes }
    }

    /// Whether a leftover is one of these.
    pub(crate) fn has(&self, thing: &str) -> bool {
        const TASKS: &str =
            "mount: /run/bed/containerd/state/io.containerd.runtime.v2.task/k8s.io/";
        let is_forgotten = if let Some(rest) = thing.strip_prefix(TASKS) {
            rest.split_once("/rootfs ").is_some_and(|(id, _)| self.cancelled.contains(id))
        } else {
            let shim = thing.strip_prefix("process: ").and_then(|line| {
                line.contains("/containerd-shim-runc-v2 ").then(|| line.split(" -id ").nth(1))?
            });
            shim.and_then(|rest| rest.split(' ').next())
                .is_some_and(|id| self.sandboxes.contains(id))
        };
        if is_forgotten {
            eprintln!("containerd forgot: {thing}");
        }
        is_forgotten
    }
}

/// Ids in containerd's format, in the order in which they occur.
fn ids(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric());
    words.filter(|word| word.len() == 64 && word.bytes().all(|letter| letter.is_ascii_hexdigit()))
}

#[test]
fn only_shims_of_cancelled_starts_are_excused() {
    let id = |letter: &str| letter.repeat(64);
    let (sandbox, cut, other) = (id("a"), id("b"), id("c"));
    let (failed, started) = (id("d"), id("e"));
    let within = |sandbox: &str, container: &str| {
        format!(
            "time=\"t\" level=info msg=\"CreateContainer within sandbox \\\"{sandbox}\\\" for \
             name:\\\"main\\\" attempt:2 returns container id \\\"{container}\\\"\"\n"
        )
    };
    let start_failed = |container: &str, why: &str| {
        format!(
            "time=\"t\" level=error msg=\"StartContainer for \\\"{container}\\\" failed\" \
             error=\"rpc error: code = Unknown desc = failed to create shim task: {why}\"\n"
        )
    };
    let log = [
        within(&sandbox, &cut),
        start_failed(&cut, "context canceled"),
        within(&other, &started),
        start_failed(&started, "no such file"),
        format!("level=error msg=\"StopContainer for \\\"{other}\\\" failed\" error=\"context canceled\"\n"),
        format!(
            "level=error msg=\"RunPodSandbox for name:\\\"p\\\" failed, error\" error=\"rpc error: failed to \
             start sandbox \\\"{failed}\\\": failed to get task pid: context canceled\"\n"
        ),
    ]
    .concat();
    let cancelled_starts = CancelledStarts::in_log(&log);
    let shim = |id: &str| {
        format!("process: 7 started at 9: /x/containerd-shim-runc-v2 -n k -id {id} -a /s")
    };
    let mount = |id: &str| {
        format!(
            "mount: /run/bed/containerd/state/io.containerd.runtime.v2.task/k8s.io/{id}/rootfs (overlay)"
        )
    };
    let rows = [
        (shim(&sandbox), true),
        (shim(&failed), true),
        (shim(&other), false),
        (mount(&cut), true),
        (mount(&failed), true),
        // Its own start was not cut off, so containerd has no reason to forget it.
        (mount(&sandbox), false),
        (mount(&started), false),
        (format!("process: 8 started at 9: sleep {failed}"), false),
        (format!("cgroup: /kubepods/{failed}"), false),
        (mount(&failed).replace("rootfs", "work"), false),
    ];
    for (thing, excused) in rows {
        assert_eq!(cancelled_starts.has(&thing), excused, "{thing}");
    }
}

const KILLS: u64 = 25;

/// The reference shows the same: killed while it starts pods, it leaves such shims too. By verb: it
/// takes a minute, and tests nothing of ours.
#[test]
fn containerd_behaves_so_under_a_killed_reference() -> Result<()> {
    let (archives, reference) = (archives()?, AgentKind::reference()?);
    let needs = [Containerd::NEEDS, &["kubelet"]].concat();
    BedTest::new().needs(&needs).deadline(Duration::from_secs(900)).run(move |bed| {
        let (containerd, runtime) = containerd(bed, &archives)?;
        let home = AgentHome::new(bed, "reference", &containerd.endpoint())?;
        let leftover_check = LeftoverCheck::start()?;
        for round in 0..KILLS {
            let agent = AgentProcess::start(bed, &reference, &home)?;
            for number in 0..12 {
                let name = format!("pod-{number}");
                agent.place(&name, &pod(&name, "", &format!("echo {round}; {STEADY}")))?;
            }
            std::thread::sleep(Duration::from_millis(600 + round * 377 % 2_000));
            agent.end()?;
        }
        let agent = AgentProcess::start(bed, &reference, &home)?;
        agent.withdraw_all()?;
        runtime.wait_gone("")?;
        agent.end()?;
        // A container whose task containerd forgot cannot be removed, nor its sandbox.
        if let Err(error) = runtime.remove_all() {
            eprintln!("{error:#}");
        }
        let cancelled_starts = CancelledStarts::of(bed)?;
        let found = leftover_check.current_leftovers()?;
        let shims: Vec<&str> =
            found.lines().filter(|line| line.contains("-shim-runc-v2 ")).collect();
        let excused = shims.iter().filter(|shim| cancelled_starts.has(shim)).count();
        eprintln!(
            "{KILLS} kills cut off {} starts; {} shims are left, {excused} of them excused",
            cancelled_starts.cancelled.len(),
            shims.len()
        );
        // Those that are not excused are of sandboxes that the reference killed before their
        // containers: a shim gets its shutdown only with its sandbox, and refuses it while it has a
        // container.
        ensure!(excused > 0, "it leaves none: {shims:#?}");
        Ok(())
    })
}
