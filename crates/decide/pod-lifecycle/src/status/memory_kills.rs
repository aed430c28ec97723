//! What is told of processes that the kernel killed for want of memory.
//!
//! Rules: a container is `OOMKilled` where its first process was killed for memory, and no other way.
//! That was so where it ended by that signal (137) while the kernel killed for memory. Where it ended
//! otherwise it did so by itself, whatever a runtime that heard of a killed child calls it; where the
//! kill lies far back, something else has ended it since. In doubt the runtime's word stands. Nothing
//! that is known of a kill is kept back: what is not in the reason is in the message. Of several kills
//! the one nearest to the end says whether it was the end.
//!
//! upstream: none; the reference passes on the runtime's word (decision 10).

use ports::runtime_objects::ContainerRecord;

use crate::kill_notes::{MOST_NOTES, MemoryKillNote, MemoryKillNotes};
use crate::words::{NOT_THE_FIRST_KILLED, OUT_OF_MEMORY};

/// The code of a process that was ended by SIGKILL.
const KILLED: i32 = 137;
const SECOND: i64 = 1_000_000_000;
/// A kill so near to the end was the end: the two are dated by different programs.
const NEAR: i64 = 10 * SECOND;
/// And one so far from it was not: what was in the kernel's log before the agent came is dated by a
/// clock that drifts.
const FAR: i64 = 600 * SECOND;

/// The reason for which a container ended, and what is to be said of memory.
pub(super) fn told_of_end(
    record: &ContainerRecord,
    kills: &MemoryKillNotes,
) -> (String, Option<String>) {
    let is_called = record.reason == OUT_OF_MEMORY;
    let is_near = |gap: i64| gap.saturating_abs() <= NEAR;
    let was_it = match nearest(record, kills) {
        _ if record.exit_code != KILLED => false,
        Some(Some(gap)) if gap > FAR => false,
        Some(Some(gap)) if !is_near(gap) => is_called,
        Some(_) => true,
        // Of processes that nobody names it is not known whether the first one was among them.
        None => is_called,
    };
    let reason = match (was_it, is_called, record.exit_code) {
        (true, ..) => OUT_OF_MEMORY.to_owned(),
        (false, false, _) => record.reason.clone(),
        (false, true, 0) => "Completed".to_owned(),
        (false, true, _) => "Error".to_owned(),
    };
    if kills.is_empty() {
        return (reason, (is_called && !was_it).then(|| NOT_THE_FIRST_KILLED.to_owned()));
    }
    let mut parts: Vec<String> =
        dropped_kills_sentence(kills.dropped_after(0)).into_iter().collect();
    parts.extend(kills.iter().map(|kill| match before_the_end(record, kill) {
        Some(gap) if gap > NEAR => {
            let seconds = gap / SECOND;
            format!("{}, {seconds} s before the container ended", memory_kill_sentence(kill))
        }
        _ => memory_kill_sentence(kill),
    }));
    (reason, Some(parts.join("; ")))
}

/// How long before the end that one of the named processes was killed which is nearest to it, where
/// both are dated; one that is not dated counts as the nearest. None where nobody is named.
fn nearest(record: &ContainerRecord, kills: &MemoryKillNotes) -> Option<Option<i64>> {
    let named = kills.iter().filter(|kill| kill.unnamed == 0);
    let gaps = named.map(|kill| before_the_end(record, kill));
    gaps.min_by_key(|gap| gap.map_or(0, i64::saturating_abs))
}

/// How long before the end of the container a named process was killed, where both are dated.
fn before_the_end(record: &ContainerRecord, kill: &MemoryKillNote) -> Option<i64> {
    let is_dated = kill.at != 0 && record.finished_at != 0;
    is_dated.then(|| record.finished_at.saturating_sub(kill.at))
}

/// Which process was killed for memory, what it used, and what it could have used.
pub(crate) fn memory_kill_sentence(kill: &MemoryKillNote) -> String {
    if kill.unnamed > 0 {
        let count = if kill.unnamed == 1 { "a process" } else { "processes" };
        let times = if kill.unnamed == 1 { String::new() } else { format!("{} ", kill.unnamed) };
        let limit =
            kill.limit.map_or(String::new(), |limit| format!("; the limit is {limit} bytes"));
        return format!(
            "the kernel killed {times}{count} of the container for want of memory{limit}; which is \
             not known, since the kernel's log cannot be read here"
        );
    }
    let limit = kill.limit.map_or(String::new(), |limit| format!(" of a limit of {limit} bytes"));
    format!(
        "the kernel killed process {} (pid {}) for want of memory: it used {} bytes{limit}",
        kill.process, kill.pid, kill.bytes
    )
}

/// That there were more kills than are named.
pub(crate) fn dropped_kills_sentence(most: u64) -> Option<String> {
    (most > 0).then(|| {
        format!(
            "the kernel killed more processes of the container for want of memory, at most {most}, \
             before the last {MOST_NOTES}"
        )
    })
}
