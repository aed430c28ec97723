//! Hooks that come with devices: programs of the machine, run in a container that is being made.
//!
//! Rule: a hook finds the container's root where the bundle says, with everything mounted and nothing
//! of the image running; it is the machine's program, so it runs without the labels, limits and filter
//! that the container gets. So who runs hooks is started before any of these, waits, and goes into the
//! namespaces when they are there. A hook that fails, or is late, fails the container. Other points of
//! a container's life than `createContainer` are the caller's to refuse.
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
use crate::error::{During, Result, Trouble};
use crate::exchange::{give, take};
use crate::spec::{ContainerSpec, HookSpec};
use crate::system::{
    Sibling, clone_sibling, close_all_but, die_with_parent, enter, exit_now, place_null,
    reset_signals,
};

#[cfg(test)]
mod tests;

/// The one point that is served.
pub const CREATE_CONTAINER: &str = "createContainer";
/// Where the container's root is while hooks run, in the bundle.
pub const ROOT_IN_BUNDLE: &str = "rootfs";

const OCI_VERSION: &str = "1.0.2";
/// For a hook that says nothing of it.
const LIMIT: Duration = Duration::from_secs(60);
/// What is read of a hook's complaints: the rest goes by.
const LONGEST_COMPLAINT: usize = 16 * 1024;
const LONGEST_REASON: usize = 500;

/// The container's end of the line to who runs its hooks.
pub(crate) struct Runner {
    socket: UnixStream,
}

impl Runner {
    /// Runs with the machine's rights and nothing set yet that a container gets. None without hooks.
    pub(crate) fn start(spec: &ContainerSpec, null: BorrowedFd<'_>) -> Result<Option<Self>> {
        let Some(first) = spec.hooks.first() else { return Ok(None) };
        if let Some(odd) = spec.hooks.iter().find(|hook| hook.point != CREATE_CONTAINER) {
            return Err(Trouble::bad(format!("{} hooks are not run: {}", odd.point, odd.path)));
        }
        if !spec.bundle.starts_with('/') {
            return Err(Trouble::bad(format!("the hook {} has no bundle", first.path)));
        }
        let (ours, theirs) = UnixStream::pair().during("making a socket pair")?;
        match clone_sibling(0).during("starting who runs hooks")? {
            Sibling::Self_ => {
                drop(ours);
                let word = match serve(spec, &theirs, null) {
                    Ok(()) => vec![0],
                    Err(trouble) => trouble.message.into_bytes(),
                };
                let _ = (&theirs).write_all(&word);
                exit_now(0)
            }
            Sibling::Other { .. } => Ok(Some(Self { socket: ours })),
        }
    }

    /// Runs the hooks in this process's namespaces, and waits for their end.
    pub(crate) fn run(mut self) -> Result<()> {
        let own = rustix::process::getpid();
        let pidfd = rustix::process::pidfd_open(own, PidfdFlags::empty())
            .during("opening the container's process")?;
        give(&self.socket, pidfd.as_fd()).during("telling who runs hooks")?;
        // As a hook sees it, which is among the container's processes.
        let number = own.as_raw_nonzero().get().to_ne_bytes();
        self.socket.write_all(&number).during("telling who runs hooks")?;
        let mut word = Vec::new();
        self.socket.read_to_end(&mut word).during("waiting for the hooks")?;
        match word.as_slice() {
            [0] => Ok(()),
            [] => Err(Trouble::other("who runs hooks ended early")),
            text => Err(Trouble::other(String::from_utf8_lossy(text).into_owned())),
        }
    }
}

fn serve(spec: &ContainerSpec, mut socket: &UnixStream, null: BorrowedFd<'_>) -> Result<()> {
    die_with_parent().during("following the supervisor")?;
    place_null(null).during("placing a null device")?;
    close_all_but(&[0, 1, 2, socket.as_raw_fd()]).during("closing descriptors")?;
    let Some(container) = take(socket).during("waiting for the container")? else {
        // It failed before its hooks were due, and has said why.
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
        run(hook, (&state, &spec.bundle), socket)
            .map_err(|why| Trouble::other(format!("the {} hook {} {why}", hook.point, hook.path)))
    })
}

/// What OCI calls the state, as JSON.
fn state(id: &str, pid: i32, bundle: &str) -> String {
    format!(
        r#"{{"ociVersion":"{OCI_VERSION}","id":{},"status":"creating","pid":{pid},"bundle":{}}}"#,
        quoted(id),
        quoted(bundle)
    )
}

/// A text as JSON writes it.
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

/// Runs one hook to its end; the error goes on after its name. `container` ends with the container's
/// process, and nobody needs the hook then.
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
    // Its output is that of who runs hooks: the pod's null device.
    command.stdin(Stdio::piped()).stderr(Stdio::piped());
    // SAFETY: system calls alone, between fork and exec of a process with one thread.
    unsafe { command.pre_exec(|| reset_signals().and_then(|()| die_with_parent())) };
    let mut child = command.spawn().map_err(|error| format!("cannot be run: {error}"))?;
    let limit = match hook.timeout {
        0 => LIMIT,
        seconds => Duration::from_secs(seconds.into()),
    };
    if let Some(mut input) = child.stdin.take() {
        // A hook that does not read it has its reasons. It fits into what a pipe holds.
        let _ = input.write_all(state.as_bytes());
    }
    let mut complaint = Vec::new();
    let ended = watch(&mut child, Instant::now() + limit, container, &mut complaint);
    // Whatever it has started goes with it.
    let _ = rustix::process::kill_process_group(Pid::from_child(&child), Signal::KILL);
    let status = child.wait().map_err(|error| error.to_string())?;
    match ended {
        Ok(true) if status.success() => Ok(()),
        Ok(true) => Err(format!("failed with {status}{}", last_line(&complaint))),
        Ok(false) => {
            Err(format!("took longer than {} seconds{}", limit.as_secs(), last_line(&complaint)))
        }
        Err(error) => Err(format!("was lost: {error}")),
    }
}

/// Waits for a hook's end and takes what it says; false where the time is over.
fn watch(
    child: &mut Child,
    until: Instant,
    container: &UnixStream,
    complaint: &mut Vec<u8>,
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
            // Nothing more is ever said on it: that it is closed is told unasked.
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
        if errors.as_mut().is_some_and(|errors| !take_in(errors, complaint)) {
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

/// Reads what is there; false at its end.
fn take_in(errors: &mut impl Read, complaint: &mut Vec<u8>) -> bool {
    let mut bytes = [0; 4096];
    loop {
        match errors.read(&mut bytes) {
            Ok(0) => return false,
            Ok(count) => {
                complaint.extend_from_slice(&bytes[..count]);
                let surplus = complaint.len().saturating_sub(LONGEST_COMPLAINT);
                complaint.drain(..surplus);
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return error.kind() == std::io::ErrorKind::WouldBlock,
        }
    }
}

/// The last of a hook's complaints that says something, behind a colon.
fn last_line(complaint: &[u8]) -> String {
    let text = String::from_utf8_lossy(complaint);
    let line = text.lines().map(str::trim).rfind(|line| !line.is_empty());
    line.map(|line| format!(": {}", line.chars().take(LONGEST_REASON).collect::<String>()))
        .unwrap_or_default()
}
