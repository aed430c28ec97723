//! What is told of processes that the kernel killed for want of memory.
//!
//! Rules: a container is `OOMKilled` where its first process was killed for memory, and no other way.
//! That was so where it ended by that signal (137) while the kernel killed for memory. Where it ended
//! otherwise it did so by itself, whatever a runtime that heard of a killed child calls it; where the
//! kill lies far back, something else has ended it since. In doubt the runtime's word stands. Nothing
//! that is known of a kill is kept back: what is not in the reason is in the message.
//!
//! upstream: none; the reference passes on the runtime's word (decision 10).

use ports::runtime_objects::ContainerRecord;

use crate::view::MemoryKillNote;
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
    kill: Option<&MemoryKillNote>,
) -> (String, Option<String>) {
    let is_called = record.reason == OUT_OF_MEMORY;
    let before = kill.and_then(|kill| before_the_end(record, kill));
    let is_near = |gap: i64| gap.saturating_abs() <= NEAR;
    let was_it = match kill {
        _ if record.exit_code != KILLED => false,
        // Of processes that nobody names it is not known whether the first one was among them.
        Some(kill) if kill.unnamed == 0 => match before {
            Some(gap) if gap > FAR => false,
            Some(gap) if !is_near(gap) => is_called,
            _ => true,
        },
        _ => is_called,
    };
    let reason = match (was_it, is_called, record.exit_code) {
        (true, ..) => OUT_OF_MEMORY.to_owned(),
        (false, false, _) => record.reason.clone(),
        (false, true, 0) => "Completed".to_owned(),
        (false, true, _) => "Error".to_owned(),
    };
    let text = match (kill, before) {
        (None, _) => (is_called && !was_it).then(|| NOT_THE_FIRST_KILLED.to_owned()),
        (Some(kill), Some(gap)) if gap > NEAR => {
            let seconds = gap / SECOND;
            Some(format!("{}, {seconds} s before the container ended", sentence(kill)))
        }
        (Some(kill), _) => Some(sentence(kill)),
    };
    (reason, text)
}

/// How long before the end of the container a named process was killed, where both are dated.
fn before_the_end(record: &ContainerRecord, kill: &MemoryKillNote) -> Option<i64> {
    let is_dated = kill.at != 0 && record.finished_at != 0;
    is_dated.then(|| record.finished_at.saturating_sub(kill.at))
}

/// Which process was killed for memory, what it used, and what it could have used.
pub(crate) fn sentence(kill: &MemoryKillNote) -> String {
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
