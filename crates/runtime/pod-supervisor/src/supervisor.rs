//! The supervisor process: one per pod, started by [`crate::launch`], ended by a request.
//!
//! Rule: the main thread waits only in [`watch`]; what could take long runs in a forked helper or
//! in the thread of the one container concerned. Threads neither allocate nor lock after they have
//! started, so forking stays safe. A misbehaving connection is closed; a misbehaving container
//! affects only itself.

mod births;
mod chores;
mod connection;
mod exec_tree;
mod exits;
mod handler;
mod log_lines;
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

use cgroup_files::{Hierarchy, MemoryWatch};
use container_create::scopes::Scope;
use container_create::spec::{ContainerNamespaces, LimitsSpec, PodSpec};
use container_create::{NullDevice, PodNamespaces, ProcessFiles};

use crate::protocol::{ContainerState, ExecState, Exit};
use births::Birth;
use chores::Chore;
use connection::Connections;
use handler::Handler;
use streams::Streams;

/// `argv[0]` with which the program runs as a supervisor.
pub const NAME: &str = "keelson-pod";
/// How long an exited container's remaining output is waited for.
const DRAIN: Duration = Duration::from_secs(2);
/// Time limit for creating a container.
const BIRTH: Duration = Duration::from_secs(120);

/// Runs the process if it was started as a supervisor or as a pod's init, and returns its exit
/// code. A binary calls this before anything else.
pub fn run_if_called() -> Option<ExitCode> {
    let mut arguments = std::env::args_os();
    let name = arguments.next()?;
    if name == container_create::INIT_NAME {
        container_create::run_init();
    }
    if name == container_create::abilities::NAME {
        container_create::abilities::report(Path::new(&arguments.next()?));
        return Some(ExitCode::SUCCESS);
    }
    (name == NAME).then(|| run_from(arguments.collect()))
}

/// Arguments: pod directory, cgroup, launcher's PID, soft limit of open files. The cgroup is empty
/// if none is wanted, the PID if there is no launcher; the limit is the launcher's before it raised
/// its own.
fn run_from(arguments: Vec<OsString>) -> ExitCode {
    std::panic::set_hook(Box::new(|panic| {
        eprintln!("keelson-pod: {panic}");
        std::process::abort();
    }));
    let mut arguments = arguments.into_iter();
    let mut text = || arguments.next().and_then(|one| one.into_string().ok()).unwrap_or_default();
    let (folder, group, launcher, descriptors) = (text(), text(), text(), text());
    let outcome = if folder.is_empty() {
        Err(io::Error::other("expected the pod's directory"))
    } else {
        let lowered = descriptors.parse().map_or(Ok(()), crate::descriptors::lower_to);
        lowered.and_then(|()| follow(&launcher)).and_then(|()| {
            start(Path::new(&folder), Some(&*group).filter(|group| !group.is_empty()))
        })
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("keelson-pod: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Dies with the launcher while the launcher waits: a supervisor unknown to any server would stay
/// for ever.
fn follow(launcher: &str) -> io::Result<()> {
    let Ok(launcher) = launcher.parse::<i32>() else { return Ok(()) };
    container_create::system::die_with_parent()?;
    let parent = rustix::process::getppid().map(|parent| parent.as_raw_nonzero().get());
    if parent == Some(launcher) { Ok(()) } else { Err(io::Error::other("the launcher has ended")) }
}

/// The launcher waits for this process, which exits when its child, the supervisor, listens. The
/// supervisor then has no parent but the reaper.
fn start(folder: &Path, group: Option<&str>) -> io::Result<()> {
    use container_create::system::{self, Side};
    system::close_all_but(&[0, 1, 2])?;
    std::env::set_current_dir("/")?;
    rustix::process::setsid()?;
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    if let Some(group) = group {
        enter_group(group)?;
    }
    let (mut ours, mut theirs) = UnixStream::pair()?;
    match system::fork()? {
        Side::Parent { .. } => {
            drop(theirs);
            let mut word = String::new();
            ours.read_to_string(&mut word)?;
            if word == "listening" { Ok(()) } else { Err(io::Error::other(word)) }
        }
        Side::Child => {
            drop(ours);
            let outcome = become_supervisor(folder);
            let word =
                outcome.as_ref().map_or_else(ToString::to_string, |_| "listening".to_owned());
            // An error if the waiting process has died with the launcher.
            let told = theirs.write_all(word.as_bytes());
            drop(theirs);
            if let (Ok(mut supervisor), Ok(())) = (outcome, told) {
                supervisor.run();
            }
            system::exit_now(0)
        }
    }
}

/// A path is a cgroup that we create; `SLICE:SCOPE` a scope that systemd creates.
fn enter_group(group: &str) -> io::Result<()> {
    let odd = |error: cgroup_files::CgroupError| io::Error::other(error.to_string());
    let hierarchy = Hierarchy::detect().map_err(odd)?;
    if let Some((slice, unit)) = group.split_once(':').filter(|_| !group.starts_with('/')) {
        let scope = Scope { unit, slice, description: "the supervisor of a pod" };
        let nothing = LimitsSpec::default();
        return scope
            .enter_new(&nothing, hierarchy.version())
            .map_err(|trouble| io::Error::other(trouble.message));
    }
    let group = hierarchy.group(group).map_err(odd)?;
    group.create().map_err(odd)?;
    // This process has one thread.
    match group.door_of_caller(None).map_err(odd)? {
        Some(door) => door.admit(0).map_err(odd),
        None => group.add_process(0).map_err(odd),
    }
}

/// Runs in the process that stays: the kernel reports the PID that called listen as the peer.
fn become_supervisor(folder: &Path) -> io::Result<Supervisor> {
    use container_create::system;
    system::become_reaper()?;
    system::hide_process()?;
    rustix::thread::set_name(c"keelson-pod")?;
    signals::keep_memory_small();
    // Without the right to lower it, the score stays as it is.
    let _ = std::fs::write("/proc/self/oom_score_adj", "-998");
    let listener = connection::listen(&folder.join(crate::SOCKET))?;
    Supervisor::new(folder, listener)
}

/// Where a response is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Asker {
    connection: u64,
    request: u64,
}

/// The supervisor's whole state.
struct Supervisor {
    folder: PathBuf,
    files: ProcessFiles,
    null: NullDevice,
    hierarchy: Option<Hierarchy>,
    connections: Connections,
    signals: OwnedFd,
    /// Container threads wake the main thread with it.
    wake: std::sync::Arc<OwnedFd>,
    pod: Option<Pod>,
    containers: BTreeMap<String, Container>,
    execs: BTreeMap<String, ExecProcess>,
    births: Vec<Birth>,
    chores: Vec<Chore>,
    shutdown: Option<Asker>,
    ended: bool,
    /// OOM kills attributed to containers of this pod, including removed ones.
    claimed_kills: u64,
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
    handler: Option<Handler>,
    /// Of the first process, once it exists.
    pidfd: Option<OwnedFd>,
    /// Socket for the start request and for errors of the start.
    start: Option<OwnedFd>,
    starting: Option<Asker>,
    streams: Option<Streams>,
    memory: Option<MemoryWatch>,
    /// [`Supervisor::unclaimed_kills`] when the container was created.
    kills_before: Option<u64>,
    /// Exited, but its output is not completely written.
    draining: Option<(Exit, Instant)>,
    /// Requests that wait for its deletion: several if a server restarted meanwhile.
    deleting: Vec<Asker>,
    reopening: Vec<(Asker, u32)>,
    /// Leftover cgroups of execs.
    exec_groups: Vec<String>,
}

struct ExecProcess {
    state: ExecState,
    pidfd: Option<OwnedFd>,
    /// Start time of its first process: together with the PID it identifies the process uniquely.
    start_ticks: u64,
    deadline: Option<Instant>,
    timed_out: bool,
    /// It exited before its helper reported that it ran.
    early_exit: Option<Exit>,
    /// The cgroup by which its processes are found; without one see [`exec_tree`].
    group: Option<String>,
}

/// The container states that a supervisor has recorded in its directory.
pub(crate) fn recorded(folder: &Path) -> io::Result<Vec<io::Result<ContainerState>>> {
    records::read_states(folder)
}

fn now() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

impl Supervisor {
    fn new(folder: &Path, listener: OwnedFd) -> io::Result<Self> {
        let odd = |trouble: container_create::Trouble| io::Error::other(trouble.message);
        let files = ProcessFiles::open().map_err(odd)?;
        let null = NullDevice::new().map_err(odd)?;
        let flags = rustix::event::EventfdFlags::CLOEXEC | rustix::event::EventfdFlags::NONBLOCK;
        records::prepare(folder)?;
        Ok(Self {
            folder: folder.to_owned(),
            files,
            null,
            hierarchy: Hierarchy::detect().ok(),
            connections: Connections::new(listener),
            signals: signals::children()?,
            wake: std::sync::Arc::new(rustix::event::eventfd(0, flags)?),
            pod: None,
            containers: BTreeMap::new(),
            execs: BTreeMap::new(),
            births: Vec::new(),
            chores: Vec::new(),
            shutdown: None,
            ended: false,
            claimed_kills: 0,
        })
    }

    fn group_of(&self, container: &Container) -> Option<cgroup_files::Cgroup> {
        let hierarchy = self.hierarchy.as_ref()?;
        let path = Some(container.state.cgroup.as_str()).filter(|path| !path.is_empty())?;
        hierarchy.group(path).ok()
    }
}
