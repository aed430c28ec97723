//! Creates in flight, each in a helper: the pod, a container or an exec.
//!
//! Rule: each ends with exactly one response: created, refused with the reason, or timed out.
//! Partial results are removed.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Instant;

use cgroup_files::MemoryEventsWatch;
use container_create::exchange::{self, CreateReport, CreateReporter};
use container_create::spec::{ContainerSpec, PodSpec, SecuritySpec, StreamsSpec};
use container_create::system::{self, ForkSide};
use container_create::{
    CreateError, CreateErrorKind, CreateInputs, ExecInputs, NullDevice, PodNamespaces,
};
use rustix::fs::OFlags;
use rustix::process::{Pid, Signal};

use crate::protocol::{
    ContainerPhase, ContainerState, Exec, ExecState, RequestErrorKind, ResponseBody,
};

use super::cgroup_jobs::{AfterJob, RejectedRequest};
use super::handler::{self, HandlerExec, OciHandler};
use super::streams::{ContainerStreams, LogPath, StreamsStart};
use super::{CREATE_TIMEOUT, Container, ExecProcess, Pod, RequestOrigin, Supervisor, now, records};

pub(super) struct PendingCreate {
    pub(super) socket: OwnedFd,
    pub(super) subject: CreateSubject,
    pub(super) origin: RequestOrigin,
    pub(super) deadline: Instant,
    /// The helper's PID, until it has exited.
    pub(super) helper: Option<i32>,
    /// Set when the helper has reported ready; with the master of a terminal, if any.
    ready: Option<Option<OwnedFd>>,
}

pub(super) enum CreateSubject {
    Pod { spec: Box<PodSpec>, init: Option<(u32, OwnedFd)> },
    Container { id: String, streams: StreamsSpec, pipes: Option<Pipes> },
    Exec { id: String },
}

impl CreateSubject {
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

pub(super) fn request_error_kind(error: &CreateError) -> RequestErrorKind {
    match error.kind {
        CreateErrorKind::Other => RequestErrorKind::Other,
        CreateErrorKind::InvalidSpec => RequestErrorKind::InvalidSpec,
        CreateErrorKind::ProgramNotFound => RequestErrorKind::ProgramNotFound,
        CreateErrorKind::NotRunning => RequestErrorKind::WrongState,
    }
}

/// Forks; the child runs `work` and exits.
pub(super) fn in_helper(work: impl FnOnce(CreateReporter)) -> io::Result<(OwnedFd, i32)> {
    let (socket, reporter) = exchange::pair()?;
    match system::fork()? {
        ForkSide::Child => {
            work(reporter);
            system::exit_now(0)
        }
        ForkSide::Parent { pid } => Ok((socket, pid)),
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
    pub(super) fn create_pod(&mut self, origin: RequestOrigin, spec: PodSpec) {
        if self.pod.is_some()
            || self
                .pending_creates
                .iter()
                .any(|one| matches!(one.subject, CreateSubject::Pod { .. }))
        {
            return self.connections.refuse(
                origin,
                RequestErrorKind::Exists,
                "the pod is there already",
            );
        }
        let files = &self.files;
        let helper = self.null.open(OFlags::RDWR).and_then(|null| {
            in_helper(|reporter| {
                container_create::create_pod(&spec, files, null.as_fd(), &reporter);
            })
        });
        self.add_pending_create(
            origin,
            CreateSubject::Pod { spec: Box::new(spec), init: None },
            helper,
        );
    }

    fn add_pending_create(
        &mut self,
        origin: RequestOrigin,
        subject: CreateSubject,
        helper: io::Result<(OwnedFd, i32)>,
    ) {
        match helper {
            Ok((socket, pid)) => self.pending_creates.push(PendingCreate {
                socket,
                subject,
                origin,
                deadline: Instant::now() + CREATE_TIMEOUT,
                helper: Some(pid),
                ready: None,
            }),
            Err(error) => {
                let message = format!("starting a helper: {error}");
                self.abandon(origin, subject, RequestErrorKind::Other, &message);
            }
        }
    }

    pub(super) fn create(&mut self, origin: RequestOrigin, spec: ContainerSpec) {
        if let Err((kind, message)) = self.check_new(&spec) {
            return self.connections.refuse(origin, kind, message);
        }
        let streams = spec.streams.clone().unwrap_or_default();
        let terminal = spec.process.as_ref().is_some_and(|process| process.terminal);
        let pipes = if terminal {
            Ok((None, None))
        } else {
            pipes(&streams, &self.null)
                .map(|(own_ends, container_ends)| (Some(own_ends), Some(container_ends)))
        };
        let prepared = pipes.and_then(|(own_ends, container_ends)| {
            let security = spec.security.clone().unwrap_or_default();
            records::write_security(&self.dir, &spec.id, &security)?;
            Ok((own_ends, container_ends, self.null.open(OFlags::RDWR)?))
        });
        let (own_ends, container_ends, null) = match prepared {
            Ok(pipes) => pipes,
            Err(error) => {
                let message = format!("preparing the container {}: {error}", spec.id);
                return self.connections.refuse(origin, RequestErrorKind::Other, message);
            }
        };
        let id = spec.id.clone();
        let namespaces = spec.namespaces.clone().unwrap_or_default();
        let target = self.containers.get(&namespaces.pid_target).and_then(|one| {
            self.files.namespace(one.state.pid, "pid").ok().filter(|_| one.pidfd.is_some())
        });
        let no_namespaces = PodNamespaces::default();
        let handler = OciHandler::of(&spec, &self.dir);
        let pod = self.pod.as_ref();
        let helper = if let Some(handler) = &handler {
            let pod = pod.map_or(&no_namespaces, |pod| &pod.namespaces);
            handler::make(handler, &spec, pod, target.as_ref(), container_ends)
        } else {
            let inputs = CreateInputs {
                spec: &spec,
                pod: pod.map_or(&no_namespaces, |pod| &pod.namespaces),
                mappings: pod.and_then(|pod| pod.spec.user_namespace.as_ref()),
                target_pid: target.as_ref().map(|one| one.as_fd()),
                process: &self.files,
                hierarchy: self.hierarchy.as_ref(),
                streams: container_ends,
                null: null.as_fd(),
            };
            in_helper(|reporter| container_create::create(inputs, &reporter))
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
                oom_kills_before: None,
                draining: None,
                deleting: Vec::new(),
                reopening: Vec::new(),
                exec_groups: Vec::new(),
            },
        );
        self.add_pending_create(
            origin,
            CreateSubject::Container { id, streams, pipes: own_ends },
            helper,
        );
    }

    fn check_new(&self, spec: &ContainerSpec) -> Result<(), (RequestErrorKind, String)> {
        let id = &spec.id;
        if !records::is_plain(id) {
            return Err((
                RequestErrorKind::InvalidSpec,
                format!("{id:?} cannot be a container's id"),
            ));
        }
        if self.containers.contains_key(id) {
            return Err((RequestErrorKind::Exists, format!("the container {id} is there already")));
        }
        if self.shutdown.is_some() {
            return Err((RequestErrorKind::WrongState, "the pod is being ended".to_owned()));
        }
        Ok(())
    }

    pub(super) fn exec(&mut self, origin: RequestOrigin, request: Exec, descriptors: Vec<OwnedFd>) {
        match self.start_exec(&request, descriptors) {
            Ok((group, helper)) => {
                let limit = std::time::Duration::from_millis(request.timeout_milliseconds);
                let deadline = (request.timeout_milliseconds > 0).then(|| Instant::now() + limit);
                let state = ExecState {
                    exec: request.exec.clone(),
                    container: request.container,
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
                self.execs.insert(request.exec.clone(), process);
                self.add_pending_create(origin, CreateSubject::Exec { id: request.exec }, helper);
            }
            Err((kind, message)) => self.connections.refuse(origin, kind, message),
        }
    }

    #[allow(clippy::type_complexity, reason = "used once")]
    fn start_exec(
        &mut self,
        request: &Exec,
        descriptors: Vec<OwnedFd>,
    ) -> Result<(Option<String>, io::Result<(OwnedFd, i32)>), (RequestErrorKind, String)> {
        let id = &request.container;
        if !records::is_plain(&request.exec) || self.execs.contains_key(&request.exec) {
            let exec = &request.exec;
            return Err((
                RequestErrorKind::Exists,
                format!("{exec:?} is taken or cannot be an exec's id"),
            ));
        }
        let container = self
            .containers
            .get(id)
            .ok_or_else(|| (RequestErrorKind::NotFound, format!("there is no container {id}")))?;
        let pidfd = container
            .pidfd
            .as_ref()
            .filter(|_| {
                container.state.phase() == ContainerPhase::Running && container.draining.is_none()
            })
            .ok_or_else(|| {
                (RequestErrorKind::WrongState, format!("the container {id} is not running"))
            })?;
        let process = request.process.clone().unwrap_or_default();
        let streams = streams_of(request, descriptors, &self.null)
            .and_then(|streams| Ok((streams, self.null.open(OFlags::RDWR)?)));
        let (streams, null) = streams.map_err(|error| {
            (RequestErrorKind::InvalidSpec, format!("the exec's streams: {error}"))
        })?;
        let mut security: SecuritySpec =
            records::read_security(&self.dir, id).map_err(|error| {
                (RequestErrorKind::Other, format!("reading what {id} may do: {error}"))
            })?;
        if let Some(user) = &request.user {
            security.uid = user.uid;
            security.gid = user.gid;
            security.additional_gids = user.additional_gids.clone();
        }
        if let Some(handler) = &container.handler {
            let streams = (!process.terminal).then_some(streams);
            let new =
                HandlerExec { id: &request.exec, process: &process, security: &security, streams };
            return Ok((None, handler::enter(handler, &new)));
        }
        let group = self.group_of(container);
        let group = group.map(|group| group.attachable_cgroup(container.state.pid));
        let exec_group = group
            .as_ref()
            .filter(|_| request.timeout_milliseconds > 0)
            .and_then(|group| group.child(&format!("keelson-exec-{}", request.exec)).ok());
        let inputs = ExecInputs {
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
        let helper = in_helper(|reporter| container_create::enter_container(inputs, &reporter));
        Ok((exec_group.map(|group| group.path().to_owned()), helper))
    }

    /// Reads the reports of all helpers.
    pub(super) fn read_create_reports(&mut self) {
        let mut at = 0;
        while at < self.pending_creates.len() {
            match exchange::receive(&self.pending_creates[at].socket) {
                Ok(Some(CreateReport::Started { pid, pidfd })) => {
                    self.on_helper_started(at, pid, pidfd);
                }
                Ok(Some(CreateReport::Ready { names, descriptors })) => {
                    if self.on_helper_ready(at, &names, descriptors) {
                        self.pending_creates.remove(at);
                    }
                }
                Ok(Some(CreateReport::Failed(trouble))) => {
                    let pending = self.pending_creates.remove(at);
                    let kind = request_error_kind(&trouble);
                    self.abandon(pending.origin, pending.subject, kind, &trouble.message);
                }
                Ok(None) => {
                    let pending = self.pending_creates.remove(at);
                    self.on_helper_closed(pending);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => at += 1,
                Err(error) => {
                    let pending = self.pending_creates.remove(at);
                    let message = format!("hearing from the helper: {error}");
                    self.abandon(
                        pending.origin,
                        pending.subject,
                        RequestErrorKind::Other,
                        &message,
                    );
                }
            }
        }
    }

    fn on_helper_started(&mut self, at: usize, pid: u32, pidfd: OwnedFd) {
        match &mut self.pending_creates[at].subject {
            CreateSubject::Pod { init, .. } => *init = Some((pid, pidfd)),
            CreateSubject::Container { id, .. } => {
                if let Some(container) = self.containers.get_mut(id) {
                    container.state.pid = pid;
                    container.state.start_ticks = self.files.start_ticks(pid).unwrap_or_default();
                    container.pidfd = Some(pidfd);
                }
            }
            CreateSubject::Exec { id } => {
                if let Some(exec) = self.execs.get_mut(id) {
                    exec.state.pid = pid;
                    exec.start_ticks = self.files.start_ticks(pid).unwrap_or_default();
                    exec.pidfd = Some(pidfd);
                }
            }
        }
    }

    /// True: the create is finished.
    fn on_helper_ready(
        &mut self,
        at: usize,
        names: &[String],
        mut descriptors: Vec<OwnedFd>,
    ) -> bool {
        match &mut self.pending_creates[at].subject {
            CreateSubject::Pod { spec, init } => {
                let namespaces = PodNamespaces::from_named(names, descriptors);
                self.pod =
                    Some(Pod { spec: std::mem::take(&mut **spec), namespaces, init: init.take() });
                let state = self.pod_state();
                self.connections.respond(
                    self.pending_creates[at].origin,
                    ResponseBody::State(state),
                    Vec::new(),
                );
                true
            }
            CreateSubject::Exec { .. } => {
                // The program runs once the socket is closed.
                self.pending_creates[at].ready = Some(descriptors.pop());
                false
            }
            CreateSubject::Container { .. } => {
                self.on_container_ready(at, descriptors.pop());
                true
            }
        }
    }

    fn on_container_ready(&mut self, at: usize, terminal: Option<OwnedFd>) {
        let pending = &mut self.pending_creates[at];
        let origin = pending.origin;
        let CreateSubject::Container { id, streams, pipes } = &mut pending.subject else { return };
        let id = id.clone();
        let started = start_container_streams(streams, pipes.take(), terminal, &self.wake)
            .and_then(|streams| Ok((streams, pending.socket.try_clone()?)));
        let group = self.containers.get(&id).and_then(|container| self.group_of(container));
        let oom_kills = group.as_ref().and_then(|group| self.unclaimed_oom_kills(group));
        let Some(container) = self.containers.get_mut(&id) else { return };
        match started {
            Ok((streams, socket)) => {
                container.streams = Some(streams);
                container.start = Some(socket);
                container.oom_kills_before = oom_kills;
                container.memory = group.and_then(|group| MemoryEventsWatch::new(&group).ok());
                container.state.set_phase(ContainerPhase::Created);
                // A delete was requested before the container was created.
                if (!container.deleting.is_empty() || self.shutdown.is_some())
                    && let Some(pidfd) = &container.pidfd
                {
                    let _ = rustix::process::pidfd_send_signal(pidfd, Signal::KILL);
                }
                let state = container.state.clone();
                if let Err(error) = records::write_state(&self.dir, &state) {
                    eprintln!("keelson-pod: the record of {id}: {error}");
                }
                self.connections.respond(origin, ResponseBody::Container(state), Vec::new());
            }
            Err(error) => {
                let message = format!("the streams of {id}: {error}");
                let subject =
                    CreateSubject::Container { id, streams: StreamsSpec::default(), pipes: None };
                self.abandon(origin, subject, RequestErrorKind::Other, &message);
            }
        }
    }

    /// The helper closed its socket: an exec that was ready runs now; anything else has failed.
    fn on_helper_closed(&mut self, pending: PendingCreate) {
        let PendingCreate { subject, origin, ready, .. } = pending;
        if let (CreateSubject::Exec { id }, Some(terminal)) = (&subject, ready) {
            let state = self.execs.get(id).map(|exec| exec.state.clone()).unwrap_or_default();
            self.connections.respond(
                origin,
                ResponseBody::Exec(state),
                terminal.into_iter().collect(),
            );
            let early = self.execs.get_mut(id).and_then(|exec| exec.early_exit.take());
            if let Some(exit) = early {
                self.exec_ended(id, exit);
            }
            return;
        }
        let message = "the process was killed before its program ran";
        self.abandon(origin, subject, RequestErrorKind::Other, message);
    }

    /// Removes partial results, then sends the error.
    pub(super) fn abandon(
        &mut self,
        origin: RequestOrigin,
        subject: CreateSubject,
        kind: RequestErrorKind,
        message: &str,
    ) {
        match subject {
            CreateSubject::Pod { spec, init } => {
                if let Some((_, pidfd)) = init {
                    let _ = rustix::process::pidfd_send_signal(&pidfd, Signal::KILL);
                }
                container_create::unpin(&spec.network_pin);
            }
            CreateSubject::Container { id, .. } => {
                if let Some(container) = self.containers.remove(&id) {
                    if let Some(pidfd) = &container.pidfd {
                        let _ = rustix::process::pidfd_send_signal(pidfd, Signal::KILL);
                    }
                    records::forget(&self.dir, &id);
                    let rejected = RejectedRequest { origin, kind, message: message.to_owned() };
                    let group = self.group_of(&container);
                    let then = AfterJob::Refuse(rejected, container.deleting);
                    return match (&container.handler, group) {
                        (Some(handler), group) => {
                            self.delete_by_handler(handler, group.as_ref(), then);
                        }
                        (None, Some(group)) => self.remove_group(&group, then),
                        (None, None) => self.finish_cgroup_job(then, None),
                    };
                }
            }
            CreateSubject::Exec { id } => {
                if let Some(exec) = self.execs.remove(&id) {
                    if let Some(pidfd) = &exec.pidfd {
                        let _ = rustix::process::pidfd_send_signal(pidfd, Signal::KILL);
                    }
                    self.end_exec_group(&exec, true);
                    if exec.timed_out {
                        let message = "its time was over before its program ran";
                        return self.connections.refuse(
                            origin,
                            RequestErrorKind::Deadline,
                            message,
                        );
                    }
                }
            }
        }
        self.connections.refuse(origin, kind, message);
    }

    pub(super) fn abandon_overdue_creates(&mut self, now: Instant) {
        while let Some(at) = self.pending_creates.iter().position(|pending| pending.deadline <= now)
        {
            let pending = self.pending_creates.remove(at);
            if let Some(helper) = pending.helper.and_then(Pid::from_raw) {
                let _ = rustix::process::kill_process(helper, Signal::KILL);
            }
            let message = format!("it took longer than {} seconds", CREATE_TIMEOUT.as_secs());
            self.abandon(pending.origin, pending.subject, RequestErrorKind::Deadline, &message);
        }
    }
}

fn start_container_streams(
    spec: &StreamsSpec,
    pipes: Option<Pipes>,
    terminal: Option<OwnedFd>,
    wake: &std::sync::Arc<OwnedFd>,
) -> io::Result<ContainerStreams> {
    let has_terminal = terminal.is_some();
    let (output, error, input) = match (terminal, pipes) {
        (Some(terminal), _) => {
            let input = spec.stdin.then(|| terminal.try_clone()).transpose()?;
            (terminal, None, input)
        }
        (None, Some(pipes)) => (pipes.output, Some(pipes.error), pipes.input),
        (None, None) => return Err(io::Error::other("no terminal came")),
    };
    ContainerStreams::start(StreamsStart {
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
    request: &Exec,
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
        next(request.stdin, OFlags::RDONLY)?,
        next(request.stdout, OFlags::WRONLY)?,
        next(request.stderr, OFlags::WRONLY)?,
    ])
}
