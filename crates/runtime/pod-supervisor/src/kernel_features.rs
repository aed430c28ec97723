//! Probes, in a short-lived process, which container features this kernel supports.
//!
//! Rule: a feature that cannot be probed counts as unsupported, with the error as the reason.
//! Blocks: call it where blocking is allowed.

use std::io::{self, Read as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::launch::SupervisorProgram;

/// Mounts may take a while on a busy machine; server startup waits for this.
const PROBE_TIMEOUT: Duration = Duration::from_secs(20);
/// Two lines and the kernel's error texts.
const MAX_OUTPUT: u64 = 64 * 1024;

/// Each is supported, or holds the reason why it is not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelFeatures {
    pub user_namespaces: Result<(), String>,
    pub recursive_read_only: Result<(), String>,
}

impl KernelFeatures {
    /// `dir` is on the file system that holds the images, and contains the empty directories
    /// `lower`, `upper` and `work`.
    pub fn probe(program: &SupervisorProgram, dir: &Path) -> Self {
        match run_probe(program, dir) {
            Ok(text) => Self::from_text(&text),
            Err(error) => {
                let why = Err(format!("it could not be tried: {error}"));
                Self { user_namespaces: why.clone(), recursive_read_only: why }
            }
        }
    }

    fn from_text(text: &str) -> Self {
        let of = |name: &str| {
            let parse_line = |line: &str| match line.split_once(' ') {
                Some((one, why)) if one == name => Some(Err(why.to_owned())),
                None if line == name => Some(Ok(())),
                _ => None,
            };
            let not_reported = || Err("nothing was said of it".to_owned());
            text.lines().find_map(parse_line).unwrap_or_else(not_reported)
        };
        Self {
            user_namespaces: of("user-namespaces"),
            recursive_read_only: of("recursive-read-only"),
        }
    }
}

fn run_probe(program: &SupervisorProgram, dir: &Path) -> io::Result<String> {
    let mut child = Command::new(program.path())
        .arg0(container_create::kernel_features::NAME)
        .arg(dir)
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let text = read_output(&mut child);
    // Its output is closed, or it has exceeded the limit.
    let _ = child.kill();
    let _ = child.wait();
    text
}

fn read_output(child: &mut Child) -> io::Result<String> {
    let Some(mut output) = child.stdout.take() else { return Ok(String::new()) };
    let until = Instant::now() + PROBE_TIMEOUT;
    let mut text = Vec::new();
    loop {
        let remaining = until.saturating_duration_since(Instant::now());
        let remaining = rustix::event::Timespec {
            tv_sec: i64::try_from(remaining.as_secs()).unwrap_or_default(),
            tv_nsec: i64::from(remaining.subsec_nanos()),
        };
        let mut watched = [rustix::event::PollFd::new(&output, rustix::event::PollFlags::IN)];
        match rustix::event::poll(&mut watched, Some(&remaining)) {
            Err(rustix::io::Errno::INTR) => continue,
            Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
            _ => {}
        }
        let mut part = [0; 4096];
        match output.read(&mut part)? {
            0 => return Ok(String::from_utf8_lossy(&text).into_owned()),
            count => text.extend_from_slice(&part[..count]),
        }
        if u64::try_from(text.len()).unwrap_or(u64::MAX) > MAX_OUTPUT {
            return Err(io::Error::other("it says too much"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_feature_that_is_not_reported_is_unsupported() {
        let all = KernelFeatures::from_text("recursive-read-only\nuser-namespaces no: too old\n");
        assert_eq!(all.recursive_read_only, Ok(()));
        assert_eq!(all.user_namespaces, Err("no: too old".to_owned()));
        assert!(KernelFeatures::from_text("").user_namespaces.is_err());
        assert!(KernelFeatures::from_text("user-namespaces-2").user_namespaces.is_err());
    }
}
