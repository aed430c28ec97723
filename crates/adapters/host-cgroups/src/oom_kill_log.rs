//! Parses OOM kills from the kernel's log.
//!
//! Rule: pure. Lines of one OOM kill may be interleaved with lines of others; they are matched by
//! PID. Only the kernel's own lines count: a program may write to the log too. Samples of kernels
//! 3.10 to 6.18 are in the tests.

use std::collections::VecDeque;

#[cfg(test)]
mod tests;

/// OOM kills whose second line has not arrived yet.
const MAX_PENDING: usize = 64;

/// One record of `/dev/kmsg`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KmsgRecord<'a> {
    /// The record's sequence number.
    pub(crate) number: u64,
    /// Microseconds of the kernel's clock.
    pub(crate) at: i64,
    pub(crate) text: &'a str,
}

impl<'a> KmsgRecord<'a> {
    /// `6,1234,5678901234,-;the message`, then lines of further data. `None` for records that the
    /// kernel did not write itself, or that do not parse.
    pub(crate) fn parse(record: &'a str) -> Option<Self> {
        let (head, text) = record.split_once(';')?;
        let mut fields = head.split(',');
        let priority: u32 = fields.next()?.parse().ok()?;
        let number: u64 = fields.next()?.parse().ok()?;
        let at: i64 = fields.next()?.parse().ok()?;
        let text = text.lines().next().unwrap_or_default();
        // The facility is above the three bits of the level; the kernel's is 0.
        (priority >> 3 == 0).then_some(Self { number, at, text })
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct ParsedOomKill {
    pub(crate) pid: i32,
    pub(crate) process: String,
    pub(crate) limited: String,
    pub(crate) victim: String,
    pub(crate) resident_bytes: u64,
    /// Killed because another process of its cgroup was (`memory.oom.group`); that kill was
    /// reported before.
    pub(crate) is_group_kill: bool,
}

/// Assembles the lines of an OOM kill.
#[derive(Debug, Default)]
pub(crate) struct OomKillParser {
    announced: VecDeque<ParsedOomKill>,
    /// Kernels before 4.19 name the cgroups before the process.
    groups: Option<(String, String)>,
    /// All processes of a cgroup are being killed.
    whole_group: Option<String>,
}

impl OomKillParser {
    /// Adds a line; returns an OOM kill when it is complete.
    pub(crate) fn take(&mut self, text: &str) -> Option<ParsedOomKill> {
        if let Some(kill) = text.strip_prefix("oom-kill:").and_then(announcement) {
            if self.announced.len() == MAX_PENDING {
                self.announced.pop_front();
            }
            self.announced.push_back(kill);
            self.whole_group = None;
            return None;
        }
        if let Some(rest) = text.strip_prefix("Task in ") {
            let (victim, limited) = rest.split_once(" killed as a result of limit of ")?;
            self.groups = Some((unescaped(victim), unescaped(limited)));
            return None;
        }
        if let Some(rest) = text.strip_prefix("Tasks in ") {
            let (group, _) = rest.split_once(" are going to be killed due to memory.oom.group")?;
            self.whole_group = Some(unescaped(group));
            return None;
        }
        self.killed(text)
    }

    fn killed(&mut self, text: &str) -> Option<ParsedOomKill> {
        let (before, rest) = text.split_once("Killed process ")?;
        let (pid, rest) = rest.split_once(" (")?;
        let pid: i32 = pid.parse().ok()?;
        // A process may have any name; the kernel's own words come last.
        let (name, sizes) = rest.rsplit_once(" total-vm:")?;
        let process = unescaped(&name[..name.rfind(')')?]);
        let resident_bytes = resident(sizes)?;
        let known = self.announced.iter().position(|kill| kill.pid == pid);
        let announced = known.and_then(|place| self.announced.remove(place));
        let is_group_kill = announced.is_none() && self.whole_group.is_some();
        let (limited, victim) = match announced {
            Some(kill) => (kill.limited, kill.victim),
            None => match (&self.whole_group, self.groups.take()) {
                (Some(group), _) => (group.clone(), group.clone()),
                (None, Some((victim, limited))) => (limited, victim),
                // The whole machine ran out of memory.
                (None, None) if before.starts_with("Out of memory") => ("/".into(), String::new()),
                (None, None) => (String::new(), String::new()),
            },
        };
        Some(ParsedOomKill { pid, process, limited, victim, resident_bytes, is_group_kill })
    }
}

/// All memory of the process: files in `/dev/shm` and mapped files count against its limit as its
/// anonymous memory does. Kernels before 4.5 do not report shared memory.
fn resident(sizes: &str) -> Option<u64> {
    let kibibytes = |name: &str| {
        let (number, _) = sizes.split_once(name)?.1.split_once("kB")?;
        number.parse::<u64>().ok()
    };
    let rest = ["file-rss:", "shmem-rss:"].map(|name| kibibytes(name).unwrap_or(0));
    let all = rest.into_iter().fold(kibibytes("anon-rss:")?, u64::saturating_add);
    Some(all.saturating_mul(1024))
}

/// `constraint=…,oom_memcg=/a,task_memcg=/a/b,task=name,pid=1,uid=0`, or with `global_oom` in the
/// place of `oom_memcg`.
fn announcement(text: &str) -> Option<ParsedOomKill> {
    let (front, rest) = text.split_once(",task_memcg=")?;
    let limited = match front.split_once(",oom_memcg=") {
        Some((_, group)) => unescaped(group),
        None => "/".to_owned(),
    };
    let (rest, _user) = rest.rsplit_once(",uid=")?;
    let (rest, pid) = rest.rsplit_once(",pid=")?;
    let (victim, process) = rest.split_once(",task=")?;
    Some(ParsedOomKill {
        pid: pid.parse().ok()?,
        process: unescaped(process),
        limited,
        victim: unescaped(victim),
        ..ParsedOomKill::default()
    })
}

/// The log writes other bytes as `\x1b`.
fn unescaped(text: &str) -> String {
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let digits =
            after.strip_prefix(b"x").filter(|_| *first == b'\\').and_then(|hex| hex.get(..2));
        // The integer parser would also accept a sign.
        let byte = digits
            .filter(|digits| digits.iter().all(u8::is_ascii_hexdigit))
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match byte {
            Some(byte) => {
                plain.push(byte);
                rest = &after[3..];
            }
            None => {
                plain.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&plain).into_owned()
}
