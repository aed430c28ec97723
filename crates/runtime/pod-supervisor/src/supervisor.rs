//! The supervisor process: one per pod, started by [`crate::launch`], stopped by a request.
//!
//! Rule: the main thread blocks only in [`watch`]; what may take long runs in a forked helper or in
//! the thread of the container that it is for. Threads neither allocate nor lock after they have
//! started, so forking stays safe. A misbehaving connection is closed; a misbehaving container
//! affects only itself.

mod cgroup_jobs;
mod connection;
mod exec_tree;
mod exits;
mod handler;
mod log_lines;
mod pending_creates;
mod records;
mod requests;
mod signals;
mod streams;
mod watch;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

use cgroup_files::{CgroupHierarchies, MemoryEventsWatch};
use container_create::scopes::SystemdScope;
use container_create::spec::{ContainerNamespaces, LimitsSpec, PodSpec};
use container_create::{NullDevice, PodNamespaces, ProcessFiles};

use crate::protocol::{ContainerState, ExecState, ProcessExit};
use cgroup_jobs::CgroupJob;
use connection::AcceptedConnections;
use handler::OciHandler;
use pending_creates::PendingCreate;
use streams::ContainerStreams;

/// `argv[0]` with which the program runs as a supervisor.
pub const NAME: &str = "keelson-pod";
/// How long to wait for the remaining output of an exited container.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);
/// Time limit for creating a container.
const CREATE_TIMEOUT: Duration = Duration::from_secs(120);

/// Runs the process if it was started as a supervisor or as a pod's init, and returns its exit
/// code. A binary calls this before anything else.
pub fn run_if_called() -> Option<ExitCode> {
    let mut arguments = std::env::args_os();
    let name = arguments.next()?;
    if name == container_create::INIT_NAME {
        container_create::run_init();
    }
    if name == container_create::kernel_features::NAME {
        container_create::kernel_features::report(Path::new(&arguments.next()?));
        return Some(ExitCode::SUCCESS);
    }
    (name == NAME).then(|| run_from(arguments.collect()))
}

/// Arguments: pod directory, cgroup, launcher's PID, soft limit of open files. The cgroup is empty
/// if the supervisor needs none, the PID if there is no launcher. The limit is the one that the
/// launcher had before it raised its own.
fn run_from(arguments: Vec<OsString>) -> ExitCode {
    std::panic::set_hook(Box::new(|panic| {
        eprintln!("keelson-pod: {panic}");
        std::process::abort();
    }));
    let mut arguments = arguments.into_iter();
    let mut next =
        || arguments.next().and_then(|argument| argument.into_string().ok()).unwrap_or_default();
    let (dir, cgroup, launcher, open_files) = (next(), next(), next(), next());
    let outcome = if dir.is_empty() {
        Err(io::Error::other("expected the pod's directory as an argument"))
    } else {
        let lowered = open_files.parse().map_or(Ok(()), crate::descriptors::lower_to);
        lowered
            .and_then(|()| die_with_launcher(&launcher))
            .and_then(|()| start(Path::new(&dir), Some(&*cgroup).filter(|path| !path.is_empty())))
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("keelson-pod: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Makes this process die with the launcher that waits for it: otherwise a supervisor that no
/// server knows would run for ever.
fn die_with_launcher(launcher: &str) -> io::Result<()> {
    let Ok(launcher) = launcher.parse::<i32>() else { return Ok(()) };
    container_create::system::die_with_parent()?;
    let parent = rustix::process::getppid().map(|parent| parent.as_raw_nonzero().get());
    if parent == Some(launcher) { Ok(()) } else { Err(io::Error::other("the launcher has exited")) }
}

/// The launcher waits for this process, which exits once its child, the supervisor, listens. The
/// supervisor is then reparented to the reaper.
fn start(dir: &Path, cgroup: Option<&str>) -> io::Result<()> {
    use container_create::system::{self, ForkSide};
    system::close_all_except(&[0, 1, 2])?;
    std::env::set_current_dir("/")?;
    rustix::process::setsid()?;
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    if let Some(cgroup) = cgroup {
        enter_cgroup(cgroup)?;
    }
    let (mut ours, mut theirs) = UnixStream::pair()?;
    match system::fork()? {
        ForkSide::Parent { .. } => {
            drop(theirs);
            let mut status = String::new();
            ours.read_to_string(&mut status)?;
            if status == "listening" { Ok(()) } else { Err(io::Error::other(status)) }
        }
        ForkSide::Child => {
            drop(ours);
            let outcome = become_supervisor(dir);
            let status =
                outcome.as_ref().map_or_else(ToString::to_string, |_| "listening".to_owned());
            // Fails if the waiting process has died with the launcher.
            let reported = theirs.write_all(status.as_bytes());
            drop(theirs);
            if let (Ok(mut supervisor), Ok(())) = (outcome, reported) {
                supervisor.run();
            }
            system::exit_now(0)
        }
    }
}

/// Creates a cgroup and moves this process to it. `SLICE:SCOPE` names a scope that systemd creates;
/// anything else is the path of a cgroup that we create.
fn enter_cgroup(name: &str) -> io::Result<()> {
    let to_io_error = |error: cgroup_files::CgroupError| io::Error::other(error.to_string());
    let hierarchy = CgroupHierarchies::detect().map_err(to_io_error)?;
    if let Some((slice, unit)) = name.split_once(':').filter(|_| !name.starts_with('/')) {
        let scope = SystemdScope { unit, slice, description: "the supervisor of a pod" };
        let no_limits = LimitsSpec::default();
        return scope
            .enter_new(&no_limits, hierarchy.version())
            .map_err(|error| io::Error::other(error.message));
    }
    let cgroup = hierarchy.group(name).map_err(to_io_error)?;
    cgroup.create().map_err(to_io_error)?;
    // This process has one thread, so 0 (the caller) moves all of it.
    match cgroup.task_files_for_caller(None).map_err(to_io_error)? {
        Some(procs_files) => procs_files.attach(0).map_err(to_io_error),
        None => cgroup.add_process(0).map_err(to_io_error),
    }
}

/// Runs in the supervisor itself, not in its parent that exits: the kernel reports the PID that
/// called `listen` as the socket's peer.
fn become_supervisor(dir: &Path) -> io::Result<Supervisor> {
    use container_create::system;
    system::become_reaper()?;
    system::hide_process()?;
    rustix::thread::set_name(c"keelson-pod")?;
    signals::limit_allocator_memory();
    // Without the privilege to lower it, the score stays as it is.
    let _ = std::fs::write("/proc/self/oom_score_adj", "-998");
    let listener = connection::listen(&dir.join(crate::SOCKET))?;
    Supervisor::new(dir, listener)
}

/// Where a response is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct RequestOrigin {
    connection: u64,
    request: u64,
}

/// The supervisor's whole state.
struct Supervisor {
    dir: PathBuf,
    files: ProcessFiles,
    null: NullDevice,
    hierarchy: Option<CgroupHierarchies>,
    connections: AcceptedConnections,
    signals: OwnedFd,
    /// The eventfd with which container threads wake the main thread.
    wake: std::sync::Arc<OwnedFd>,
    pod: Option<Pod>,
    containers: BTreeMap<String, Container>,
    execs: BTreeMap<String, ExecProcess>,
    pending_creates: Vec<PendingCreate>,
    cgroup_jobs: Vec<CgroupJob>,
    shutdown: Option<RequestOrigin>,
    ended: bool,
    /// OOM kills attributed to containers of this pod, including removed ones.
    claimed_oom_kills: u64,
}

struct Pod {
    spec: PodSpec,
    namespaces: PodNamespaces,
    init: Option<(u32, OwnedFd)>,
}

struct Container {
    state: ContainerState,
    namespaces: ContainerNamespaces,
    /// Set if an OCI runtime creates and removes the container.
    handler: Option<OciHandler>,
    /// Of the container's first process, once it exists.
    pidfd: Option<OwnedFd>,
    /// Socket for the start request and for errors of the start.
    start: Option<OwnedFd>,
    starting: Option<RequestOrigin>,
    streams: Option<ContainerStreams>,
    memory: Option<MemoryEventsWatch>,
    /// [`Supervisor::unclaimed_oom_kills`] when the container was created.
    oom_kills_before: Option<u64>,
    /// Set while the container has exited but its output is not completely written: until when to
    /// wait for the rest.
    draining: Option<(ProcessExit, Instant)>,
    /// Requests that wait for the deletion: several if the server restarted meanwhile.
    deleting: Vec<RequestOrigin>,
    reopening: Vec<(RequestOrigin, u32)>,
    /// Cgroups left behind by execs.
    exec_groups: Vec<String>,
}

struct ExecProcess {
    state: ExecState,
    pidfd: Option<OwnedFd>,
    /// Start time of its first process: together with the PID it identifies the process uniquely.
    start_ticks: u64,
    deadline: Option<Instant>,
    timed_out: bool,
    /// Set if it exited before its helper reported that it runs.
    early_exit: Option<ProcessExit>,
    /// The cgroup by which its processes are found; if `None`, [`exec_tree`] finds them.
    group: Option<String>,
}

/// The container states recorded in a supervisor's directory.
pub(crate) fn recorded(dir: &Path) -> io::Result<Vec<io::Result<ContainerState>>> {
    records::read_states(dir)
}

fn now() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

impl Supervisor {
    fn new(dir: &Path, listener: OwnedFd) -> io::Result<Self> {
        let to_io_error = |error: container_create::CreateError| io::Error::other(error.message);
        let files = ProcessFiles::open().map_err(to_io_error)?;
        let null = NullDevice::new().map_err(to_io_error)?;
        let flags = rustix::event::EventfdFlags::CLOEXEC | rustix::event::EventfdFlags::NONBLOCK;
        records::prepare(dir)?;
        Ok(Self {
            dir: dir.to_owned(),
            files,
            null,
            hierarchy: CgroupHierarchies::detect().ok(),
            connections: AcceptedConnections::new(listener),
            signals: signals::children()?,
            wake: std::sync::Arc::new(rustix::event::eventfd(0, flags)?),
            pod: None,
            containers: BTreeMap::new(),
            execs: BTreeMap::new(),
            pending_creates: Vec::new(),
            cgroup_jobs: Vec::new(),
            shutdown: None,
            ended: false,
            claimed_oom_kills: 0,
        })
    }

    fn group_of(&self, container: &Container) -> Option<cgroup_files::Cgroup> {
        let hierarchy = self.hierarchy.as_ref()?;
        let path = Some(container.state.cgroup.as_str()).filter(|path| !path.is_empty())?;
        hierarchy.group(path).ok()
    }
}
