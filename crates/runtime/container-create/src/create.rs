//! Making a container: the helper's half with the machine's rights, and the container's own half.
//!
//! Rule: the helper opens everything that belongs to the machine, enters the pod's namespaces, makes
//! the new process, puts it into its group and is gone. The new process builds its own view of the
//! world and waits; only then does anything of the image run.

use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

use cgroup_files::{Cgroup, Door, Hierarchy};

use crate::error::{During, Result, Trouble};
use crate::exchange::Reporter;
use crate::mounts::masks::{Cover, make_read_only};
use crate::mounts::{self, Prepared, Surroundings, become_root, overlay, set_propagation};
use crate::paths::Root;
use crate::pod::{PodNamespaces, become_namespace_root, mode};
use crate::process_files::ProcessFiles;
use crate::program::{Launch, Streams, become_program, enter_folder};
use crate::spec::{
    ContainerNamespaces, ContainerSpec, NamespaceMode, ProcessSpec, Propagation, SecuritySpec,
};
use crate::sysctl::Own;
use crate::system::{
    MountChange, NEW_CGROUP, NEW_IPC, NEW_MOUNT, NEW_NET, NEW_PID, NEW_USER, NEW_UTS, Sibling,
    change_mount, clone_sibling, close_all_but, die_with_parent, enter, exit_now, unshare,
};
use crate::{devices, groups, identity, sysctl, terminal, user_namespace};

/// What a container is made from.
pub struct Creation<'a> {
    pub spec: &'a ContainerSpec,
    pub pod: &'a PodNamespaces,
    /// The ranges of the pod's user namespace.
    pub mappings: Option<&'a crate::spec::IdMappings>,
    /// The PID namespace of another container, where that is wanted.
    pub target_pid: Option<BorrowedFd<'a>>,
    pub process: &'a ProcessFiles,
    pub hierarchy: Option<&'a Hierarchy>,
    /// None with a terminal.
    pub streams: Option<Streams>,
}

/// Runs in a fork of the supervisor; does not return in either process.
pub fn create(creation: Creation<'_>, reporter: &Reporter) -> ! {
    match help(creation, reporter) {
        Ok(Role::Helper) => exit_now(0),
        Ok(Role::Container(container)) => container.build(reporter),
        Err(trouble) => {
            let _ = reporter.failed(&trouble);
            exit_now(1)
        }
    }
}

enum Role<'a> {
    Helper,
    Container(Box<Container<'a>>),
}

/// What the new process needs from the time before.
struct Container<'a> {
    spec: &'a ContainerSpec,
    process: &'a ProcessSpec,
    security: &'a SecuritySpec,
    namespaces: ContainerNamespaces,
    root: OwnedFd,
    mounts: Vec<Prepared>,
    devices: Vec<devices::PreparedDevice>,
    cover: Cover,
    streams: Option<Streams>,
    files: &'a ProcessFiles,
    go: UnixStream,
}

fn required<'a, T>(part: &'a Option<T>, name: &str) -> Result<&'a T> {
    part.as_ref().ok_or_else(|| Trouble::bad(format!("the container has no {name}")))
}

/// Descriptors that the helper still needs; the supervisor's others are closed.
fn kept(creation: &Creation<'_>, reporter: &Reporter) -> Vec<RawFd> {
    let mut keep =
        vec![0, 1, 2, reporter.as_fd().as_raw_fd(), creation.process.folder().as_raw_fd()];
    keep.extend(creation.pod.numbers());
    keep.extend(creation.target_pid.map(|one| one.as_raw_fd()));
    keep.extend(creation.streams.iter().flatten().map(AsRawFd::as_raw_fd));
    keep
}

fn help<'a>(creation: Creation<'a>, reporter: &Reporter) -> Result<Role<'a>> {
    close_all_but(&kept(&creation, reporter)).during("closing descriptors")?;
    die_with_parent().during("following the supervisor")?;
    rustix::process::umask(rustix::fs::Mode::empty());
    let spec = creation.spec;
    let process = required(&spec.process, "process")?;
    let security = required(&spec.security, "security")?;
    let root = required(&spec.root, "root")?;
    let namespaces = required(&spec.namespaces, "namespaces")?.clone();
    identity::set_labels(creation.process, security)?;
    identity::set_oom_score(creation.process, security)?;
    let user = match mode(namespaces.user)? {
        NamespaceMode::Pod => creation.pod.user.as_ref().map(AsFd::as_fd),
        _ => None,
    };
    let group = make_group(&creation)?;
    let door = group.as_ref().map(Cgroup::door).transpose()?;
    let around = Surroundings {
        user_namespace: user,
        group: group.as_ref(),
        own_cgroup_namespace: mode(namespaces.cgroup)? == NamespaceMode::Container,
        proc_options: &spec.proc_options,
    };
    let mounts = mounts::prepare(&spec.mounts, &around)?;
    let devices = devices::prepare(&spec.devices, user.is_some())?;
    let cover = Cover::open()?;
    if let Some(streams) = &creation.streams {
        give_streams(streams, security, creation.mappings.filter(|_| user.is_some()))?;
    }
    identity::set_limits(&security.limits)?;
    // From here on the machine's mounts may be out of sight.
    let owner = creation.mappings.and_then(|mappings| {
        let of = |ranges: &[crate::spec::IdRange]| user_namespace::outside(ranges, 0);
        of(&mappings.users).zip(of(&mappings.groups))
    });
    let root = overlay::prepare_root(root, user, owner)?;
    let new = enter_namespaces(&creation, &namespaces, user)?;
    let (ours, theirs) = UnixStream::pair().during("making a socket pair")?;
    match clone_sibling(new | NEW_MOUNT).during("starting the container's process")? {
        Sibling::Self_ => {
            drop(ours);
            Ok(Role::Container(Box::new(Container {
                spec,
                process,
                security,
                namespaces,
                root,
                mounts,
                devices,
                cover,
                streams: creation.streams,
                files: creation.process,
                go: theirs,
            })))
        }
        Sibling::Other { pid, pidfd } => {
            drop(theirs);
            let pid = u32::try_from(pid).unwrap_or_default();
            reporter.started(pid, pidfd.as_fd()).during("telling the supervisor")?;
            admit(door.as_ref(), pid)?;
            (&ours).write_all(&[1]).during("letting the container go on")?;
            Ok(Role::Helper)
        }
    }
}

pub(crate) fn admit(door: Option<&Door>, pid: u32) -> Result<()> {
    door.map_or(Ok(()), |door| door.admit(pid)).map_err(Trouble::from)
}

fn make_group(creation: &Creation<'_>) -> Result<Option<Cgroup>> {
    match (&creation.spec.cgroup, creation.hierarchy) {
        (None, _) => Ok(None),
        (Some(_), None) => Err(Trouble::bad("this machine has no control groups")),
        (Some(spec), Some(hierarchy)) => groups::make(hierarchy, spec).map(Some),
    }
}

/// So that a program may open `/dev/stdout` anew, whoever it runs as.
pub(crate) fn give_streams(
    streams: &Streams,
    security: &SecuritySpec,
    mappings: Option<&crate::spec::IdMappings>,
) -> Result<()> {
    let ids = match mappings {
        None => Some((security.uid, security.gid)),
        Some(mappings) => user_namespace::outside(&mappings.users, security.uid)
            .zip(user_namespace::outside(&mappings.groups, security.gid)),
    };
    let (uid, gid) = ids.ok_or_else(|| {
        let (uid, gid) = (security.uid, security.gid);
        Trouble::bad(format!("the user {uid}:{gid} is not in the pod's user namespace"))
    })?;
    for stream in streams {
        let stat = rustix::fs::fstat(stream).during("looking at a standard stream")?;
        // Devices and files of others are not ours to give away.
        if rustix::fs::FileType::from_raw_mode(stat.st_mode) == rustix::fs::FileType::Fifo {
            let (uid, gid) = (rustix::fs::Uid::from_raw(uid), rustix::fs::Gid::from_raw(gid));
            let _ = rustix::fs::fchown(stream, Some(uid), Some(gid));
        }
    }
    Ok(())
}

/// Enters what exists; says what is to be made new.
fn enter_namespaces(
    creation: &Creation<'_>,
    wanted: &ContainerNamespaces,
    user: Option<BorrowedFd<'_>>,
) -> Result<u64> {
    if let Some(user) = user {
        enter(user, NEW_USER).during("entering the user namespace")?;
        become_namespace_root()?;
    }
    let pod = creation.pod;
    let mut new = 0;
    for (choice, namespace, kind, name) in [
        (wanted.network, &pod.network, NEW_NET, "network"),
        (wanted.ipc, &pod.ipc, NEW_IPC, "IPC"),
        (wanted.uts, &pod.uts, NEW_UTS, "UTS"),
        (wanted.pid, &pod.pid, NEW_PID, "PID"),
    ] {
        match (mode(choice)?, namespace) {
            (NamespaceMode::Pod, Some(namespace)) => {
                enter(namespace.as_fd(), kind)
                    .during(format_args!("entering the pod's {name} namespace"))?;
            }
            (NamespaceMode::Container, _) if kind == NEW_PID || kind == NEW_IPC => new |= kind,
            (NamespaceMode::Node, _) => {}
            (NamespaceMode::Target, _) if kind == NEW_PID => {
                let target = creation
                    .target_pid
                    .ok_or_else(|| Trouble::bad("the target's PID namespace is not there"))?;
                enter(target, NEW_PID).during("entering the target's PID namespace")?;
            }
            (NamespaceMode::Pod, None) => {
                return Err(Trouble::bad(format!("the pod has no {name} namespace of its own")));
            }
            (other, _) => {
                return Err(Trouble::bad(format!(
                    "a container's {name} namespace cannot be {other:?}"
                )));
            }
        }
    }
    Ok(new)
}

impl<'a> Container<'a> {
    fn build(self, reporter: &Reporter) -> ! {
        match self.build_or_fail(reporter) {
            Ok(launch) => {
                if !reporter.wait() {
                    exit_now(1);
                }
                become_program(launch, reporter)
            }
            Err(trouble) => {
                let _ = reporter.failed(&trouble);
                exit_now(1)
            }
        }
    }

    fn build_or_fail(mut self, reporter: &Reporter) -> Result<Launch<'a>> {
        self.go.read_exact(&mut [0]).during("waiting for the helper")?;
        rustix::process::setsid().during("beginning a session")?;
        if mode(self.namespaces.cgroup)? == NamespaceMode::Container && self.spec.cgroup.is_some() {
            unshare(NEW_CGROUP).during("making the cgroup namespace")?;
        }
        let sysctls = Own {
            network: false,
            ipc: mode(self.namespaces.ipc)? == NamespaceMode::Container,
            uts: false,
        };
        sysctl::apply(self.files, &self.spec.sysctls, sysctls)?;
        for mount in &mut self.mounts {
            mount.make_own()?;
        }
        self.cover.make_own(!self.spec.masked_paths.is_empty())?;
        become_root(&self.root)?;
        let root = Root::here()?;
        let terminal = self.furnish(&root)?;
        self.close_root(&root)?;
        enter_folder(&root, self.process, true)?;
        let descriptors: Vec<BorrowedFd<'_>> =
            terminal.iter().map(|terminal| terminal.master.as_fd()).collect();
        reporter.ready(Vec::new(), &descriptors).during("telling the supervisor")?;
        let has_terminal = terminal.is_some();
        let streams = match (terminal, self.streams) {
            (Some(terminal), _) => {
                drop(terminal.master);
                let copy = || terminal.peer.try_clone().during("copying the terminal");
                [copy()?, copy()?, copy()?]
            }
            (None, Some(streams)) => streams,
            (None, None) => return Err(Trouble::bad("the container has no standard streams")),
        };
        Ok(Launch {
            process: self.process,
            security: self.security,
            root,
            streams,
            terminal: has_terminal,
        })
    }

    /// Mounts, devices, terminal, masks.
    fn furnish(&self, root: &Root) -> Result<Option<terminal::Terminal>> {
        for mount in &self.mounts {
            mount.attach(root)?;
        }
        for device in &self.devices {
            device.attach(root)?;
        }
        let terminal = if self.process.terminal {
            let terminal = terminal::open(root, self.process.terminal_size, self.security)?;
            terminal::bind_console(root, &terminal)?;
            Some(terminal)
        } else {
            None
        };
        // The working directory may have to be made on a root that is about to be read-only.
        enter_folder(root, self.process, true)?;
        for path in &self.spec.read_only_paths {
            make_read_only(root, path)?;
        }
        for path in &self.spec.masked_paths {
            self.cover.mask(root, path)?;
        }
        for mount in &self.mounts {
            mount.finish()?;
        }
        Ok(terminal)
    }

    fn close_root(&self, root: &Root) -> Result<()> {
        let spec = self.spec.root.as_ref();
        if spec.is_some_and(|spec| spec.read_only) {
            let change = MountChange { set: libc::MOUNT_ATTR_RDONLY, ..MountChange::default() };
            change_mount(root.folder(), change).during("making the root read-only")?;
        }
        let propagation = spec.map_or(0, |spec| spec.propagation);
        let propagation = Propagation::try_from(propagation)
            .map_err(|_| Trouble::bad("the root's propagation is unknown"))?;
        set_propagation(root.folder(), propagation, false).during("setting the root's propagation")
    }
}
