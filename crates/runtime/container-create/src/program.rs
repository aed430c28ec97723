//! The last steps of a process before its program: streams, working directory, user, execve.
//!
//! Rule: when the program is looked up, only the standard streams and the report's socket are open,
//! so no name under `/proc/self/fd` leads anywhere; the working directory is checked to be inside
//! the root. The runtime's own program is never executed: the process could reach it under `/proc`.
//! Errors are reported to the caller of the start.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{FileType, OFlags, ResolveFlags};

use crate::error::{CreateError, CreateErrorKind, During, Result};
use crate::exchange::CreateReporter;
use crate::paths::{ContainerRoot, CreateAs};
use crate::spec::{ProcessSpec, SecuritySpec};
use crate::system::{
    StringList, borrowed, close_all_except, dup_to, execute, exit_now, new_session_keyring,
    outlive_parent, reset_signals, take_terminal,
};

mod own;
#[cfg(test)]
mod tests;

pub(crate) use own::FileIdentity;

const USUAL_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// A password file is small; a larger one is not read to its end.
const MAX_PASSWD_LENGTH: usize = 1024 * 1024;
const REPORT: i32 = 3;

/// Standard input, output, error.
pub(crate) type StdioFds = [OwnedFd; 3];

/// Enters the working directory, which is created if `make` is set.
pub(crate) fn enter_dir(root: &ContainerRoot, process: &ProcessSpec, make: bool) -> Result<()> {
    let path = match process.working_directory.as_str() {
        "" => "/",
        path => path,
    };
    if !path.starts_with('/') {
        return Err(CreateError::invalid_spec(format!(
            "the working directory {path:?} is not an absolute path"
        )));
    }
    let dir = if make {
        root.find_or_create(path, CreateAs::Dir)?
    } else {
        root.find(path).during(format_args!("opening the working directory {path}"))?
    };
    rustix::process::fchdir(&dir).during(format_args!("entering the working directory {path}"))?;
    // A directory outside the root has no path inside it.
    let here = rustix::process::getcwd(Vec::new()).during("finding the working directory")?;
    if !here.to_bytes().starts_with(b"/") {
        return Err(CreateError::invalid_spec(format!(
            "the working directory {path} lies outside the container"
        )));
    }
    Ok(())
}

/// The home directory, if the environment names none: that of the user in the container's password
/// file.
pub(crate) fn home_dir_of(root: &ContainerRoot, uid: u32) -> String {
    read_small_file(root, "/etc/passwd")
        .and_then(|text| home_dir_in(&text, uid))
        .unwrap_or_else(|| "/".to_owned())
}

fn home_dir_in(passwd: &str, uid: u32) -> Option<String> {
    passwd.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        let same = fields.get(2)?.parse() == Ok(uid);
        fields.get(5).filter(|home| same && home.starts_with('/')).map(|home| (*home).to_owned())
    })
}

/// A regular file of at most [`MAX_PASSWD_LENGTH`] bytes; anything else counts as missing.
fn read_small_file(root: &ContainerRoot, path: &str) -> Option<String> {
    let found = root.find(path).ok()?;
    let stat = rustix::fs::fstat(&found).ok()?;
    let size = usize::try_from(stat.st_size).ok()?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile || size > MAX_PASSWD_LENGTH {
        return None;
    }
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = root.open(path, flags, ResolveFlags::empty()).ok()?;
    let mut bytes = vec![0; size];
    let mut have = 0;
    while have < size {
        match rustix::io::read(&file, &mut bytes[have..]).ok()? {
            0 => break,
            count => have += count,
        }
    }
    bytes.truncate(have);
    String::from_utf8(bytes).ok()
}

/// The inputs of a process's last steps.
pub(crate) struct ProgramLaunch<'a> {
    pub(crate) process: &'a ProcessSpec,
    pub(crate) security: &'a SecuritySpec,
    pub(crate) root: ContainerRoot,
    pub(crate) streams: StdioFds,
    /// The streams are a terminal that becomes the session's controlling terminal.
    pub(crate) terminal: bool,
    /// Of the runtime's own program.
    pub(crate) own: FileIdentity,
}

/// Executes the program. Does not return; errors are reported.
pub(crate) fn become_program(launch: ProgramLaunch<'_>, reporter: &CreateReporter) -> ! {
    // Its descriptors are closed by number below; dropping their owner would close others.
    let launch = std::mem::ManuallyDrop::new(launch);
    let error = match run(&launch, reporter) {
        Ok(never) => match never {},
        Err(error) => error,
    };
    // The original descriptor is closed; the report uses the duplicate.
    let report = borrowed(REPORT).try_clone_to_owned().map(CreateReporter::at);
    let reported = report.and_then(|report| report.failed(&error));
    if reported.is_err() {
        let _ = reporter.failed(&error);
    }
    // A shell's exit codes for a program that cannot be run.
    exit_now(if error.kind == CreateErrorKind::ProgramNotFound { 127 } else { 126 })
}

fn run(launch: &ProgramLaunch<'_>, reporter: &CreateReporter) -> Result<std::convert::Infallible> {
    let mut environment = launch.process.environment.clone();
    let has = |name: &str| launch.process.environment.iter().any(|one| one.starts_with(name));
    if !has("HOME=") {
        environment.push(format!("HOME={}", home_dir_of(&launch.root, launch.security.uid)));
    }
    let arguments = StringList::new(&launch.process.arguments).during("reading the arguments")?;
    let variables = StringList::new(&environment).during("reading the environment")?;
    let candidates = candidates(launch.process)?;
    reset_signals().during("resetting the signals")?;
    outlive_parent().during("detaching from the helper")?;
    // Not fatal: the kernel may have no keyrings, or an outer seccomp filter may forbid them.
    let _ = new_session_keyring();
    dup_streams_to_stdio(launch, reporter)?;
    // While everything can still be read. Exchanging a file from here on gains an attacker nothing:
    // the program is sealed, and its run under such a name is to end.
    let is_own: Vec<bool> = candidates.iter().map(|path| own::leads_to(path, launch.own)).collect();
    crate::identity::become_user(launch.security)?;
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for (candidate, is_own) in candidates.iter().zip(is_own) {
        if is_own {
            let path = candidate.to_string_lossy();
            let message = format!("exec: {path:?}: it is the container runtime's own program");
            return Err(CreateError { kind: CreateErrorKind::ProgramNotFound, message });
        }
        let error = execute(candidate, &arguments, &variables);
        match error.raw_os_error() {
            Some(libc::ENOENT | libc::ENOTDIR) => {}
            Some(libc::EACCES) => last = error,
            _ => {
                last = error;
                break;
            }
        }
    }
    let name = launch.process.arguments.first().map_or("", String::as_str);
    let message = match last.kind() {
        io::ErrorKind::NotFound if !name.contains('/') => {
            format!("exec: {name:?}: executable file not found in $PATH")
        }
        io::ErrorKind::NotFound => {
            format!("exec: {name:?}: stat {name}: no such file or directory")
        }
        io::ErrorKind::PermissionDenied => format!("exec: {name:?}: permission denied"),
        _ => format!("exec {name}: {last}"),
    };
    Err(CreateError { kind: CreateErrorKind::ProgramNotFound, message })
}

/// Moves the report's socket to a fixed number and the streams to 0 to 2; closes all else.
fn dup_streams_to_stdio(launch: &ProgramLaunch<'_>, reporter: &CreateReporter) -> Result<()> {
    let step = "placing the standard streams";
    // Above all numbers that are about to be replaced.
    let high: Vec<OwnedFd> = launch
        .streams
        .iter()
        .map(|stream| rustix::io::fcntl_dupfd_cloexec(stream, 10))
        .collect::<Result<_, _>>()
        .during(step)?;
    let report = rustix::io::fcntl_dupfd_cloexec(reporter.as_fd(), 10).during(step)?;
    for (number, stream) in high.iter().enumerate() {
        dup_to(stream.as_fd(), i32::try_from(number).unwrap_or_default()).during(step)?;
    }
    dup_to(report.as_fd(), REPORT).during(step)?;
    if launch.terminal {
        take_terminal(borrowed(0)).during("taking the terminal")?;
    }
    std::mem::forget((high, report));
    close_all_except(&[0, 1, 2, REPORT]).during("closing descriptors")
}

/// The paths to try for the program, in order.
fn candidates(process: &ProcessSpec) -> Result<Vec<CString>> {
    let name = process
        .arguments
        .first()
        .filter(|name| !name.is_empty())
        .ok_or_else(|| CreateError::invalid_spec("no program was named"))?;
    let zero =
        |_| CreateError::invalid_spec(format!("the program's name {name:?} contains a zero byte"));
    if name.contains('/') {
        return Ok(vec![CString::new(name.as_str()).map_err(zero)?]);
    }
    let path = process.environment.iter().rev().find_map(|one| one.strip_prefix("PATH="));
    path.filter(|path| !path.is_empty())
        .unwrap_or(USUAL_PATH)
        .split(':')
        .map(|dir| if dir.is_empty() { "." } else { dir })
        .map(|dir| CString::new(format!("{dir}/{name}")).map_err(zero))
        .collect()
}
