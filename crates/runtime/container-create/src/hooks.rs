//! OCI hooks of CDI devices: programs of the host that run while a container is created.
//!
//! Rule: a hook finds the container's root where the bundle says, with everything mounted and
//! nothing of the image running. It is a program of the host and runs without the labels, limits
//! and seccomp filter of the container. So the hook runner is forked before any of these are set,
//! waits, and enters the namespaces once they exist. A hook that fails or exceeds its timeout fails
//! the container. The caller refuses hooks of other points than `createContainer`.
//!
//! upstream: runc libcontainer/rootfs_linux.go (createContainer hooks), configs/config.go (Command.Run)

use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal};

use crate::enter::kinds;
use crate::error::{CreateError, During, Result};
use crate::exchange::{send_descriptor, take};
use crate::spec::{ContainerSpec, HookSpec};
use crate::system::{
    Sibling, clone_sibling, close_all_except, die_with_parent, dup_null_to_stdio, enter, exit_now,
    reset_signals,
};

#[cfg(test)]
mod tests;

/// The only supported hook point.
pub const CREATE_CONTAINER: &str = "createContainer";
/// Where the container's root is mounted in the bundle while hooks run.
pub const ROOT_IN_BUNDLE: &str = "rootfs";

const OCI_VERSION: &str = "1.0.2";
/// The timeout of a hook that does not set one.
const LIMIT: Duration = Duration::from_secs(60);
/// How much of a hook's stderr is kept; the rest is discarded.
const STDERR_LIMIT: usize = 16 * 1024;
const REASON_LIMIT: usize = 500;

/// The container's handle of its hook runner.
pub(crate) struct HookRunner {
    socket: UnixStream,
}

impl HookRunner {
    /// Forks the runner with the host's privileges, before anything of the container is set. None
    /// without hooks.
    pub(crate) fn start(spec: &ContainerSpec, null: BorrowedFd<'_>) -> Result<Option<Self>> {
        let Some(first) = spec.hooks.first() else { return Ok(None) };
        if let Some(odd) = spec.hooks.iter().find(|hook| hook.point != CREATE_CONTAINER) {
            return Err(CreateError::invalid_spec(format!(
                "{} hooks are not run: {}",
                odd.point, odd.path
            )));
        }
        if !spec.bundle.starts_with('/') {
            return Err(CreateError::invalid_spec(format!(
                "the hook {} has no bundle",
                first.path
            )));
        }
        let (ours, theirs) = UnixStream::pair().during("making a socket pair")?;
        match clone_sibling(0).during("starting the hook runner")? {
            Sibling::Self_ => {
                drop(ours);
                let outcome = match serve(spec, &theirs, null) {
                    Ok(()) => vec![0],
                    Err(error) => error.message.into_bytes(),
                };
                let _ = (&theirs).write_all(&outcome);
                exit_now(0)
            }
            Sibling::Other { .. } => Ok(Some(Self { socket: ours })),
        }
    }

    /// Runs the hooks in this process's namespaces, and waits until they have ended.
    pub(crate) fn run(mut self) -> Result<()> {
        let own = rustix::process::getpid();
        let pidfd = rustix::process::pidfd_open(own, PidfdFlags::empty())
            .during("opening the container's process")?;
        send_descriptor(&self.socket, pidfd.as_fd()).during("telling the hook runner")?;
        // The PID in the container's PID namespace, in which hooks run.
        let number = own.as_raw_nonzero().get().to_ne_bytes();
        self.socket.write_all(&number).during("telling the hook runner")?;
        let mut outcome = Vec::new();
        self.socket.read_to_end(&mut outcome).during("waiting for the hooks")?;
        match outcome.as_slice() {
            [0] => Ok(()),
            [] => Err(CreateError::other("the hook runner ended early")),
            text => Err(CreateError::other(String::from_utf8_lossy(text).into_owned())),
        }
    }
}

fn serve(spec: &ContainerSpec, mut socket: &UnixStream, null: BorrowedFd<'_>) -> Result<()> {
    die_with_parent().during("following the supervisor")?;
    dup_null_to_stdio(null).during("placing a null device")?;
    close_all_except(&[0, 1, 2, socket.as_raw_fd()]).during("closing descriptors")?;
    let Some(container) = take(socket).during("waiting for the container")? else {
        // The creation failed before the hooks were due, and has reported its error.
        exit_now(0)
    };
    let mut number = [0; 4];
    socket.read_exact(&mut number).during("waiting for the container")?;
    let namespaces = spec.namespaces.clone().unwrap_or_default();
    enter(container.as_fd(), kinds(&namespaces, false)?)
        .during("entering the container's namespaces")?;
    drop(container);
    let state = state(&spec.id, i32::from_ne_bytes(number), &spec.bundle);
    spec.hooks.iter().try_for_each(|hook| {
        run(hook, (&state, &spec.bundle), socket).map_err(|why| {
            CreateError::other(format!("the {} hook {} {why}", hook.point, hook.path))
        })
    })
}

/// The OCI state as JSON.
fn state(id: &str, pid: i32, bundle: &str) -> String {
    format!(
        r#"{{"ociVersion":"{OCI_VERSION}","id":{},"status":"creating","pid":{pid},"bundle":{}}}"#,
        quoted(id),
        quoted(bundle)
    )
}

/// A string as JSON.
fn quoted(text: &str) -> String {
    let mut all = String::from('"');
    for letter in text.chars() {
        match letter {
            '"' | '\\' => all.extend(['\\', letter]),
            letter if letter < ' ' => all.push_str(&format!("\\u{:04x}", u32::from(letter))),
            letter => all.push(letter),
        }
    }
    all.push('"');
    all
}

/// Runs one hook to its end; the caller puts its name before the error. `container` becomes
/// readable when the container's process has ended and the hook is no longer needed.
fn run(
    hook: &HookSpec,
    (state, bundle): (&str, &str),
    container: &UnixStream,
) -> std::result::Result<(), String> {
    let mut command = Command::new(&hook.path);
    if let Some((name, arguments)) = hook.arguments.split_first() {
        command.arg0(name).args(arguments);
    }
    let variables = hook.environment.iter().filter_map(|entry| entry.split_once('='));
    command.env_clear().envs(variables).current_dir(bundle).process_group(0);
    // Its stdout is the runner's: the pod's null device.
    command.stdin(Stdio::piped()).stderr(Stdio::piped());
    // SAFETY: only system calls between fork and exec, in a process with one thread.
    unsafe { command.pre_exec(|| reset_signals().and_then(|()| die_with_parent())) };
    let mut child = command.spawn().map_err(|error| format!("cannot be run: {error}"))?;
    let limit = match hook.timeout {
        0 => LIMIT,
        seconds => Duration::from_secs(seconds.into()),
    };
    if let Some(mut input) = child.stdin.take() {
        // A hook need not read the state, which fits into a pipe's buffer.
        let _ = input.write_all(state.as_bytes());
    }
    let mut stderr_text = Vec::new();
    let ended = watch(&mut child, Instant::now() + limit, container, &mut stderr_text);
    // Its children are killed with it.
    let _ = rustix::process::kill_process_group(Pid::from_child(&child), Signal::KILL);
    let status = child.wait().map_err(|error| error.to_string())?;
    match ended {
        Ok(true) if status.success() => Ok(()),
        Ok(true) => Err(format!("failed with {status}{}", last_line(&stderr_text))),
        Ok(false) => {
            Err(format!("took longer than {} seconds{}", limit.as_secs(), last_line(&stderr_text)))
        }
        Err(error) => Err(format!("was lost: {error}")),
    }
}

/// Waits for a hook's end and reads its stderr; false at the timeout.
fn watch(
    child: &mut Child,
    until: Instant,
    container: &UnixStream,
    stderr_text: &mut Vec<u8>,
) -> std::io::Result<bool> {
    let pidfd = rustix::process::pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
    let mut errors = child.stderr.take();
    if let Some(errors) = &errors {
        rustix::io::ioctl_fionbio(errors, true)?;
    }
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(false);
        }
        let left = Timespec::try_from(left).map_err(std::io::Error::other)?;
        let mut waited = vec![
            PollFd::new(&pidfd, PollFlags::IN),
            // Nothing is ever sent on it; a hang-up is always reported.
            PollFd::new(container, PollFlags::empty()),
        ];
        waited.extend(errors.as_ref().map(|errors| PollFd::new(errors, PollFlags::IN)));
        match poll(&mut waited, Some(&left)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let is_over = !waited[0].revents().is_empty();
        let is_alone = !waited[1].revents().is_empty();
        drop(waited);
        if errors.as_mut().is_some_and(|errors| !read_stderr(errors, stderr_text)) {
            errors = None;
        }
        if is_over {
            return Ok(true);
        }
        if is_alone {
            return Err(std::io::Error::other("the container has ended"));
        }
    }
}

/// Reads what is available; false at the end of the stream.
fn read_stderr(errors: &mut impl Read, stderr_text: &mut Vec<u8>) -> bool {
    let mut bytes = [0; 4096];
    loop {
        match errors.read(&mut bytes) {
            Ok(0) => return false,
            Ok(count) => {
                stderr_text.extend_from_slice(&bytes[..count]);
                let surplus = stderr_text.len().saturating_sub(STDERR_LIMIT);
                stderr_text.drain(..surplus);
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return error.kind() == std::io::ErrorKind::WouldBlock,
        }
    }
}

/// The last line of stderr that is not empty, after a colon.
fn last_line(stderr_text: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr_text);
    let line = text.lines().map(str::trim).rfind(|line| !line.is_empty());
    line.map(|line| format!(": {}", line.chars().take(REASON_LIMIT).collect::<String>()))
        .unwrap_or_default()
}
