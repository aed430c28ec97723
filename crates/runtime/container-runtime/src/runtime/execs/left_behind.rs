//! Processes that a command left behind: whether any of them is runnable.
//!
//! Rule: checked only if the supervisor gave the command a cgroup of its own, which it does if
//! there is a deadline; so the wait for these processes is limited. On a busy host a process may
//! not be scheduled for a long time. That is not silence, and the kernel shows the difference.

use cgroup_files::Cgroup;

/// At most this many processes are checked.
const MOST: usize = 1024;

/// The cgroup of a command, anywhere beneath its container's.
#[derive(Debug, Clone)]
pub(super) struct LeftBehind {
    container: Option<Cgroup>,
    name: String,
}

impl LeftBehind {
    pub(super) fn of(container: Option<Cgroup>, exec: &str) -> Self {
        // The supervisor's name for it.
        Self { container, name: format!("keelson-exec-{exec}") }
    }

    /// Whether any process runs, or would if it had a CPU.
    pub(super) async fn goes_on(self) -> bool {
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
        processes.into_iter().take(MOST).any(has_a_turn_to_come)
    }
}

fn find(group: &Cgroup, name: &str) -> Option<Cgroup> {
    let there = group.child(name).ok().filter(Cgroup::exists_somewhere);
    // A container may have created cgroups of its own and moved into them.
    there.or_else(|| group.children().ok()?.iter().find_map(|child| find(child, name)))
}

/// By the state of each of its threads; uninterruptible (disk) sleep counts as runnable.
fn has_a_turn_to_come(process: u32) -> bool {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{process}/task")) else { return false };
    threads.flatten().take(MOST).any(|thread| {
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
    fn a_state_follows_the_name_whatever_that_is() {
        assert_eq!(state(b"12 (sh) R 1 2"), Some(b'R'));
        assert_eq!(state(b"12 (a) S (b) D 1 2"), Some(b'D'));
        assert_eq!(state(b"12 (\xff\xfe) R 1 2"), Some(b'R'));
        assert_eq!((state(b""), state(b"12 (sh)")), (None, None));
    }

    #[test]
    fn who_computes_goes_on_and_who_waits_does_not() {
        let mut waiting = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        // It runs until it sleeps.
        while has_a_turn_to_come(waiting.id()) {}
        waiting.kill().unwrap();
        waiting.wait().unwrap();
        assert!(!has_a_turn_to_come(waiting.id()), "it is gone");
        // This very thread is running.
        assert!(has_a_turn_to_come(std::process::id()));
    }

    #[tokio::test]
    async fn without_a_group_nothing_goes_on() {
        assert!(!LeftBehind::of(None, "x").goes_on().await);
    }
}
