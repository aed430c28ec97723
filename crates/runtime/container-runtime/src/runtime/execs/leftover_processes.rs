//! Processes that a command left behind: whether any of them is runnable.
//!
//! Rule: checked only if the supervisor gave the command a cgroup of its own, which it does if
//! there is a deadline; so the wait for these processes is limited. On a busy host a process may
//! not be scheduled for a long time. That is not silence, and the kernel shows the difference.

use cgroup_files::Cgroup;

/// At most this many processes are checked.
const MAX_PROCESSES: usize = 1024;

/// The cgroup of a command, anywhere beneath its container's.
#[derive(Debug, Clone)]
pub(super) struct LeftoverProcesses {
    container: Option<Cgroup>,
    name: String,
}

impl LeftoverProcesses {
    pub(super) fn of(container: Option<Cgroup>, exec: &str) -> Self {
        // The supervisor's name for it.
        Self { container, name: format!("keelson-exec-{exec}") }
    }

    /// Whether any process runs, or would if it had a CPU.
    pub(super) async fn any_runnable(self) -> bool {
        if self.container.is_none() {
            return false;
        }
        tokio::task::spawn_blocking(move || self.look()).await.unwrap_or(false)
    }

    fn look(&self) -> bool {
        let found = self.container.as_ref().and_then(|group| find(group, &self.name));
        let Some(processes) = found.and_then(|group| group.processes_beneath().ok()) else {
            return false;
        };
        processes.into_iter().take(MAX_PROCESSES).any(is_running_or_runnable)
    }
}

fn find(group: &Cgroup, name: &str) -> Option<Cgroup> {
    let there = group.child(name).ok().filter(Cgroup::exists_in_any_hierarchy);
    // A container may have created cgroups of its own and moved into them.
    there.or_else(|| group.children().ok()?.iter().find_map(|child| find(child, name)))
}

/// By the state of each of its threads; uninterruptible (disk) sleep counts as runnable.
fn is_running_or_runnable(process: u32) -> bool {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{process}/task")) else { return false };
    threads.flatten().take(MAX_PROCESSES).any(|thread| {
        // The program chooses its name, which may be any bytes.
        std::fs::read(thread.path().join("stat"))
            .is_ok_and(|stat| matches!(state(&stat), Some(b'R' | b'D')))
    })
}

/// The name before it is in parentheses and may contain any character, parentheses too.
fn state(stat: &[u8]) -> Option<u8> {
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    stat[end + 1..].trim_ascii_start().first().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_state_is_parsed_after_any_name() {
        assert_eq!(state(b"12 (sh) R 1 2"), Some(b'R'));
        assert_eq!(state(b"12 (a) S (b) D 1 2"), Some(b'D'));
        assert_eq!(state(b"12 (\xff\xfe) R 1 2"), Some(b'R'));
        assert_eq!((state(b""), state(b"12 (sh)")), (None, None));
    }

    #[test]
    fn a_computing_process_is_runnable_and_a_waiting_one_is_not() {
        let mut waiting = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        // It runs until it sleeps.
        while is_running_or_runnable(waiting.id()) {}
        waiting.kill().unwrap();
        waiting.wait().unwrap();
        assert!(!is_running_or_runnable(waiting.id()), "it is gone");
        // This very thread is running.
        assert!(is_running_or_runnable(std::process::id()));
    }

    #[tokio::test]
    async fn without_a_cgroup_nothing_is_runnable() {
        assert!(!LeftoverProcesses::of(None, "x").any_runnable().await);
    }
}
