//! What a command has left behind when it ended: whether any of it is about to go on.
//!
//! Rule: looked at only where the supervisor gave the command a group of its own, which it does where
//! there is a deadline; so whoever waits for what goes on does not wait for ever. On a busy machine a
//! process may get no turn for a long time. That is no silence of its own, and the kernel knows.

use cgroup_files::Cgroup;

/// Beyond that many nobody looks at each.
const MOST: usize = 1024;

/// The group of a command, wherever it is beneath its container's.
#[derive(Debug, Clone)]
pub(super) struct LeftBehind {
    container: Option<Cgroup>,
    name: String,
}

impl LeftBehind {
    pub(super) fn of(container: Option<Cgroup>, exec: &str) -> Self {
        // As the supervisor names it.
        Self { container, name: format!("keelson-exec-{exec}") }
    }

    /// Whether one of them runs, or would if it had a processor.
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
    // A container may have made groups of its own and moved into them.
    there.or_else(|| group.children().ok()?.iter().find_map(|child| find(child, name)))
}

/// By the state of each of its threads; one that waits for the disk has not chosen to be silent.
fn has_a_turn_to_come(process: u32) -> bool {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{process}/task")) else { return false };
    threads.flatten().take(MOST).any(|thread| {
        // A program chooses its name, and may choose bytes.
        std::fs::read(thread.path().join("stat"))
            .is_ok_and(|stat| matches!(state(&stat), Some(b'R' | b'D')))
    })
}

/// The name before it is in brackets and may have any letter in it, brackets too.
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
        // This very thread is on a processor.
        assert!(has_a_turn_to_come(std::process::id()));
    }

    #[tokio::test]
    async fn without_a_group_nothing_goes_on() {
        assert!(!LeftBehind::of(None, "x").goes_on().await);
    }
}
