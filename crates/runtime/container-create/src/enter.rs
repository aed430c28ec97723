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

use cgroup_files::{Cgroup, Door};

use crate::create::{admit, give_streams};
use crate::error::{During, Result, Trouble, TroubleKind};
use crate::exchange::Reporter;
use crate::paths::Root;
use crate::pod::{become_namespace_root, mode};
use crate::process_files::ProcessFiles;
use crate::program::{FileIdentity, Launch, Streams, become_program, enter_folder};
use crate::spec::{ContainerNamespaces, IdMappings, NamespaceMode, ProcessSpec, SecuritySpec};
use crate::system::{
    NEW_CGROUP, NEW_IPC, NEW_MOUNT, NEW_NET, NEW_PID, NEW_USER, NEW_UTS, Sibling, clone_sibling,
    close_all_but, die_with_parent, enter, exit_now, place_null,
};
use crate::{groups, identity, terminal};

/// The inputs of an exec.
pub struct Entry<'a> {
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
    pub streams: Option<Streams>,
    /// The pod's null device: processes that are being set up have it open, where a process of the
    /// container might find it.
    pub null: BorrowedFd<'a>,
}

/// Runs in a fork of the supervisor; returns in neither process.
pub fn enter_container(entry: Entry<'_>, reporter: &Reporter) -> ! {
    match help(entry, reporter) {
        Ok(None) => exit_now(0),
        Ok(Some(launch)) => become_program(launch, reporter),
        Err(trouble) => {
            let _ = reporter.failed(&trouble);
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

fn help<'a>(entry: Entry<'a>, reporter: &Reporter) -> Result<Option<Launch<'a>>> {
    let mut keep = vec![
        0,
        1,
        2,
        reporter.as_fd().as_raw_fd(),
        entry.files.folder().as_raw_fd(),
        entry.container.as_raw_fd(),
        entry.null.as_raw_fd(),
    ];
    keep.extend(entry.streams.iter().flatten().map(AsRawFd::as_raw_fd));
    close_all_but(&keep).during("closing descriptors")?;
    die_with_parent().during("following the supervisor")?;
    let program = FileIdentity::of_this_program()?;
    identity::check_ids(entry.security)?;
    identity::set_labels(entry.files, entry.security)?;
    identity::set_oom_score(entry.files, entry.security)?;
    identity::set_limits(&entry.security.limits)?;
    let doors = entry.group.map(|group| groups::exec_doors(group, entry.exec_group)).transpose()?;
    let user = entry.mappings.is_some();
    let kinds = kinds(entry.namespaces, user)?;
    let in_user = kinds & NEW_USER != 0;
    if let Some(streams) = &entry.streams {
        give_streams(streams, entry.security, entry.mappings.filter(|_| in_user))?;
    }
    let (door, mut door_of_second) = match doors {
        Some(doors) => (Some(doors.for_others), doors.for_caller),
        None => (None, None),
    };
    loop {
        let goes_in = door_of_second.take();
        let is_inside = goes_in.is_some();
        let (ours, theirs) = UnixStream::pair().during("making a socket pair")?;
        if let Sibling::Self_ = clone_sibling(0).during("starting a second helper")? {
            drop((ours, door));
            return approach((entry, program), kinds, goes_in, reporter, theirs);
        }
        drop(theirs);
        let mut pid = [0; 4];
        if (&ours).read_exact(&mut pid).is_err() {
            // The second helper has reported the error.
            return Ok(None);
        }
        match u32::from_ne_bytes(pid) {
            NO_ROOM if is_inside => continue,
            pid if !is_inside => admit(door.as_ref(), pid)?,
            _ => {}
        }
        (&ours).write_all(&[1]).during("letting the process go on")?;
        return Ok(None);
    }
}

/// Sent instead of a PID: the cgroup is at its PID limit.
const NO_ROOM: u32 = 0;

/// From the host into the container. Closes everything of the host first: what is open here is open
/// in the new process from its start.
fn approach<'a>(
    (entry, program): (Entry<'a>, FileIdentity),
    kinds: u64,
    door: Option<Door>,
    reporter: &Reporter,
    go: UnixStream,
) -> Result<Option<Launch<'a>>> {
    place_null(entry.null).during("placing a null device")?;
    let mut keep = vec![0, 1, 2, reporter.as_fd().as_raw_fd(), go.as_raw_fd()];
    keep.extend(entry.streams.iter().flatten().map(AsRawFd::as_raw_fd));
    die_with_parent().during("following the supervisor")?;
    enter(entry.container, kinds).map_err(|error| match error.raw_os_error() {
        Some(libc::ESRCH) => Trouble {
            kind: TroubleKind::Gone,
            message: "the container is not running any more".to_owned(),
        },
        _ => Trouble::other(format!("entering the container's namespaces: {error}")),
    })?;
    let is_inside = door.is_some();
    if let Some(door) = door {
        door.admit(0)?;
    }
    close_all_but(&keep).during("closing descriptors")?;
    if kinds & NEW_USER != 0 {
        become_namespace_root()?;
    }
    let process = clone_sibling(0);
    if is_inside && process.as_ref().is_err_and(|error| error.raw_os_error() == Some(libc::EAGAIN))
    {
        (&go).write_all(&NO_ROOM.to_ne_bytes()).during("telling the first helper")?;
        return Ok(None);
    }
    match process.during("starting a process in the container")? {
        Sibling::Self_ => inside((entry, program), reporter, go).map(Some),
        Sibling::Other { pid, pidfd } => {
            let pid = u32::try_from(pid).unwrap_or_default();
            reporter.started(pid, pidfd.as_fd()).during("telling the supervisor")?;
            (&go).write_all(&pid.to_ne_bytes()).during("telling the first helper")?;
            Ok(None)
        }
    }
}

fn inside<'a>(
    (entry, program): (Entry<'a>, FileIdentity),
    reporter: &Reporter,
    mut go: UnixStream,
) -> Result<Launch<'a>> {
    go.read_exact(&mut [0]).during("waiting for the helper")?;
    rustix::process::setsid().during("beginning a session")?;
    let root = Root::here()?;
    let terminal = match entry.process.terminal {
        true => Some(terminal::open(&root, entry.process.terminal_size, entry.security)?),
        false => None,
    };
    enter_folder(&root, entry.process, false)?;
    let descriptors: Vec<BorrowedFd<'_>> =
        terminal.iter().map(|terminal| terminal.master.as_fd()).collect();
    reporter.ready(Vec::new(), &descriptors).during("telling the supervisor")?;
    let has_terminal = terminal.is_some();
    let streams = match (terminal, entry.streams) {
        (Some(terminal), _) => {
            let copy = || terminal.peer.try_clone().during("copying the terminal");
            [copy()?, copy()?, copy()?]
        }
        (None, Some(streams)) => streams,
        (None, None) => return Err(Trouble::bad("the process has no standard streams")),
    };
    Ok(Launch {
        process: entry.process,
        security: entry.security,
        root,
        streams,
        terminal: has_terminal,
        own: program,
    })
}
