//! When a container's log is rotated, and what happens to the files that earlier rotations left.
//!
//! Rules: a log that has reached its size is renamed to `<log>.<YYYYMMDD-HHMMSS>`; older ones are
//! compressed (`.gz`), and with the new one there are never more files than configured. The newest
//! rotated one stays uncompressed, so that its readers can finish. A later name is always greater
//! than the earlier ones, even when the clock was set back. Files with other names are left alone.
//! Times in names are UTC.
//!
//! upstream: pkg/kubelet/logs/container_log_manager.go

use std::collections::BTreeMap;

use ports::ApiTime;

#[cfg(test)]
mod tests;

const PACKED: &str = ".gz";
const UNFINISHED: &str = ".tmp";
const SECOND: i64 = 1_000_000_000;
/// `YYYYMMDD-HHMMSS`.
const STAMP_LENGTH: usize = 15;
const STAMP_DASH: usize = 8;

/// The configured limits for container logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogLimits {
    /// `containerLogMaxSize` in bytes.
    pub size: u64,
    /// `containerLogMaxFiles`: the one that is written, and the rotated ones.
    pub files: usize,
}

impl LogLimits {
    pub fn is_reached(&self, size: u64) -> bool {
        size >= self.size
    }
}

/// One step, in order; names are file names in the log's directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RotationStep {
    /// A file that is not wanted any more.
    Remove(String),
    /// Compresses `name` to `name.gz`. Where that fails the rotation goes on without it.
    Pack(String),
    /// The log gets this name, and the runtime begins a new one.
    Rotate(String),
}

/// The steps to rotate the log named `log`; `names` are those in its directory.
pub fn rotation(
    log: &str,
    names: &[String],
    limits: &LogLimits,
    now: ApiTime,
) -> Vec<RotationStep> {
    let mut steps = Vec::new();
    // By the time in the name: whether it exists uncompressed, and compressed.
    let mut kept: BTreeMap<&str, (bool, bool)> = BTreeMap::new();
    for name in names {
        let Some(rest) = name.strip_prefix(log).and_then(|rest| rest.strip_prefix('.')) else {
            continue;
        };
        let Some((stamp, end)) = rest.split_at_checked(STAMP_LENGTH).filter(|it| is_stamp(it.0))
        else {
            continue;
        };
        match end {
            "" => kept.entry(stamp).or_default().0 = true,
            PACKED => kept.entry(stamp).or_default().1 = true,
            UNFINISHED => steps.push(RotationStep::Remove(name.clone())),
            _ => {}
        }
    }
    let name = |stamp: &str, end: &str| format!("{log}.{stamp}{end}");
    // Compressed, but the original was not removed.
    for (stamp, forms) in &mut kept {
        if *forms == (true, true) {
            steps.push(RotationStep::Remove(name(stamp, "")));
            forms.0 = false;
        }
    }
    // Two more follow: the log itself under its new name, and the one that the runtime opens.
    let surplus = kept.len().saturating_sub(limits.files.saturating_sub(2));
    for (at, (stamp, (is_plain, _))) in kept.iter().enumerate() {
        if at < surplus {
            let end = if *is_plain { "" } else { PACKED };
            steps.push(RotationStep::Remove(name(stamp, end)));
        } else if *is_plain {
            steps.push(RotationStep::Pack(name(stamp, "")));
        }
    }
    let newest = kept.last_key_value().map(|(stamp, _)| *stamp);
    steps.push(RotationStep::Rotate(name(&later_stamp(newest, now), "")));
    steps
}

/// The stamp of `now`, or of the second after the newest one.
fn later_stamp(newest: Option<&str>, now: ApiTime) -> String {
    let own = stamp(now);
    match newest.and_then(time_of) {
        Some(newest) if newest.nanos() >= now.nanos().div_euclid(SECOND) * SECOND => {
            stamp(ApiTime::from_nanos(newest.nanos().saturating_add(SECOND)))
        }
        _ => own,
    }
}

fn stamp(time: ApiTime) -> String {
    let text = time.to_seconds_text();
    let digits = |from: usize, to: usize| -> String {
        text.get(from..to).unwrap_or_default().chars().filter(char::is_ascii_digit).collect()
    };
    format!("{}-{}", digits(0, 10), digits(10, 19))
}

/// None for digits that are not a time; such a file is ordered by its name.
fn time_of(stamp: &str) -> Option<ApiTime> {
    let part = |from: usize, to: usize| stamp.get(from..to).unwrap_or_default();
    let (day, time) = (
        [part(0, 4), part(4, 6), part(6, 8)].join("-"),
        [part(9, 11), part(11, 13), part(13, 15)].join(":"),
    );
    ApiTime::parse(&format!("{day}T{time}Z"))
}

fn is_stamp(text: &str) -> bool {
    text.len() == STAMP_LENGTH
        && text.bytes().enumerate().all(|(at, byte)| match at {
            STAMP_DASH => byte == b'-',
            _ => byte.is_ascii_digit(),
        })
}
