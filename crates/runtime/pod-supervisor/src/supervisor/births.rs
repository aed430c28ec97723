//! Creates in flight, each in a helper: the pod, a container or an exec.
//!
//! Rule: each ends with exactly one response: created, refused with the reason, or timed out.
//! Partial results are removed.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Instant;

use cgroup_files::MemoryWatch;
use container_create::exchange::{self, Report, Reporter};
use container_create::spec::{ContainerSpec, PodSpec, SecuritySpec, StreamsSpec};
use container_create::system::{self, Side};
use container_create::{Creation, Entry, NullDevice, PodNamespaces, Trouble, TroubleKind};
use rustix::fs::OFlags;
use rustix::process::{Pid, Signal};

use crate::protocol::{ContainerState, Exec, ExecState, FailureKind, Phase, Told};

use super::chores::{Refusal, Then};
use super::handler::{self, Handler, NewExec};
use super::streams::{LogPath, Start, Streams};
use super::{Asker, BIRTH, Container, ExecProcess, Pod, Supervisor, now, records};

pub(super) struct Birth {
    pub(super) socket: OwnedFd,
    pub(super) subject: Subject,
    pub(super) asker: Asker,
    pub(super) deadline: Instant,
    /// The helper's PID, until it has exited.
    pub(super) helper: Option<i32>,
    /// Set when the helper has reported ready; with the master of a terminal, if any.
    ready: Option<Option<OwnedFd>>,
}

pub(super) enum Subject {
    Pod { spec: Box<PodSpec>, init: Option<(u32, OwnedFd)> },
    Container { id: String, streams: StreamsSpec, pipes: Option<Pipes> },
    Exec { id: String },
}

impl Subject {
    pub(super) fn is_exec(&self, exec: &str) -> bool {
        matches!(self, Self::Exec { id } if id == exec)
    }
}

/// The supervisor's ends of the pipes.
pub(super) struct Pipes {
    output: OwnedFd,
    error: OwnedFd,
    input: Option<OwnedFd>,
}

pub(super) fn failure_kind(trouble: &Trouble) -> FailureKind {
    match trouble.kind {
        TroubleKind::Other => FailureKind::Other,
        TroubleKind::BadSpec => FailureKind::BadSpec,
        TroubleKind::NoProgram => FailureKind::NoProgram,
        TroubleKind::Gone => FailureKind::WrongState,
    }
}

/// Forks; the child runs `work` and exits.
pub(super) fn in_helper(work: impl FnOnce(Reporter)) -> io::Result<(OwnedFd, i32)> {
    let (socket, reporter) = exchange::pair()?;
    match system::fork()? {
        Side::Child => {
            work(reporter);
            system::exit_now(0)
        }
        Side::Parent { pid } => Ok((socket, pid)),
    }
}

fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(Into::into)
}

/// Both ends of a container's streams: the supervisor's and the container's.
fn pipes(spec: &StreamsSpec, null: &NullDevice) -> io::Result<(Pipes, [OwnedFd; 3])> {
    let (input, container_input) = if spec.stdin {
        let (read, write) = pipe()?;
        (Some(write), read)
    } else {
        (None, null.open(OFlags::RDONLY)?)
    };
    let (output, container_output) = pipe()?;
    let (error, container_error) = pipe()?;
    Ok((Pipes { output, error, input }, [container_input, container_output, container_error]))
}

impl Supervisor {
    pub(super) fn make_pod(&mut self, asker: Asker, spec: PodSpec) {
        if self.pod.is_some()
            || self.births.iter().any(|one| matches!(one.subject, Subject::Pod { .. }))
        {
            return self.connections.refuse(asker, FailureKind::Exists, "the pod is there already");
        }
        let files = &self.files;
        let helper = self.null.open(OFlags::RDWR).and_then(|null| {
            in_helper(|reporter| {
                container_create::make_pod(&spec, files, null.as_fd(), &reporter);
            })
        });
        self.add_birth(asker, Subject::Pod { spec: Box::new(spec), init: None }, helper);
    }

    fn add_birth(&mut self, asker: Asker, subject: Subject, helper: io::Result<(OwnedFd, i32)>) {
        match helper {
            Ok((socket, pid)) => self.births.push(Birth {
                socket,
                subject,
                asker,
                deadline: Instant::now() + BIRTH,
                helper: Some(pid),
                ready: None,
            }),
            Err(error) => {
                let message = format!("starting a helper: {error}");
                self.abandon(asker, subject, FailureKind::Other, &message);
            }
        }
    }

    pub(super) fn create(&mut self, asker: Asker, spec: ContainerSpec) {
        if let Err((kind, message)) = self.check_new(&spec) {
            return self.connections.refuse(asker, kind, message);
        }
        let streams = spec.streams.clone().unwrap_or_default();
        let terminal = spec.process.as_ref().is_some_and(|process| process.terminal);
        let made = if terminal {
            Ok((None, None))
        } else {
            pipes(&streams, &self.null).map(|(ours, theirs)| (Some(ours), Some(theirs)))
        };
        let prepared = made.and_then(|(ours, theirs)| {
            let security = spec.security.clone().unwrap_or_default();
            records::write_security(&self.folder, &spec.id, &security)?;
            Ok((ours, theirs, self.null.open(OFlags::RDWR)?))
        });
        let (ours, theirs, null) = match prepared {
            Ok(made) => made,
            Err(error) => {
                let message = format!("preparing the container {}: {error}", spec.id);
                return self.connections.refuse(asker, FailureKind::Other, message);
            }
        };
        let id = spec.id.clone();
        let namespaces = spec.namespaces.clone().unwrap_or_default();
        let target = self.containers.get(&namespaces.pid_target).and_then(|one| {
            self.files.namespace(one.state.pid, "pid").ok().filter(|_| one.pidfd.is_some())
        });
        let nothing = PodNamespaces::default();
        let handler = Handler::of(&spec, &self.folder);
        let pod = self.pod.as_ref();
        let helper = if let Some(handler) = &handler {
            let pod = pod.map_or(&nothing, |pod| &pod.namespaces);
            handler::make(handler, &spec, pod, target.as_ref(), theirs)
        } else {
            let creation = Creation {
                spec: &spec,
                pod: pod.map_or(&nothing, |pod| &pod.namespaces),
                mappings: pod.and_then(|pod| pod.spec.user_namespace.as_ref()),
                target_pid: target.as_ref().map(|one| one.as_fd()),
                process: &self.files,
                hierarchy: self.hierarchy.as_ref(),
                streams: theirs,
                null: null.as_fd(),
            };
            in_helper(|reporter| container_create::create(creation, &reporter))
        };
        let cgroup = spec.cgroup.map(|cgroup| cgroup.path).unwrap_or_default();
        let state =
            ContainerState { id: id.clone(), created_at: now(), cgroup, ..Default::default() };
        self.containers.insert(
            id.clone(),
            Container {
                state,
                namespaces,
                handler,
                pidfd: None,
                start: None,
                starting: None,
                streams: None,
                memory: None,
                kills_before: None,
                draining: None,
                deleting: Vec::new(),
                reopening: Vec::new(),
                exec_groups: Vec::new(),
            },
        );
        self.add_birth(asker, Subject::Container { id, streams, pipes: ours }, helper);
    }

    fn check_new(&self, spec: &ContainerSpec) -> Result<(), (FailureKind, String)> {
        let id = &spec.id;
        if !records::is_plain(id) {
            return Err((FailureKind::BadSpec, format!("{id:?} cannot be a container's id")));
        }
        if self.containers.contains_key(id) {
            return Err((FailureKind::Exists, format!("the container {id} is there already")));
        }
        if self.shutdown.is_some() {
            return Err((FailureKind::WrongState, "the pod is being ended".to_owned()));
        }
        Ok(())
    }

    pub(super) fn exec(&mut self, asker: Asker, ask: Exec, descriptors: Vec<OwnedFd>) {
        match self.start_exec(&ask, descriptors) {
            Ok((group, helper)) => {
                let limit = std::time::Duration::from_millis(ask.timeout_milliseconds);
                let deadline = (ask.timeout_milliseconds > 0).then(|| Instant::now() + limit);
                let state = ExecState {
                    exec: ask.exec.clone(),
                    container: ask.container,
                    ..ExecState::default()
                };
                let process = ExecProcess {
                    state,
                    pidfd: None,
                    start_ticks: 0,
                    deadline,
                    timed_out: false,
                    early_exit: None,
                    group,
                };
                self.execs.insert(ask.exec.clone(), process);
                self.add_birth(asker, Subject::Exec { id: ask.exec }, helper);
            }
            Err((kind, message)) => self.connections.refuse(asker, kind, message),
        }
    }

    #[allow(clippy::type_complexity, reason = "used once")]
    fn start_exec(
        &mut self,
        ask: &Exec,
        descriptors: Vec<OwnedFd>,
    ) -> Result<(Option<String>, io::Result<(OwnedFd, i32)>), (FailureKind, String)> {
        let id = &ask.container;
        if !records::is_plain(&ask.exec) || self.execs.contains_key(&ask.exec) {
            let exec = &ask.exec;
            return Err((
                FailureKind::Exists,
                format!("{exec:?} is taken or cannot be an exec's id"),
            ));
        }
        let container = self
            .containers
            .get(id)
            .ok_or_else(|| (FailureKind::NotFound, format!("there is no container {id}")))?;
        let pidfd = container
            .pidfd
            .as_ref()
            .filter(|_| container.state.phase() == Phase::Running && container.draining.is_none())
            .ok_or_else(|| {
                (FailureKind::WrongState, format!("the container {id} is not running"))
            })?;
        let process = ask.process.clone().unwrap_or_default();
        let streams = streams_of(ask, descriptors, &self.null)
            .and_then(|streams| Ok((streams, self.null.open(OFlags::RDWR)?)));
        let (streams, null) = streams
            .map_err(|error| (FailureKind::BadSpec, format!("the exec's streams: {error}")))?;
        let mut security: SecuritySpec = records::read_security(&self.folder, id)
            .map_err(|error| (FailureKind::Other, format!("reading what {id} may do: {error}")))?;
        if let Some(user) = &ask.user {
            security.uid = user.uid;
            security.gid = user.gid;
            security.additional_gids = user.additional_gids.clone();
        }
        if let Some(handler) = &container.handler {
            let streams = (!process.terminal).then_some(streams);
            let new = NewExec { id: &ask.exec, process: &process, security: &security, streams };
            return Ok((None, handler::enter(handler, &new)));
        }
        let group = self.group_of(container);
        let group = group.map(|group| group.open_to_processes(container.state.pid));
        let exec_group = group
            .as_ref()
            .filter(|_| ask.timeout_milliseconds > 0)
            .and_then(|group| group.child(&format!("keelson-exec-{}", ask.exec)).ok());
        let entry = Entry {
            container: pidfd.as_fd(),
            namespaces: &container.namespaces,
            mappings: self.pod.as_ref().and_then(|pod| pod.spec.user_namespace.as_ref()),
            process: &process,
            security: &security,
            files: &self.files,
            group: group.as_ref(),
            exec_group: exec_group.as_ref(),
            streams: (!process.terminal).then_some(streams),
            null: null.as_fd(),
        };
        let helper = in_helper(|reporter| container_create::enter_container(entry, &reporter));
        Ok((exec_group.map(|group| group.path().to_owned()), helper))
    }

    /// Reads the reports of all helpers.
    pub(super) fn hear_births(&mut self) {
        let mut at = 0;
        while at < self.births.len() {
            match exchange::receive(&self.births[at].socket) {
                Ok(Some(Report::Started { pid, pidfd })) => self.note_started(at, pid, pidfd),
                Ok(Some(Report::Ready { names, descriptors })) => {
                    if self.note_ready(at, &names, descriptors) {
                        self.births.remove(at);
                    }
                }
                Ok(Some(Report::Failed(trouble))) => {
                    let birth = self.births.remove(at);
                    let kind = failure_kind(&trouble);
                    self.abandon(birth.asker, birth.subject, kind, &trouble.message);
                }
                Ok(None) => {
                    let birth = self.births.remove(at);
                    self.note_end(birth);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => at += 1,
                Err(error) => {
                    let birth = self.births.remove(at);
                    let message = format!("hearing from the helper: {error}");
                    self.abandon(birth.asker, birth.subject, FailureKind::Other, &message);
                }
            }
        }
    }

    fn note_started(&mut self, at: usize, pid: u32, pidfd: OwnedFd) {
        match &mut self.births[at].subject {
            Subject::Pod { init, .. } => *init = Some((pid, pidfd)),
            Subject::Container { id, .. } => {
                if let Some(container) = self.containers.get_mut(id) {
                    container.state.pid = pid;
                    container.state.start_ticks = self.files.start_ticks(pid).unwrap_or_default();
                    container.pidfd = Some(pidfd);
                }
            }
            Subject::Exec { id } => {
                if let Some(exec) = self.execs.get_mut(id) {
                    exec.state.pid = pid;
                    exec.start_ticks = self.files.start_ticks(pid).unwrap_or_default();
                    exec.pidfd = Some(pidfd);
                }
            }
        }
    }

    /// True: the create is finished.
    fn note_ready(&mut self, at: usize, names: &[String], mut descriptors: Vec<OwnedFd>) -> bool {
        match &mut self.births[at].subject {
            Subject::Pod { spec, init } => {
                let namespaces = PodNamespaces::from_named(names, descriptors);
                self.pod =
                    Some(Pod { spec: std::mem::take(&mut **spec), namespaces, init: init.take() });
                let state = self.pod_state();
                self.connections.answer(self.births[at].asker, Told::State(state), Vec::new());
                true
            }
            Subject::Exec { .. } => {
                // The program runs once the socket is closed.
                self.births[at].ready = Some(descriptors.pop());
                false
            }
            Subject::Container { .. } => {
                self.settle_container(at, descriptors.pop());
                true
            }
        }
    }

    fn settle_container(&mut self, at: usize, terminal: Option<OwnedFd>) {
        let birth = &mut self.births[at];
        let asker = birth.asker;
        let Subject::Container { id, streams, pipes } = &mut birth.subject else { return };
        let id = id.clone();
        let started = start_streams(streams, pipes.take(), terminal, &self.wake)
            .and_then(|streams| Ok((streams, birth.socket.try_clone()?)));
        let group = self.containers.get(&id).and_then(|container| self.group_of(container));
        let kills = group.as_ref().and_then(|group| self.unclaimed_kills(group));
        let Some(container) = self.containers.get_mut(&id) else { return };
        match started {
            Ok((streams, socket)) => {
                container.streams = Some(streams);
                container.start = Some(socket);
                container.kills_before = kills;
                container.memory = group.and_then(|group| MemoryWatch::new(&group).ok());
                container.state.set_phase(Phase::Created);
                // A delete was requested before the container was created.
                if (!container.deleting.is_empty() || self.shutdown.is_some())
                    && let Some(pidfd) = &container.pidfd
                {
                    let _ = rustix::process::pidfd_send_signal(pidfd, Signal::KILL);
                }
                let state = container.state.clone();
                if let Err(error) = records::write_state(&self.folder, &state) {
                    eprintln!("keelson-pod: the record of {id}: {error}");
                }
                self.connections.answer(asker, Told::Container(state), Vec::new());
            }
            Err(error) => {
                let message = format!("the streams of {id}: {error}");
                let subject =
                    Subject::Container { id, streams: StreamsSpec::default(), pipes: None };
                self.abandon(asker, subject, FailureKind::Other, &message);
            }
        }
    }

    /// The helper closed its socket: an exec that was ready runs now; anything else has failed.
    fn note_end(&mut self, birth: Birth) {
        let Birth { subject, asker, ready, .. } = birth;
        if let (Subject::Exec { id }, Some(terminal)) = (&subject, ready) {
            let state = self.execs.get(id).map(|exec| exec.state.clone()).unwrap_or_default();
            self.connections.answer(asker, Told::Exec(state), terminal.into_iter().collect());
            let early = self.execs.get_mut(id).and_then(|exec| exec.early_exit.take());
            if let Some(exit) = early {
                self.exec_ended(id, exit);
            }
            return;
        }
        let message = "the process was killed before its program ran";
        self.abandon(asker, subject, FailureKind::Other, message);
    }

    /// Removes partial results, then sends the error.
    pub(super) fn abandon(
        &mut self,
        asker: Asker,
        subject: Subject,
        kind: FailureKind,
        message: &str,
    ) {
        match subject {
            Subject::Pod { spec, init } => {
                if let Some((_, pidfd)) = init {
                    let _ = rustix::process::pidfd_send_signal(&pidfd, Signal::KILL);
                }
                container_create::unpin(&spec.network_pin);
            }
            Subject::Container { id, .. } => {
                if let Some(container) = self.containers.remove(&id) {
                    if let Some(pidfd) = &container.pidfd {
                        let _ = rustix::process::pidfd_send_signal(pidfd, Signal::KILL);
                    }
                    records::forget(&self.folder, &id);
                    let refusal = Refusal { asker, kind, message: message.to_owned() };
                    let group = self.group_of(&container);
                    let then = Then::Refuse(refusal, container.deleting);
                    return match (&container.handler, group) {
                        (Some(handler), group) => {
                            self.delete_by_handler(handler, group.as_ref(), then);
                        }
                        (None, Some(group)) => self.remove_group(&group, then),
                        (None, None) => self.finish_chore(then, None),
                    };
                }
            }
            Subject::Exec { id } => {
                if let Some(exec) = self.execs.remove(&id) {
                    if let Some(pidfd) = &exec.pidfd {
                        let _ = rustix::process::pidfd_send_signal(pidfd, Signal::KILL);
                    }
                    self.end_exec_group(&exec, true);
                    if exec.timed_out {
                        let message = "its time was over before its program ran";
                        return self.connections.refuse(asker, FailureKind::Deadline, message);
                    }
                }
            }
        }
        self.connections.refuse(asker, kind, message);
    }

    pub(super) fn end_late_births(&mut self, now: Instant) {
        while let Some(at) = self.births.iter().position(|birth| birth.deadline <= now) {
            let birth = self.births.remove(at);
            if let Some(helper) = birth.helper.and_then(Pid::from_raw) {
                let _ = rustix::process::kill_process(helper, Signal::KILL);
            }
            let message = format!("it took longer than {} seconds", BIRTH.as_secs());
            self.abandon(birth.asker, birth.subject, FailureKind::Deadline, &message);
        }
    }
}

fn start_streams(
    spec: &StreamsSpec,
    pipes: Option<Pipes>,
    terminal: Option<OwnedFd>,
    wake: &std::sync::Arc<OwnedFd>,
) -> io::Result<Streams> {
    let has_terminal = terminal.is_some();
    let (output, error, input) = match (terminal, pipes) {
        (Some(terminal), _) => {
            let input = spec.stdin.then(|| terminal.try_clone()).transpose()?;
            (terminal, None, input)
        }
        (None, Some(pipes)) => (pipes.output, Some(pipes.error), pipes.input),
        (None, None) => return Err(io::Error::other("no terminal came")),
    };
    Streams::start(Start {
        output,
        error,
        input,
        terminal: has_terminal,
        log: LogPath::of(spec)?,
        stdin_once: spec.stdin_once,
        longest_line: usize::try_from(spec.longest_line).unwrap_or_default(),
        wake: std::sync::Arc::clone(wake),
    })
}

/// The descriptors that the server sent; `/dev/null` in place of those it did not.
fn streams_of(
    ask: &Exec,
    descriptors: Vec<OwnedFd>,
    null: &NullDevice,
) -> io::Result<[OwnedFd; 3]> {
    let mut descriptors = descriptors.into_iter();
    let mut next = |flagged: bool, flags: OFlags| {
        if !flagged {
            return null.open(flags);
        }
        let one = descriptors.next();
        one.ok_or_else(|| io::Error::other("fewer descriptors came than were announced"))
    };
    Ok([
        next(ask.stdin, OFlags::RDONLY)?,
        next(ask.stdout, OFlags::WRONLY)?,
        next(ask.stderr, OFlags::WRONLY)?,
    ])
}
