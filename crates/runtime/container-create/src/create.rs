//! Creates a container: the helper's part with the host's privileges, and the container's own part.
//!
//! Rule: the helper opens everything that belongs to the host, enters the pod's namespaces, clones
//! the new process, puts it into its cgroup and exits. The new process sets up its mounts and
//! waits; only then does anything of the image run.
//!
//! If the container joins a PID namespace with processes in it, they see the new process at once
//! and, with CAP_SYS_PTRACE, can inspect it. So a builder outside that namespace sets everything up
//! first, and the new process is cloned from it: in the container's root, with nothing of the host
//! open. With a user namespace the kernel itself prevents such inspection.

use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

use cgroup_files::{Cgroup, CgroupHierarchies, CgroupProcsFiles};

use crate::error::{CreateError, During, Result};
use crate::exchange::CreateReporter;
use crate::hooks::{HookRunner, ROOT_IN_BUNDLE};
use crate::mounts::masks::{MaskSource, make_read_only};
use crate::mounts::{
    self, MountContext, PreparedMount, become_root, change_root, mount_root_at, overlay,
    set_propagation,
};
use crate::nodes::DeviceInodes;
use crate::paths::ContainerRoot;
use crate::pod::{PodNamespaces, become_namespace_root, mode};
use crate::process_files::ProcessFiles;
use crate::program::{FileIdentity, ProgramLaunch, StdioFds, become_program, enter_dir};
use crate::spec::{
    ContainerNamespaces, ContainerSpec, NamespaceMode, ProcessSpec, Propagation, SecuritySpec,
};
use crate::sysctl::OwnNamespaces;
use crate::system::{
    MountChange, NEW_CGROUP, NEW_IPC, NEW_MOUNT, NEW_NET, NEW_PID, NEW_USER, NEW_UTS, Sibling,
    change_mount, clone_sibling, close_all_except, die_with_parent, dup_null_to_stdio, enter,
    exit_now, unshare,
};
use crate::{devices, groups, identity, sysctl, terminal, user_namespace};

/// The inputs of a container's creation.
pub struct CreateInputs<'a> {
    pub spec: &'a ContainerSpec,
    pub pod: &'a PodNamespaces,
    /// The id ranges of the pod's user namespace.
    pub mappings: Option<&'a crate::spec::IdMappings>,
    /// The PID namespace of the target container, if one is to be joined.
    pub target_pid: Option<BorrowedFd<'a>>,
    pub process: &'a ProcessFiles,
    pub hierarchy: Option<&'a CgroupHierarchies>,
    /// None with a terminal.
    pub streams: Option<StdioFds>,
    /// The pod's null device: processes that are being set up have it open, where a process of the
    /// container might find it.
    pub null: BorrowedFd<'a>,
}

/// Runs in a fork of the supervisor; returns in neither process.
pub fn create(inputs: CreateInputs<'_>, reporter: &CreateReporter) -> ! {
    match run_helper(inputs, reporter) {
        Ok(HelperRole::Helper) => exit_now(0),
        Ok(HelperRole::Container(container)) => container.build(reporter),
        Err(error) => {
            let _ = reporter.failed(&error);
            exit_now(1)
        }
    }
}

enum HelperRole<'a> {
    Helper,
    Container(Box<Container<'a>>),
}

/// What the new process needs from the helper.
struct Container<'a> {
    spec: &'a ContainerSpec,
    process: &'a ProcessSpec,
    security: &'a SecuritySpec,
    namespaces: ContainerNamespaces,
    root: Option<OwnedFd>,
    mounts: Vec<PreparedMount>,
    devices: Vec<devices::PreparedDevice>,
    cover: MaskSource,
    streams: Option<StdioFds>,
    files: &'a ProcessFiles,
    null: BorrowedFd<'a>,
    program: FileIdentity,
    helper_socket: UnixStream,
    hooks: Option<HookRunner>,
    /// A PID namespace with other processes in it, not entered yet.
    shared_pid_namespace: Option<BorrowedFd<'a>>,
}

fn required<'a, T>(part: &'a Option<T>, name: &str) -> Result<&'a T> {
    part.as_ref().ok_or_else(|| CreateError::invalid_spec(format!("the container has no {name}")))
}

/// Descriptors that the helper still needs; all others are closed.
fn descriptors_to_keep(inputs: &CreateInputs<'_>, reporter: &CreateReporter) -> Vec<RawFd> {
    let mut descriptors =
        vec![0, 1, 2, reporter.as_fd().as_raw_fd(), inputs.process.dir().as_raw_fd()];
    descriptors.push(inputs.null.as_raw_fd());
    descriptors.extend(inputs.pod.raw_fds());
    descriptors.extend(inputs.target_pid.map(|one| one.as_raw_fd()));
    descriptors.extend(inputs.streams.iter().flatten().map(AsRawFd::as_raw_fd));
    descriptors
}

fn run_helper<'a>(inputs: CreateInputs<'a>, reporter: &CreateReporter) -> Result<HelperRole<'a>> {
    close_all_except(&descriptors_to_keep(&inputs, reporter)).during("closing descriptors")?;
    die_with_parent().during("following the supervisor")?;
    rustix::process::umask(rustix::fs::Mode::empty());
    let spec = inputs.spec;
    let process = required(&spec.process, "process")?;
    let security = required(&spec.security, "security")?;
    let root = required(&spec.root, "root")?;
    let namespaces = required(&spec.namespaces, "namespaces")?.clone();
    // Before labels, limits and OOM score of the container are set on this process.
    let hooks = HookRunner::start(spec, inputs.null)?;
    let program = FileIdentity::of_this_program()?;
    identity::check_ids(security)?;
    identity::set_labels(inputs.process, security)?;
    identity::set_oom_score(inputs.process, security)?;
    let user = match mode(namespaces.user)? {
        NamespaceMode::Pod => inputs.pod.user.as_ref().map(AsFd::as_fd),
        _ => None,
    };
    let group = create_cgroup(&inputs)?;
    let cgroup_entries = cgroup_entries(group.as_ref())?;
    let mount_context = MountContext {
        user_namespace: user,
        group: group.as_ref(),
        own_cgroup_namespace: mode(namespaces.cgroup)? == NamespaceMode::Container,
        proc_options: &spec.proc_options,
        label: &spec.mount_label,
    };
    let mut mounts = mounts::prepare(&spec.mounts, &mount_context)?;
    if let Some(streams) = &inputs.streams {
        chown_streams(streams, security, inputs.mappings.filter(|_| user.is_some()))?;
    }
    identity::set_limits(&security.limits)?;
    // From here on the host's mounts may not be reachable.
    let owner = pod_root_ids(inputs.mappings);
    let (devices, cover) = make_nodes(spec, &mut mounts, user.map(|_| owner.unwrap_or_default()))?;
    let root = overlay::prepare_root(root, user, owner, &spec.mount_label)?;
    let (new, shared_pid_namespace) = enter_namespaces(&inputs, &namespaces, user)?;
    let (ours, theirs) = UnixStream::pair().during("making a socket pair")?;
    admit(cgroup_entries.for_caller.as_ref(), 0)?;
    match clone_sibling(new | NEW_MOUNT).during("starting the container's process")? {
        Sibling::Self_ => {
            drop(ours);
            Ok(HelperRole::Container(Box::new(Container {
                spec,
                process,
                security,
                namespaces,
                root: Some(root),
                mounts,
                devices,
                cover,
                streams: inputs.streams,
                files: inputs.process,
                null: inputs.null,
                program,
                helper_socket: theirs,
                hooks,
                shared_pid_namespace,
            })))
        }
        Sibling::Other { pid, pidfd } => {
            drop(theirs);
            let mut pid = u32::try_from(pid).unwrap_or_default();
            if shared_pid_namespace.is_none() {
                reporter.started(pid, pidfd.as_fd()).during("telling the supervisor")?;
            } else {
                let mut bytes = [0; 4];
                if (&ours).read_exact(&mut bytes).is_err() {
                    // The builder has reported the error.
                    return Ok(HelperRole::Helper);
                }
                pid = u32::from_ne_bytes(bytes);
            }
            admit(cgroup_entries.for_others.as_ref(), pid)?;
            (&ours).write_all(&[1]).during("letting the container go on")?;
            Ok(HelperRole::Helper)
        }
    }
}

/// Creates the container's own device nodes, which needs the host's root. `owner` is the pod's root
/// id on the host, set with a user namespace, in which the container cannot create nodes itself.
fn make_nodes(
    spec: &ContainerSpec,
    mounts: &mut [PreparedMount],
    owner: Option<(u32, u32)>,
) -> Result<(Vec<devices::PreparedDevice>, MaskSource)> {
    let nodes = DeviceInodes::open(&spec.mount_label, spec.devices.len().saturating_add(8))?;
    if let Some(owner) = owner {
        mounts.iter_mut().try_for_each(|mount| mount.make_nodes(&nodes, owner))?;
    }
    let devices = devices::prepare(&spec.devices, &nodes, owner.is_some())?;
    let cover = MaskSource::new(&nodes, !spec.masked_paths.is_empty())?;
    nodes.close()?;
    Ok((devices, cover))
}

/// The ids of the pod's root on the host.
fn pod_root_ids(mappings: Option<&crate::spec::IdMappings>) -> Option<(u32, u32)> {
    let of = |ranges: &[crate::spec::IdRange]| user_namespace::outside(ranges, 0);
    mappings.and_then(|mappings| of(&mappings.users).zip(of(&mappings.groups)))
}

/// At most one of the two is set; neither without a cgroup.
#[derive(Default)]
struct CgroupEntries {
    /// Moves this process, so that its children start in the cgroup; also with a systemd scope.
    for_caller: Option<CgroupProcsFiles>,
    for_others: Option<CgroupProcsFiles>,
}

fn cgroup_entries(group: Option<&Cgroup>) -> Result<CgroupEntries> {
    let Some(group) = group else { return Ok(CgroupEntries::default()) };
    let for_caller = group.task_files_for_caller(None)?;
    let for_others = if for_caller.is_none() { Some(group.procs_files()?) } else { None };
    Ok(CgroupEntries { for_caller, for_others })
}

pub(crate) fn admit(procs_files: Option<&CgroupProcsFiles>, pid: u32) -> Result<()> {
    procs_files.map_or(Ok(()), |procs_files| procs_files.attach(pid)).map_err(CreateError::from)
}

fn create_cgroup(inputs: &CreateInputs<'_>) -> Result<Option<Cgroup>> {
    match (&inputs.spec.cgroup, inputs.hierarchy) {
        (None, _) => Ok(None),
        (Some(_), None) => Err(CreateError::invalid_spec("this machine has no control groups")),
        (Some(spec), Some(hierarchy)) => groups::make(hierarchy, spec).map(Some),
    }
}

/// Changes the owner of pipes to the container's user, so that its program may reopen
/// `/dev/stdout`.
pub(crate) fn chown_streams(
    streams: &StdioFds,
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
        CreateError::invalid_spec(format!(
            "the user {uid}:{gid} is not in the pod's user namespace"
        ))
    })?;
    for stream in streams {
        let stat = rustix::fs::fstat(stream).during("looking at a standard stream")?;
        // Never changes the owner of devices or regular files.
        if rustix::fs::FileType::from_raw_mode(stat.st_mode) == rustix::fs::FileType::Fifo {
            let (uid, gid) = (rustix::fs::Uid::from_raw(uid), rustix::fs::Gid::from_raw(gid));
            let _ = rustix::fs::fchown(stream, Some(uid), Some(gid));
        }
    }
    Ok(())
}

/// Enters the existing namespaces; returns the kinds to create, and the PID namespace to enter
/// later.
fn enter_namespaces<'a>(
    inputs: &CreateInputs<'a>,
    wanted: &ContainerNamespaces,
    user: Option<BorrowedFd<'_>>,
) -> Result<(u64, Option<BorrowedFd<'a>>)> {
    if let Some(user) = user {
        enter(user, NEW_USER).during("entering the user namespace")?;
        become_namespace_root()?;
    }
    let pod = inputs.pod;
    let (mut new, mut shared_pid_namespace) = (0, None);
    for (choice, namespace, kind, name) in [
        (wanted.network, &pod.network, NEW_NET, "network"),
        (wanted.ipc, &pod.ipc, NEW_IPC, "IPC"),
        (wanted.uts, &pod.uts, NEW_UTS, "UTS"),
        (wanted.pid, &pod.pid, NEW_PID, "PID"),
    ] {
        match (mode(choice)?, namespace) {
            (NamespaceMode::Pod, Some(namespace)) if kind == NEW_PID && user.is_none() => {
                shared_pid_namespace = Some(namespace.as_fd());
            }
            (NamespaceMode::Pod, Some(namespace)) => {
                enter(namespace.as_fd(), kind)
                    .during(format_args!("entering the pod's {name} namespace"))?;
            }
            (NamespaceMode::Container, _) if kind == NEW_PID || kind == NEW_IPC => new |= kind,
            (NamespaceMode::Node, _) => {}
            (NamespaceMode::Target, _) if kind == NEW_PID => {
                let target = inputs.target_pid.ok_or_else(|| {
                    CreateError::invalid_spec("the target's PID namespace is not there")
                })?;
                if user.is_none() {
                    shared_pid_namespace = Some(target);
                } else {
                    enter(target, NEW_PID).during("entering the target's PID namespace")?;
                }
            }
            (NamespaceMode::Pod, None) => {
                return Err(CreateError::invalid_spec(format!(
                    "the pod has no {name} namespace of its own"
                )));
            }
            (other, _) => {
                return Err(CreateError::invalid_spec(format!(
                    "a container's {name} namespace cannot be {other:?}"
                )));
            }
        }
    }
    Ok((new, shared_pid_namespace))
}

/// The exit code of a container whose program never ran; containerd reports the same. If the
/// supervisor died before it sent the start, this code is all that is known; a code that programs
/// use for their own errors would be taken for one of these.
const NEVER_STARTED_EXIT: i32 = 128;

impl<'a> Container<'a> {
    fn build(self, reporter: &CreateReporter) -> ! {
        match self.build_or_fail(reporter) {
            Ok(Some(launch)) => {
                if !reporter.wait() {
                    exit_now(NEVER_STARTED_EXIT);
                }
                become_program(launch, reporter)
            }
            Ok(None) => exit_now(0),
            Err(error) => {
                let _ = reporter.failed(&error);
                exit_now(1)
            }
        }
    }

    /// None in the builder when it has cloned the process that goes on.
    fn build_or_fail(mut self, reporter: &CreateReporter) -> Result<Option<ProgramLaunch<'a>>> {
        let own = match self.shared_pid_namespace {
            None => {
                self.start_session()?;
                self.enter_root(Vec::new())?
            }
            Some(namespace) => {
                die_with_parent().during("following the supervisor")?;
                dup_null_to_stdio(self.null).during("placing a null device")?;
                let own = self.take_per_process_mounts();
                let mut own = self.enter_root(own)?;
                if !self.fork_into_pid_namespace(namespace, &own, reporter)? {
                    return Ok(None);
                }
                self.start_session()?;
                own.iter_mut().try_for_each(PreparedMount::mount_private)?;
                own
            }
        };
        let root = ContainerRoot::here()?;
        own.iter().try_for_each(|mount| mount.attach(&root))?;
        let terminal = self.prepare_process(&root)?;
        own.iter().try_for_each(PreparedMount::finish)?;
        self.close_root(&root)?;
        enter_dir(&root, self.process, true)?;
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
            (None, None) => {
                return Err(CreateError::invalid_spec("the container has no standard streams"));
            }
        };
        Ok(Some(ProgramLaunch {
            process: self.process,
            security: self.security,
            root,
            streams,
            terminal: has_terminal,
            own: self.program,
        }))
    }

    /// Waits for its cgroup and becomes a session leader.
    fn start_session(&mut self) -> Result<()> {
        self.helper_socket.read_exact(&mut [0]).during("waiting for the helper")?;
        rustix::process::setsid().during("beginning a session")?;
        if mode(self.namespaces.cgroup)? == NamespaceMode::Container && self.spec.cgroup.is_some() {
            unshare(NEW_CGROUP).during("making the cgroup namespace")?;
        }
        Ok(())
    }

    /// Removes the mounts that only the final process can create, with all beneath them: those that
    /// depend on its PID and cgroup namespaces.
    fn take_per_process_mounts(&mut self) -> Vec<PreparedMount> {
        let has_cgroup = self.spec.cgroup.is_some();
        let mount_points: Vec<String> = self
            .mounts
            .iter()
            .filter(|mount| mount.is_per_process(has_cgroup))
            .map(|mount| mount.target_path().to_owned())
            .collect();
        let (own, others) = std::mem::take(&mut self.mounts).into_iter().partition(|mount| {
            let path = std::path::Path::new(mount.target_path());
            mount_points.iter().any(|mount_point| path.starts_with(mount_point))
        });
        self.mounts = others;
        own
    }

    /// From the host's root into the container's, with all mounts except those of the process
    /// itself.
    fn enter_root(&mut self, own: Vec<PreparedMount>) -> Result<Vec<PreparedMount>> {
        let sysctls = OwnNamespaces {
            network: false,
            ipc: mode(self.namespaces.ipc)? == NamespaceMode::Container,
            uts: false,
        };
        sysctl::apply(self.files, &self.spec.sysctls, sysctls)?;
        self.mounts.iter_mut().try_for_each(PreparedMount::mount_private)?;
        self.cover.mount_private(&self.spec.mount_label)?;
        let root = self.root.take().ok_or_else(|| CreateError::other("the root is gone"))?;
        match self.hooks.take() {
            None => {
                become_root(&root)?;
                self.attach_mounts(&ContainerRoot::here()?)?;
            }
            Some(hooks) => {
                mount_root_at(&root, &format!("{}/{ROOT_IN_BUNDLE}", self.spec.bundle))?;
                let copy = root.try_clone().during("copying a descriptor")?;
                self.attach_mounts(&ContainerRoot::new(copy))?;
                hooks.run()?;
                change_root(&root)?;
            }
        }
        let root = ContainerRoot::here()?;
        // Create their mount points before a filesystem becomes read-only.
        own.iter().try_for_each(|mount| mount.create_mount_point(&root))?;
        Ok(own)
    }

    /// Attaches the prepared mounts and devices.
    fn attach_mounts(&self, root: &ContainerRoot) -> Result<()> {
        self.mounts.iter().try_for_each(|mount| mount.attach(root))?;
        self.devices.iter().try_for_each(|device| device.attach(root))
    }

    /// Closes everything of the host and clones into the PID namespace. True in the new process,
    /// false in the builder.
    fn fork_into_pid_namespace(
        &mut self,
        namespace: BorrowedFd<'_>,
        own: &[PreparedMount],
        reporter: &CreateReporter,
    ) -> Result<bool> {
        self.mounts.iter().try_for_each(PreparedMount::finish)?;
        self.mounts.clear();
        self.devices.clear();
        enter(namespace, NEW_PID).during("entering the PID namespace of others")?;
        let mut descriptors =
            vec![0, 1, 2, reporter.as_fd().as_raw_fd(), self.helper_socket.as_raw_fd()];
        descriptors.extend(self.streams.iter().flatten().map(AsRawFd::as_raw_fd));
        descriptors.extend(self.cover.raw_fds());
        descriptors.extend(own.iter().flat_map(PreparedMount::raw_fds));
        close_all_except(&descriptors).during("closing descriptors")?;
        match clone_sibling(0).during("starting the container's process")? {
            Sibling::Self_ => Ok(true),
            Sibling::Other { pid, pidfd } => {
                let pid = u32::try_from(pid).unwrap_or_default();
                reporter.started(pid, pidfd.as_fd()).during("telling the supervisor")?;
                self.helper_socket.write_all(&pid.to_ne_bytes()).during("telling the helper")?;
                Ok(false)
            }
        }
    }

    /// Sets up the terminal, the working directory and masks.
    fn prepare_process(&self, root: &ContainerRoot) -> Result<Option<terminal::ContainerTerminal>> {
        let terminal = if self.process.terminal {
            let terminal = terminal::open(root, self.process.terminal_size, self.security)?;
            terminal::bind_console(root, &terminal)?;
            Some(terminal)
        } else {
            None
        };
        // The working directory may have to be created before the root becomes read-only.
        enter_dir(root, self.process, true)?;
        for path in &self.spec.read_only_paths {
            make_read_only(root, path)?;
        }
        for path in &self.spec.masked_paths {
            self.cover.mask(root, path)?;
        }
        self.mounts.iter().try_for_each(PreparedMount::finish)?;
        Ok(terminal)
    }

    fn close_root(&self, root: &ContainerRoot) -> Result<()> {
        let spec = self.spec.root.as_ref();
        if spec.is_some_and(|spec| spec.read_only) {
            let change = MountChange { set: libc::MOUNT_ATTR_RDONLY, ..MountChange::default() };
            change_mount(root.dir(), change).during("making the root read-only")?;
        }
        let propagation = spec.map_or(0, |spec| spec.propagation);
        let propagation = Propagation::try_from(propagation)
            .map_err(|_| CreateError::invalid_spec("the root's propagation is unknown"))?;
        set_propagation(root.dir(), propagation, false).during("setting the root's propagation")
    }
}
