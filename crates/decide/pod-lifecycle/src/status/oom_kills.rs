//! How OOM kills are reported in the status.
//!
//! Rules: a container is `OOMKilled` only where its init process was OOM-killed. That is so where
//! it exited by that signal (137) while the kernel was OOM-killing in it. Where it exited otherwise
//! it did so by itself, even if the runtime, seeing a killed child, calls it OOMKilled; where the
//! kill was long before, something else ended it. In doubt the runtime's reason stands. No known
//! kill is dropped: what is not in the reason is in the message. Of several kills the one nearest
//! to the exit decides.
//!
//! upstream: none; the reference passes on the runtime's reason (decision 10).

use ports::runtime_objects::ContainerRecord;

use crate::oom_kills::{MAX_RECORDS, OomKillRecord, OomKillRecords};
use crate::status_text::{NOT_THE_MAIN_PROCESS, OUT_OF_MEMORY};

/// The exit code of a process killed by SIGKILL.
const SIGKILL_EXIT_CODE: i32 = 137;
const SECOND: i64 = 1_000_000_000;
/// A kill this close to the exit caused it: the two timestamps come from different programs.
const OOM_KILL_TOLERANCE: i64 = 10 * SECOND;
/// A kill this far from it did not: kernel log entries from before the agent started are dated by a
/// clock that drifts.
const OOM_KILL_TOO_EARLY: i64 = 600 * SECOND;

/// The reason for a container's exit, and the message about memory.
pub(super) fn oom_reason_and_message(
    record: &ContainerRecord,
    kills: &OomKillRecords,
) -> (String, Option<String>) {
    let is_called = record.reason == OUT_OF_MEMORY;
    let is_near = |gap: i64| gap.saturating_abs() <= OOM_KILL_TOLERANCE;
    let is_oom_killed = match nearest(record, kills) {
        _ if record.exit_code != SIGKILL_EXIT_CODE => false,
        Some(Some(gap)) if gap > OOM_KILL_TOO_EARLY => false,
        Some(Some(gap)) if !is_near(gap) => is_called,
        Some(_) => true,
        // Among kills without an identified process the init process may or may not be.
        None => is_called,
    };
    let reason = match (is_oom_killed, is_called, record.exit_code) {
        (true, ..) => OUT_OF_MEMORY.to_owned(),
        (false, false, _) => record.reason.clone(),
        (false, true, 0) => "Completed".to_owned(),
        (false, true, _) => "Error".to_owned(),
    };
    if kills.is_empty() {
        return (reason, (is_called && !is_oom_killed).then(|| NOT_THE_MAIN_PROCESS.to_owned()));
    }
    let mut parts: Vec<String> =
        dropped_kills_message(kills.dropped_after(0)).into_iter().collect();
    parts.extend(kills.iter().map(|kill| match time_before_exit(record, kill) {
        Some(gap) if gap > OOM_KILL_TOLERANCE => {
            let seconds = gap / SECOND;
            format!("{}, {seconds} s before the container ended", oom_kill_message(kill))
        }
        _ => oom_kill_message(kill),
    }));
    (reason, Some(parts.join("; ")))
}

/// The interval between the exit and the nearest kill of an identified process, where both have a
/// time; a kill without a time counts as the nearest. None where no process is identified.
fn nearest(record: &ContainerRecord, kills: &OomKillRecords) -> Option<Option<i64>> {
    let named = kills.iter().filter(|kill| kill.unnamed == 0);
    let gaps = named.map(|kill| time_before_exit(record, kill));
    gaps.min_by_key(|gap| gap.map_or(0, i64::saturating_abs))
}

/// The interval between the kill of an identified process and the container's exit, where both have
/// a time.
fn time_before_exit(record: &ContainerRecord, kill: &OomKillRecord) -> Option<i64> {
    let is_dated = kill.at != 0 && record.finished_at != 0;
    is_dated.then(|| record.finished_at.saturating_sub(kill.at))
}

/// Which process was OOM-killed, the memory it used, and the limit.
pub(crate) fn oom_kill_message(kill: &OomKillRecord) -> String {
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

/// That there were more kills than are listed.
pub(crate) fn dropped_kills_message(most: u64) -> Option<String> {
    (most > 0).then(|| {
        format!(
            "the kernel killed more processes of the container for want of memory, at most {most}, \
             before the last {MAX_RECORDS}"
        )
    })
}
