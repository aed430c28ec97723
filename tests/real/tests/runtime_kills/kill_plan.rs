//! Which process is killed when: random numbers, the pods that can be hit, and finding supervisors.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};

/// A small random number generator: the seed is printed, so that a failure can be reproduced.
#[derive(Debug, Clone)]
pub(crate) struct RandomSequence(pub(crate) u64);

impl RandomSequence {
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// One kill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KillStep {
    /// The server dies by itself at a named point.
    CrashAt(&'static str),
    Server,
    /// A supervisor while the server lives: the server learns how the containers end.
    Supervisor,
    /// Server and supervisor: no process is left to learn it.
    Both,
}

/// The kills of a run: each crash point once (if there is room), the rest at random instants.
pub(crate) fn plan(
    points: &[&'static str],
    count: usize,
    dice: &mut RandomSequence,
) -> Vec<KillStep> {
    let mut plan: Vec<KillStep> = Vec::new();
    // In rounds, so that a long run comes to each point several times.
    while plan.len() < count {
        plan.extend(points.iter().map(|point| KillStep::CrashAt(point)));
        for _ in 0..points.len().div_ceil(2) {
            plan.push(match dice.below(4) {
                0 => KillStep::Supervisor,
                1 => KillStep::Both,
                _ => KillStep::Server,
            });
        }
        plan.extend([KillStep::Supervisor, KillStep::Both]);
    }
    plan.truncate(count.max(points.len() + 3));
    plan
}

#[derive(Debug, Default)]
struct TargetPod {
    sandbox: Option<String>,
    hit: bool,
    lossy: bool,
    unsettled: bool,
}

/// The pods that exist now and can be hit.
#[derive(Debug, Default)]
pub(crate) struct KillTargets {
    entries: Mutex<BTreeMap<usize, TargetPod>>,
    over: AtomicBool,
}

impl KillTargets {
    fn locked(&self) -> MutexGuard<'_, BTreeMap<usize, TargetPod>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn begin(&self, slot: usize) {
        self.locked().insert(slot, TargetPod::default());
    }

    pub(crate) fn has_sandbox(&self, slot: usize, sandbox: &str) {
        if let Some(entry) = self.locked().get_mut(&slot) {
            entry.sandbox = Some(sandbox.to_owned());
        }
    }

    pub(crate) fn is_hit(&self, slot: usize) -> bool {
        self.locked().get(&slot).is_some_and(|entry| entry.hit)
    }

    pub(crate) fn is_lossy(&self, slot: usize) -> bool {
        self.locked().get(&slot).is_some_and(|entry| entry.lossy)
    }

    /// A server died after this pod's supervisor, perhaps after it had stopped the containers and
    /// before it had recorded that: then it is unknown how they ended.
    pub(crate) fn is_unsettled(&self, slot: usize) -> bool {
        self.locked().get(&slot).is_some_and(|entry| entry.unsettled)
    }

    /// Records that the server is about to die; the supervisor `alone` dies with it, and the next
    /// server finds it dead.
    pub(crate) fn server_dies(&self, alone: Option<&str>) {
        let mut entries = self.locked();
        let hit = entries.values_mut().filter(|entry| entry.hit);
        for entry in hit.filter(|entry| entry.sandbox.as_deref() != alone) {
            entry.unsettled = true;
        }
    }

    /// Chooses a pod and records that its supervisor is about to die; `None` if there is no pod.
    pub(crate) fn choose(&self, dice: &mut RandomSequence, lossy: bool) -> Option<String> {
        let mut entries = self.locked();
        let mut some: Vec<&mut TargetPod> =
            entries.values_mut().filter(|entry| entry.sandbox.is_some() && !entry.hit).collect();
        if some.is_empty() {
            return None;
        }
        let at = usize::try_from(dice.below(some.len() as u64)).unwrap_or_default();
        let entry = some.get_mut(at)?;
        entry.hit = true;
        entry.lossy = lossy;
        entry.sandbox.clone()
    }

    pub(crate) fn end(&self) {
        self.over.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }
}

/// Every supervisor whose parent is init: its PID and its pod's directory. Its forked children have
/// the same command line and do not count.
pub(crate) fn supervisors() -> Result<Vec<(Pid, String)>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").context("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        let Ok(line) = std::fs::read(format!("/proc/{pid}/cmdline")) else { continue };
        let mut words = line.split(|byte| *byte == 0);
        if words.next() != Some(b"keelson-pod") {
            continue;
        }
        let dir = String::from_utf8_lossy(words.next().unwrap_or_default()).into_owned();
        let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { continue };
        // Helpers and containers on their way are copies of it, with it as their parent.
        let parent = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(1));
        if let (Some("1"), Some(pid)) = (parent, Pid::from_raw(pid)) {
            found.push((pid, dir));
        }
    }
    Ok(found)
}

/// Kills the supervisor of a sandbox; one that has already exited is fine.
pub(crate) fn kill_supervisor(sandbox: &str) -> Result<bool> {
    let short = sandbox.get(..16).unwrap_or(sandbox);
    for (pid, dir) in supervisors()? {
        if dir.ends_with(short) {
            let _ = kill_process(pid, Signal::KILL);
            return Ok(true);
        }
    }
    Ok(false)
}
