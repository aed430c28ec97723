//! A pod's namespaces, created by a short-lived process and held by descriptors.
//!
//! Rule: no process has to stay for them, except the init of a shared PID namespace: the kernel
//! ends a PID namespace with its first process, and a container's own first process may end before
//! the others. That init has an empty root, no capabilities and nothing open. The network namespace
//! can be pinned to a path for other programs; all others end with the supervisor that holds them.

use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

use rustix::fs::{Mode, OFlags};
use rustix::mount::MountAttrFlags;

use crate::error::{CreateError, During, Result};
use crate::exchange::{CreateReporter, send_descriptor, take};
use crate::mounts::{become_root, detached_copy, detached_filesystem, move_onto, unmount_pin};
use crate::process_files::ProcessFiles;
use crate::scopes::SystemdScope;
use crate::spec::{CapabilitySpec, LimitsSpec, NamespaceMode, PodSpec, SecuritySpec};
use crate::sysctl::{self, OwnNamespaces};
use crate::system::{
    ForkSide, NEW_IPC, NEW_MOUNT, NEW_NET, NEW_PID, NEW_USER, NEW_UTS, Sibling, StringList,
    clone_sibling, close_all_except, die_with_parent, dup_to, enter, execute_descriptor, exit_now,
    fork, loopback_up, outlive_parent, reset_signals, unshare,
};
use crate::user_namespace;

/// The program name (`argv[0]`) that selects a pod's init.
pub const INIT_NAME: &str = "keelson-init";
/// The same id as the pause program of other runtimes.
const INIT_USER: u32 = 65535;

/// The namespaces that a supervisor holds for its pod; none stands for the host's.
#[derive(Debug, Default)]
pub struct PodNamespaces {
    pub user: Option<OwnedFd>,
    pub network: Option<OwnedFd>,
    pub ipc: Option<OwnedFd>,
    pub uts: Option<OwnedFd>,
    pub pid: Option<OwnedFd>,
}

impl PodNamespaces {
    /// From a report: names and their descriptors.
    pub fn from_named(names: &[String], descriptors: Vec<OwnedFd>) -> Self {
        let mut all = Self::default();
        for (name, descriptor) in names.iter().zip(descriptors) {
            match name.as_str() {
                "user" => all.user = Some(descriptor),
                "net" => all.network = Some(descriptor),
                "ipc" => all.ipc = Some(descriptor),
                "uts" => all.uts = Some(descriptor),
                "pid" => all.pid = Some(descriptor),
                _ => {}
            }
        }
        all
    }

    pub fn named(&self) -> Vec<(&'static str, BorrowedFd<'_>)> {
        [
            ("user", &self.user),
            ("net", &self.network),
            ("ipc", &self.ipc),
            ("uts", &self.uts),
            ("pid", &self.pid),
        ]
        .into_iter()
        .filter_map(|(name, descriptor)| Some((name, descriptor.as_ref()?.as_fd())))
        .collect()
    }

    pub(crate) fn raw_fds(&self) -> Vec<RawFd> {
        self.named().into_iter().map(|(_, descriptor)| descriptor.as_raw_fd()).collect()
    }
}

pub(crate) fn mode(number: i32) -> Result<NamespaceMode> {
    NamespaceMode::try_from(number).map_err(|_| {
        CreateError::invalid_spec(format!("{number} is no namespace mode; expected 0 to 3"))
    })
}

/// Runs in a fork of the supervisor; does not return. `null` is the pod's null device.
pub fn create_pod(
    spec: &PodSpec,
    process: &ProcessFiles,
    null: BorrowedFd<'_>,
    reporter: &CreateReporter,
) -> ! {
    let (report, dir) = (reporter.as_fd().as_raw_fd(), process.dir().as_raw_fd());
    let keep = [0, 1, 2, report, dir, null.as_raw_fd()];
    let outcome = close_all_except(&keep)
        .during("closing descriptors")
        .and_then(|()| make(spec, process, null, reporter));
    match outcome {
        Ok(()) => exit_now(0),
        Err(error) => {
            unmount_pin(&spec.network_pin);
            let _ = reporter.failed(&error);
            exit_now(1)
        }
    }
}

fn own(spec: &PodSpec) -> Result<OwnNamespaces> {
    let pod = |number| mode(number).map(|mode| mode == NamespaceMode::Pod);
    Ok(OwnNamespaces { network: pod(spec.network)?, ipc: pod(spec.ipc)?, uts: pod(spec.uts)? })
}

fn make(
    spec: &PodSpec,
    process: &ProcessFiles,
    null: BorrowedFd<'_>,
    reporter: &CreateReporter,
) -> Result<()> {
    die_with_parent().during("following the supervisor")?;
    let own = own(spec)?;
    sysctl::check(&spec.sysctls, own)?;
    if let Some(mappings) = &spec.user_namespace {
        user_namespace::check(mappings)?;
    }
    let mut pod_namespaces = spawn_namespace_holder(spec, own, process)?;
    if !spec.network_path.is_empty() {
        let path = &spec.network_path;
        let network =
            rustix::fs::open(path.as_str(), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
                .during(format_args!("opening the network namespace {path}"))?;
        pod_namespaces.network = Some(network);
    }
    if let (Some(network), false) = (&pod_namespaces.network, spec.network_pin.is_empty()) {
        pin(network, &spec.network_pin)?;
    }
    for (namespace, kind) in [
        (&pod_namespaces.network, NEW_NET),
        (&pod_namespaces.ipc, NEW_IPC),
        (&pod_namespaces.uts, NEW_UTS),
    ] {
        if let Some(namespace) = namespace {
            enter(namespace.as_fd(), kind).during("entering the pod's namespaces")?;
        }
    }
    sysctl::apply(process, &spec.sysctls, own)?;
    if mode(spec.pid)? == NamespaceMode::Pod {
        pod_namespaces.pid = Some(start_init(spec, &pod_namespaces, (process, null), reporter)?);
    }
    let (names, descriptors): (Vec<_>, Vec<_>) =
        pod_namespaces.named().into_iter().map(|(name, one)| (name.to_owned(), one)).unzip();
    reporter.ready(names, &descriptors).during("telling the supervisor")
}

/// Forks a process that unshares, waits until its namespaces are held, and exits.
fn spawn_namespace_holder(
    spec: &PodSpec,
    own: OwnNamespaces,
    process: &ProcessFiles,
) -> Result<PodNamespaces> {
    let (mut ours, theirs) = UnixStream::pair().during("making a socket pair")?;
    let pid = match fork().during("starting a process for namespaces")? {
        ForkSide::Child => {
            drop(ours);
            hold_namespaces(spec, own, theirs)
        }
        ForkSide::Parent { pid } => u32::try_from(pid).unwrap_or_default(),
    };
    drop(theirs);
    let outcome = (|| {
        if let Some(mappings) = &spec.user_namespace {
            wait_for(&mut ours)?;
            user_namespace::write_maps(process, pid, mappings)?;
            ours.write_all(&[1]).during("telling the process for namespaces")?;
        }
        wait_for(&mut ours)?;
        let take =
            |wanted: bool, name: &str| wanted.then(|| process.namespace(pid, name)).transpose();
        Ok(PodNamespaces {
            user: take(spec.user_namespace.is_some(), "user")?,
            network: take(own.network && spec.network_path.is_empty(), "net")?,
            ipc: take(own.ipc, "ipc")?,
            uts: take(own.uts, "uts")?,
            pid: None,
        })
    })();
    drop(ours);
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    let _ = rustix::process::waitpid(pid, rustix::process::WaitOptions::empty());
    outcome
}

/// A zero byte is success; anything else is an error text.
fn wait_for(socket: &mut UnixStream) -> Result<()> {
    let mut buffer = [0; 512];
    match socket.read(&mut buffer).during("waiting for the namespaces")? {
        1 if buffer[0] == 0 => Ok(()),
        0 => Err(CreateError::other("the process for namespaces ended early")),
        count => Err(CreateError::other(String::from_utf8_lossy(&buffer[..count]).into_owned())),
    }
}

fn hold_namespaces(spec: &PodSpec, own: OwnNamespaces, mut socket: UnixStream) -> ! {
    let outcome: Result<()> = (|| {
        die_with_parent().during("following the helper")?;
        if spec.user_namespace.is_some() {
            unshare(NEW_USER).during("making the user namespace")?;
            socket.write_all(&[0]).during("telling the helper")?;
            socket.read_exact(&mut [0]).during("waiting for the ranges")?;
            become_namespace_root()?;
        }
        let wanted = [
            (own.network && spec.network_path.is_empty(), NEW_NET),
            (own.ipc, NEW_IPC),
            (own.uts, NEW_UTS),
        ];
        let kinds = wanted.iter().filter(|(wanted, _)| *wanted).fold(0, |all, (_, one)| all | one);
        unshare(kinds).during("making the pod's namespaces")?;
        if own.uts && !spec.hostname.is_empty() {
            rustix::system::sethostname(spec.hostname.as_bytes())
                .during(format_args!("setting the host name {:?}", spec.hostname))?;
        }
        if own.network && spec.network_path.is_empty() {
            loopback_up().during("sending the loopback link up")?;
        }
        Ok(())
    })();
    let _ = match &outcome {
        Ok(()) => socket.write_all(&[0]),
        Err(error) => {
            let text: String = error.message.chars().take(500).collect();
            socket.write_all(text.as_bytes())
        }
    };
    let _ = socket.read(&mut [0]);
    exit_now(0)
}

/// After entering a user namespace: becomes its root, without groups of the host.
pub(crate) fn become_namespace_root() -> Result<()> {
    use rustix::process::{Gid, Uid};
    let step = "becoming root of the user namespace";
    rustix::thread::set_thread_groups(&[]).during(step)?;
    rustix::thread::set_thread_res_gid(Gid::ROOT, Gid::ROOT, Gid::ROOT).during(step)?;
    rustix::thread::set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT).during(step)
}

/// Binds a namespace to a path, by which other programs find it.
fn pin(namespace: &OwnedFd, path: &str) -> Result<()> {
    let step = format!("pinning the network namespace to {path}");
    let flags = OFlags::CREATE | OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = rustix::fs::open(path, flags, Mode::from_raw_mode(0o444)).during(&step)?;
    let tree = detached_copy(namespace, false).during(&step)?;
    move_onto(&tree, &file).during(&step)
}

/// Unmounts and removes the pin.
pub fn unpin(path: &str) {
    if !path.is_empty() {
        unmount_pin(path);
        let _ = std::fs::remove_file(path);
    }
}

/// Starts the init of the shared PID namespace as a child of the supervisor.
fn start_init(
    spec: &PodSpec,
    pod_namespaces: &PodNamespaces,
    (process, null): (&ProcessFiles, BorrowedFd<'_>),
    reporter: &CreateReporter,
) -> Result<OwnedFd> {
    let own = rustix::process::getpid().as_raw_nonzero();
    if let Some(score) = spec.oom_score_adjustment {
        // Lowering the score may not be permitted, as for containers.
        let _ = process.write(&format!("{own}/oom_score_adj"), &score.to_string());
    }
    let program = rustix::fs::open("/proc/self/exe", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
        .during("opening this program")?;
    let procs_files = match spec.init_cgroup.as_str() {
        "" => None,
        path => {
            let hierarchy = cgroup_files::CgroupHierarchies::detect()?;
            if !spec.init_unit.is_empty() {
                let scope = SystemdScope {
                    unit: &spec.init_unit,
                    slice: &spec.init_slice,
                    description: "the init of a pod",
                };
                scope.enter_new(&LimitsSpec::default(), hierarchy.version())?;
            }
            let group = hierarchy.group(path)?;
            group.create()?;
            Some(group.procs_files()?)
        }
    };
    if let Some(user) = &pod_namespaces.user {
        enter(user.as_fd(), NEW_USER).during("entering the user namespace")?;
        become_namespace_root()?;
    }
    let (ours, theirs) = UnixStream::pair().during("making a socket pair")?;
    match clone_sibling(NEW_PID | NEW_MOUNT).during("starting the pod's init")? {
        Sibling::Self_ => {
            drop(ours);
            let Err(error) = become_init(&program, null, process, theirs);
            let _ = reporter.failed(&error);
            exit_now(1)
        }
        Sibling::Other { pid, pidfd } => {
            drop(theirs);
            let pid = u32::try_from(pid).unwrap_or_default();
            if let Some(procs_files) = &procs_files {
                procs_files.attach(pid)?;
            }
            reporter.started(pid, pidfd.as_fd()).during("telling the supervisor")?;
            (&ours).write_all(&pid.to_ne_bytes()).during("letting the pod's init go on")?;
            let namespace = take(&ours).during("waiting for the PID namespace")?;
            // The other end is closed when the init is set up.
            let _ = (&ours).read(&mut [0]);
            namespace.ok_or_else(|| CreateError::other("the pod's init ended early"))
        }
    }
}

fn become_init(
    program: &OwnedFd,
    null: BorrowedFd<'_>,
    process: &ProcessFiles,
    mut socket: UnixStream,
) -> Result<std::convert::Infallible> {
    let mut pid = [0; 4];
    socket.read_exact(&mut pid).during("waiting for the helper")?;
    // With a user namespace only the process itself may open it.
    let namespace = process.namespace(u32::from_ne_bytes(pid), "pid")?;
    send_descriptor(&socket, namespace.as_fd()).during("handing the PID namespace over")?;
    drop(namespace);
    rustix::process::setsid().during("beginning a session")?;
    let flags = MountAttrFlags::MOUNT_ATTR_RDONLY
        | MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV;
    let options = ["size=4k".to_owned(), "nr_inodes=2".to_owned(), "mode=555".to_owned()];
    let empty = detached_filesystem("tmpfs", &options, flags)?;
    become_root(&empty)?;
    reset_signals().during("resetting the signals")?;
    outlive_parent().during("detaching from the helper")?;
    let init_security = SecuritySpec {
        uid: INIT_USER,
        gid: INIT_USER,
        no_new_privileges: true,
        capabilities: Some(CapabilitySpec::default()),
        ..SecuritySpec::default()
    };
    crate::identity::become_user(&init_security)?;
    let arguments = StringList::new(&[INIT_NAME.to_owned()]).during("reading the arguments")?;
    // A program whose standard streams are closed opens /dev/null for them at its start, and fails
    // if there is none, as in this root.
    for number in 0..3 {
        dup_to(null, number).during("placing the standard streams")?;
    }
    let kept = [0, 1, 2, socket.as_raw_fd(), program.as_raw_fd()];
    close_all_except(&kept).during("closing descriptors")?;
    // A dynamically linked program finds no loader in this root; then this process itself is the
    // init.
    drop(execute_descriptor(program.as_fd(), &arguments));
    run_init()
}

/// The init as a program: reaps children until it is killed.
pub fn run_init() -> ! {
    let _ = crate::system::hide_process();
    let _ = close_all_except(&[]);
    loop {
        match rustix::process::wait(rustix::process::WaitOptions::empty()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            // No children: sleep until a signal comes.
            Err(_) => wait_for_child(),
        }
    }
}

/// SIGCHLD is ignored by default and would not end a pause; a caught one does.
fn wait_for_child() {
    crate::system::wait_for_child_signal();
}
