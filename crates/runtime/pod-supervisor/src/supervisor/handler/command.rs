//! One call of an OCI runtime's command line.
//!
//! Rule: it ends within its limit, by itself or killed. Its error is the last error in its log
//! file, because its standard streams are the container's.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, IoSliceMut, Read, Seek, SeekFrom};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use container_create::spec::HandlerSpec;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::process::{Pid, PidfdFlags, Signal};

#[cfg(test)]
mod tests;

/// How much of the log's end is read.
const LOG_END: u64 = 16 * 1024;
/// Longer messages are cut.
const MAX_REASON: usize = 1000;

pub(super) enum Stdio {
    Null,
    /// Input, output, error.
    Descriptors([OwnedFd; 3]),
}

pub(super) struct RuntimeInvocation<'a> {
    pub(super) handler: &'a HandlerSpec,
    /// The runtime's state directory.
    pub(super) root: &'a Path,
    pub(super) log: &'a Path,
    pub(super) systemd: bool,
}

/// A command with its arguments, the container's id, and the arguments after the id.
pub(super) struct RuntimeCommand<'a> {
    pub(super) arguments: &'a [OsString],
    pub(super) id: &'a str,
    pub(super) after_id: &'a [OsString],
}

impl RuntimeInvocation<'_> {
    pub(super) fn run(
        &self,
        runtime_command: &RuntimeCommand<'_>,
        stdio: Stdio,
        limit: Duration,
    ) -> Result<(), String> {
        let mut command = Command::new(&self.handler.program);
        command.args(&self.handler.arguments).arg("--root").arg(self.root);
        command.arg("--log").arg(self.log).args(["--log-format", "json"]);
        if self.systemd {
            command.arg("--systemd-cgroup");
        }
        command
            .args(runtime_command.arguments)
            .arg(runtime_command.id)
            .args(runtime_command.after_id);
        match stdio {
            Stdio::Null => null_stdio(&mut command),
            Stdio::Descriptors([input, output, error]) => {
                command.stdin(input).stdout(output).stderr(error);
            }
        }
        // SAFETY: one system call, between fork and exec of a process with one thread.
        unsafe { command.pre_exec(container_create::system::die_with_parent) };
        let program = &self.handler.program;
        let status = wait(command, limit).map_err(|error| format!("{program}: {error}"));
        let message = end_of(self.log).ok().and_then(|text| last_error(&text));
        let _ = fs::remove_file(self.log);
        match status? {
            None => Err(format!("{program} took longer than {} seconds", limit.as_secs())),
            Some(status) if status.success() => Ok(()),
            Some(status) => {
                Err(message.unwrap_or_else(|| format!("{program} ended with {status}")))
            }
        }
    }
}

fn null_stdio(command: &mut Command) {
    use std::process::Stdio;
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
}

/// None: it exceeded the limit and was killed.
fn wait(mut command: Command, limit: Duration) -> io::Result<Option<ExitStatus>> {
    let mut child = command.spawn()?;
    // Close our copies of its streams, or their end would never be seen.
    drop(command);
    let pid = Pid::from_child(&child);
    let pidfd = rustix::process::pidfd_open(pid, PidfdFlags::empty())?;
    let limit = Timespec { tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX), tv_nsec: 0 };
    let ready = loop {
        match poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&limit)) {
            Err(rustix::io::Errno::INTR) => {}
            outcome => break outcome?,
        }
    };
    if ready == 0 {
        let _ = rustix::process::pidfd_send_signal(&pidfd, Signal::KILL);
        child.wait()?;
        return Ok(None);
    }
    child.wait().map(Some)
}

fn end_of(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(LOG_END)))?;
    let mut bytes = Vec::new();
    file.take(LOG_END).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The message of the last line of level "error", each line being a JSON object; of the last line
/// at all if none has that level.
fn last_error(log: &str) -> Option<String> {
    let lines = || log.lines().rev().filter(|line| line.trim_start().starts_with('{'));
    let line = lines()
        .find(|line| matches!(member(line, "level").as_deref(), Some("error" | "fatal")))
        .or_else(|| lines().next())?;
    let message = member(line, "msg")?;
    Some(message.chars().take(MAX_REASON).collect())
}

/// A string member of an object. Enough for flat log lines; anything else is none.
fn member(line: &str, name: &str) -> Option<String> {
    let quoted = format!("\"{name}\"");
    let rest = line.get(line.find(&quoted)? + quoted.len()..)?;
    let rest = rest.trim_start().strip_prefix(':')?.trim_start().strip_prefix('"')?;
    let mut text = String::new();
    let mut letters = rest.chars();
    loop {
        match letters.next()? {
            '"' => return Some(text),
            '\\' => match letters.next()? {
                'n' | 'r' | 't' => text.push(' '),
                'u' => {
                    let digits: String = letters.by_ref().take(4).collect();
                    let number = u32::from_str_radix(&digits, 16).ok()?;
                    text.push(char::from_u32(number).unwrap_or('\u{fffd}'));
                }
                other => text.push(other),
            },
            letter => text.push(letter),
        }
    }
}

/// Where the runtime sends the master side of a terminal.
pub(super) struct ConsoleSocket {
    listener: UnixListener,
    path: PathBuf,
}

impl ConsoleSocket {
    pub(super) fn listen(path: &Path) -> io::Result<Self> {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(path)?;
        listener.set_nonblocking(true)?;
        Ok(Self { listener, path: path.to_owned() })
    }

    /// The runtime has exited, so the descriptor has been sent.
    pub(super) fn master(&self) -> io::Result<OwnedFd> {
        let (socket, _) = self.listener.accept()?;
        let mut name = [0; 256];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        recvmsg(&socket, &mut [IoSliceMut::new(&mut name)], &mut control, flags)?;
        let mut found = control.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
            _ => None,
        });
        found.next().ok_or_else(|| io::Error::other("the message has no descriptor"))
    }
}

impl Drop for ConsoleSocket {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}
