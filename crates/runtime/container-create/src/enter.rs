//! Starts a further process (exec) in a running container, with its namespaces, cgroup, user,
//! capabilities and seccomp filter.
//!
//! Rule: the namespaces are those of the container's first process, entered by its pidfd all at
//! once. A container at its PID limit must not prevent an exec: the helper enters the cgroup and
//! clones the new process there, which is quick; if that fails, the process is cloned outside and
//! moved in afterwards. Processes of the container can kill the new process. To inspect it they
//! need CAP_SYS_PTRACE, and then find nothing of the host open: what its setup needs stays with a
//! helper that is never visible in the container.

use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use cgroup_files::{Cgroup, CgroupProcsFiles};

use crate::create::{admit, chown_streams};
use crate::error::{CreateError, CreateErrorKind, During, Result};
use crate::exchange::CreateReporter;
use crate::paths::ContainerRoot;
use crate::pod::{become_namespace_root, mode};
use crate::process_files::ProcessFiles;
use crate::program::{FileIdentity, ProgramLaunch, StdioFds, become_program, enter_dir};
use crate::spec::{ContainerNamespaces, IdMappings, NamespaceMode, ProcessSpec, SecuritySpec};
use crate::system::{
    NEW_CGROUP, NEW_IPC, NEW_MOUNT, NEW_NET, NEW_PID, NEW_USER, NEW_UTS, Sibling, clone_sibling,
    close_all_except, die_with_parent, dup_null_to_stdio, enter, exit_now,
};
use crate::{groups, identity, terminal};

/// The inputs of an exec.
pub struct ExecInputs<'a> {
    /// The pidfd of the container's first process.
    pub container: BorrowedFd<'a>,
    pub namespaces: &'a ContainerNamespaces,
    /// The id ranges of the pod's user namespace, if it has one.
    pub mappings: Option<&'a IdMappings>,
    pub process: &'a ProcessSpec,
    pub security: &'a SecuritySpec,
    pub files: &'a ProcessFiles,
    pub group: Option<&'a Cgroup>,
    /// A cgroup to create below the container's, by which the whole process tree can be killed.
    pub exec_group: Option<&'a Cgroup>,
    /// None with a terminal.
    pub streams: Option<StdioFds>,
    /// The pod's null device: processes that are being set up have it open, where a process of the
    /// container might find it.
    pub null: BorrowedFd<'a>,
}

/// An exec as it is handed from helper to helper.
struct ExecLaunch<'a> {
    inputs: ExecInputs<'a>,
    /// This program, which the container's process must not execute.
    own_program: FileIdentity,
}

/// Runs in a fork of the supervisor; returns in neither process.
pub fn enter_container(inputs: ExecInputs<'_>, reporter: &CreateReporter) -> ! {
    match run_helper(inputs, reporter) {
        Ok(None) => exit_now(0),
        Ok(Some(launch)) => become_program(launch, reporter),
        Err(error) => {
            let _ = reporter.failed(&error);
            exit_now(1)
        }
    }
}

/// The kinds of namespaces in which the container differs from the host.
pub(crate) fn kinds(wanted: &ContainerNamespaces, user: bool) -> Result<u64> {
    let mut kinds = NEW_MOUNT;
    for (choice, kind) in [
        (wanted.network, NEW_NET),
        (wanted.ipc, NEW_IPC),
        (wanted.uts, NEW_UTS),
        (wanted.pid, NEW_PID),
        (wanted.cgroup, NEW_CGROUP),
    ] {
        if mode(choice)? != NamespaceMode::Node {
            kinds |= kind;
        }
    }
    if user && mode(wanted.user)? == NamespaceMode::Pod {
        kinds |= NEW_USER;
    }
    Ok(kinds)
}

fn run_helper<'a>(
    inputs: ExecInputs<'a>,
    reporter: &CreateReporter,
) -> Result<Option<ProgramLaunch<'a>>> {
    let mut descriptors = vec![
        0,
        1,
        2,
        reporter.as_fd().as_raw_fd(),
        inputs.files.dir().as_raw_fd(),
        inputs.container.as_raw_fd(),
        inputs.null.as_raw_fd(),
    ];
    descriptors.extend(inputs.streams.iter().flatten().map(AsRawFd::as_raw_fd));
    close_all_except(&descriptors).during("closing descriptors")?;
    die_with_parent().during("following the supervisor")?;
    let own_program = FileIdentity::of_this_program()?;
    identity::check_ids(inputs.security)?;
    identity::set_labels(inputs.files, inputs.security)?;
    identity::set_oom_score(inputs.files, inputs.security)?;
    identity::set_limits(&inputs.security.limits)?;
    let doors =
        inputs.group.map(|group| groups::exec_doors(group, inputs.exec_group)).transpose()?;
    let user = inputs.mappings.is_some();
    let kinds = kinds(inputs.namespaces, user)?;
    let in_user = kinds & NEW_USER != 0;
    if let Some(streams) = &inputs.streams {
        chown_streams(streams, inputs.security, inputs.mappings.filter(|_| in_user))?;
    }
    let (procs_files, mut door_of_second) = match doors {
        Some(doors) => (Some(doors.for_others), doors.for_caller),
        None => (None, None),
    };
    loop {
        let entry_of_second = door_of_second.take();
        let is_inside = entry_of_second.is_some();
        let (ours, theirs) = UnixStream::pair().during("making a socket pair")?;
        if let Sibling::Self_ = clone_sibling(0).during("starting a second helper")? {
            drop((ours, procs_files));
            let exec = ExecLaunch { inputs, own_program };
            return enter_and_fork(exec, kinds, entry_of_second, reporter, theirs);
        }
        drop(theirs);
        let mut pid = [0; 4];
        if (&ours).read_exact(&mut pid).is_err() {
            // The second helper has reported the error.
            return Ok(None);
        }
        match u32::from_ne_bytes(pid) {
            NO_PROCESS_ALLOWED if is_inside => continue,
            pid if !is_inside => admit(procs_files.as_ref(), pid)?,
            _ => {}
        }
        (&ours).write_all(&[1]).during("letting the process go on")?;
        return Ok(None);
    }
}

/// Sent instead of a PID: the cgroup is at its PID limit.
const NO_PROCESS_ALLOWED: u32 = 0;

/// From the host into the container. Closes everything of the host first: what is open here is open
/// in the new process from its start.
fn enter_and_fork<'a>(
    exec: ExecLaunch<'a>,
    kinds: u64,
    procs_files: Option<CgroupProcsFiles>,
    reporter: &CreateReporter,
    helper_socket: UnixStream,
) -> Result<Option<ProgramLaunch<'a>>> {
    let inputs = &exec.inputs;
    dup_null_to_stdio(inputs.null).during("placing a null device")?;
    let mut descriptors = vec![0, 1, 2, reporter.as_fd().as_raw_fd(), helper_socket.as_raw_fd()];
    descriptors.extend(inputs.streams.iter().flatten().map(AsRawFd::as_raw_fd));
    die_with_parent().during("following the supervisor")?;
    enter(inputs.container, kinds).map_err(|error| match error.raw_os_error() {
        Some(libc::ESRCH) => CreateError {
            kind: CreateErrorKind::NotRunning,
            message: "the container is not running any more".to_owned(),
        },
        _ => CreateError::other(format!("entering the container's namespaces: {error}")),
    })?;
    let is_inside = procs_files.is_some();
    if let Some(procs_files) = procs_files {
        procs_files.attach(0)?;
    }
    close_all_except(&descriptors).during("closing descriptors")?;
    if kinds & NEW_USER != 0 {
        become_namespace_root()?;
    }
    let process = clone_sibling(0);
    if is_inside && process.as_ref().is_err_and(|error| error.raw_os_error() == Some(libc::EAGAIN))
    {
        (&helper_socket)
            .write_all(&NO_PROCESS_ALLOWED.to_ne_bytes())
            .during("telling the first helper")?;
        return Ok(None);
    }
    match process.during("starting a process in the container")? {
        Sibling::Self_ => run_inside(exec, reporter, helper_socket).map(Some),
        Sibling::Other { pid, pidfd } => {
            let pid = u32::try_from(pid).unwrap_or_default();
            reporter.started(pid, pidfd.as_fd()).during("telling the supervisor")?;
            (&helper_socket).write_all(&pid.to_ne_bytes()).during("telling the first helper")?;
            Ok(None)
        }
    }
}

fn run_inside<'a>(
    ExecLaunch { inputs, own_program }: ExecLaunch<'a>,
    reporter: &CreateReporter,
    mut helper_socket: UnixStream,
) -> Result<ProgramLaunch<'a>> {
    helper_socket.read_exact(&mut [0]).during("waiting for the helper")?;
    rustix::process::setsid().during("beginning a session")?;
    let root = ContainerRoot::here()?;
    let terminal = match inputs.process.terminal {
        true => Some(terminal::open(&root, inputs.process.terminal_size, inputs.security)?),
        false => None,
    };
    enter_dir(&root, inputs.process, false)?;
    let descriptors: Vec<BorrowedFd<'_>> =
        terminal.iter().map(|terminal| terminal.master.as_fd()).collect();
    reporter.ready(Vec::new(), &descriptors).during("telling the supervisor")?;
    let has_terminal = terminal.is_some();
    let streams = match (terminal, inputs.streams) {
        (Some(terminal), _) => {
            let copy = || terminal.peer.try_clone().during("copying the terminal");
            [copy()?, copy()?, copy()?]
        }
        (None, Some(streams)) => streams,
        (None, None) => {
            return Err(CreateError::invalid_spec("the process has no standard streams"));
        }
    };
    Ok(ProgramLaunch {
        process: inputs.process,
        security: inputs.security,
        root,
        streams,
        terminal: has_terminal,
        own: own_program,
    })
}
