//! The process itself: one per pod, started by [`crate::launch`], ended by a request.
//!
//! Rule: everything waits in one place ([`watch`]); what could take long happens in a forked helper
//! or in the thread of the one container that it concerns. Threads neither allocate nor lock after
//! their start, so forks stay safe. A connection that misbehaves is closed, a container that
//! misbehaves hurts itself.

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

/// The name by which the program knows that it is to be a supervisor.
pub const NAME: &str = "keelson-pod";
/// How long the end of a container waits for the rest of its output.
const DRAIN: Duration = Duration::from_secs(2);
/// How long making a container may take.
const BIRTH: Duration = Duration::from_secs(120);

/// Whether the program was started as a supervisor or as a pod's init; if so, it was that, and this
/// is how it ended. The binary asks before it does anything else.
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

/// `FOLDER CGROUP LAUNCHER DESCRIPTORS`: without a group the second is empty, without a launcher the
/// third; the fourth is the soft limit that the launcher had before it raised its own.
fn run_from(arguments: Vec<OsString>) -> ExitCode {
    std::panic::set_hook(Box::new(|panic| {
        eprintln!("keelson-pod: {panic}");
        std::process::abort();
    }));
    let mut arguments = arguments.into_iter();
    let mut text = || arguments.next().and_then(|one| one.into_string().ok()).unwrap_or_default();
    let (folder, group, launcher, descriptors) = (text(), text(), text(), text());
    let outcome = if folder.is_empty() {
        Err(io::Error::other("expected the pod's folder"))
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

/// Ends with the launcher as long as it waits: a supervisor that nobody heard of would stay for ever.
fn follow(launcher: &str) -> io::Result<()> {
    let Ok(launcher) = launcher.parse::<i32>() else { return Ok(()) };
    container_create::system::die_with_parent()?;
    let parent = rustix::process::getppid().map(|parent| parent.as_raw_nonzero().get());
    if parent == Some(launcher) { Ok(()) } else { Err(io::Error::other("the launcher has ended")) }
}

/// The launcher waits for this process, which ends when the supervisor listens; that one is its child
/// and then nobody's.
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
            // Where the process that waits has died, with the launcher, this is an error.
            let told = theirs.write_all(word.as_bytes());
            drop(theirs);
            if let (Ok(mut supervisor), Ok(())) = (outcome, told) {
                supervisor.run();
            }
            system::exit_now(0)
        }
    }
}

/// A path is a group that we make; `SLICE:SCOPE` one that systemd makes.
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

/// In the process that stays: the kernel tells servers the PID of whoever began to listen.
fn become_supervisor(folder: &Path) -> io::Result<Supervisor> {
    use container_create::system;
    system::become_reaper()?;
    system::hide_process()?;
    rustix::thread::set_name(c"keelson-pod")?;
    signals::keep_memory_small();
    // What may not be lowered here stays as it is.
    let _ = std::fs::write("/proc/self/oom_score_adj", "-998");
    let listener = connection::listen(&folder.join(crate::SOCKET))?;
    Supervisor::new(folder, listener)
}

/// Where an answer goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Asker {
    connection: u64,
    request: u64,
}

/// All that a supervisor knows.
struct Supervisor {
    folder: PathBuf,
    files: ProcessFiles,
    null: NullDevice,
    hierarchy: Option<Hierarchy>,
    connections: Connections,
    signals: OwnedFd,
    /// Threads of containers say "look again".
    wake: std::sync::Arc<OwnedFd>,
    pod: Option<Pod>,
    containers: BTreeMap<String, Container>,
    execs: BTreeMap<String, ExecProcess>,
    births: Vec<Birth>,
    chores: Vec<Chore>,
    shutdown: Option<Asker>,
    ended: bool,
    /// Kills for want of memory that containers of this pod had, also those that are gone.
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
    /// Another program makes and ends it.
    handler: Option<Handler>,
    /// The first process, once there is one.
    pidfd: Option<OwnedFd>,
    /// Over which the word to start goes and errors of the start come.
    start: Option<OwnedFd>,
    starting: Option<Asker>,
    streams: Option<Streams>,
    memory: Option<MemoryWatch>,
    /// [`Supervisor::unclaimed_kills`] when it was made.
    kills_before: Option<u64>,
    /// Ended, but its output is not all written.
    draining: Option<(Exit, Instant)>,
    /// Who waits for it to be gone: a server, and the one that came after it.
    deleting: Vec<Asker>,
    reopening: Vec<(Asker, u32)>,
    /// Leftover groups of execs.
    exec_groups: Vec<String>,
}

struct ExecProcess {
    state: ExecState,
    pidfd: Option<OwnedFd>,
    /// Of its first process: with the PID a name that is never used twice.
    start_ticks: u64,
    deadline: Option<Instant>,
    timed_out: bool,
    /// It ended before its helper did, who has not said yet that it ran.
    early_exit: Option<Exit>,
    /// The group by which its tree is found; without one see [`exec_tree`].
    group: Option<String>,
}

/// The states that a supervisor has written into its folder.
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
