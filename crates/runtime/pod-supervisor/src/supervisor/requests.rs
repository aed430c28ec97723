//! Requests of servers.
//!
//! Rule: every request gets one response, at once or when the work is done; an unknown one is
//! refused by name. The sender's credentials are trusted, the content is not.

use std::os::fd::OwnedFd;

use container_create::exchange::{self, CreateReport};
use rustix::process::Signal;

use crate::protocol::frame::ReceivedFrame;
use crate::protocol::{
    Attach, ContainerPhase, ContainerState, Empty, Hello, Kill, PodState, RequestBody,
    RequestErrorKind, Resize, ResponseBody, SupervisorRequest, VERSION,
};

use super::pending_creates::request_error_kind;
use super::{Container, RequestOrigin, Supervisor, handler, now, records, signals};

type ErrorParts = (RequestErrorKind, String);

impl Supervisor {
    pub(super) fn serve(&mut self, connection: u64, received: ReceivedFrame<SupervisorRequest>) {
        let ReceivedFrame { message, descriptors } = received;
        let origin = RequestOrigin { connection, request: message.id };
        match message.body {
            Some(RequestBody::Pod(spec)) => self.create_pod(origin, spec),
            Some(RequestBody::Create(spec)) => self.create(origin, spec),
            Some(RequestBody::Exec(body)) => {
                self.sweep_exec_groups(&body.container);
                self.exec(origin, body, descriptors);
            }
            Some(RequestBody::Delete(name)) => self.delete(origin, &name.id),
            Some(RequestBody::Shutdown(Empty {})) => self.begin_shutdown(origin),
            Some(RequestBody::ReopenLog(name)) => self.reopen_log(origin, &name.id),
            Some(RequestBody::Start(name)) => self.start(origin, &name.id),
            Some(RequestBody::Kill(kill)) if self.kill_by_handler(origin, &kill) => {}
            Some(body) => match self.respond_now(connection, body, descriptors) {
                Ok((told, descriptors)) => self.connections.respond(origin, told, descriptors),
                Err((kind, message)) => self.connections.refuse(origin, kind, message),
            },
            None => {
                let message =
                    format!("version {VERSION} of the supervisor does not know this request");
                self.connections.refuse(origin, RequestErrorKind::Unknown, message);
            }
        }
    }

    fn respond_now(
        &mut self,
        connection: u64,
        body: RequestBody,
        descriptors: Vec<OwnedFd>,
    ) -> Result<(ResponseBody, Vec<OwnedFd>), ErrorParts> {
        let done = ResponseBody::Done(Empty {});
        match body {
            RequestBody::Hello(_) => {
                self.connections.greet(connection);
                let program = env!("CARGO_PKG_VERSION").to_owned();
                return Ok((ResponseBody::Hello(Hello { version: VERSION, program }), Vec::new()));
            }
            RequestBody::List(Empty {}) => {
                return Ok((ResponseBody::State(self.pod_state()), Vec::new()));
            }
            RequestBody::Namespaces(Empty {}) => return self.namespaces(),
            RequestBody::Kill(kill) => self.kill(&kill)?,
            RequestBody::Attach(attach) => self.attach(&attach, descriptors)?,
            RequestBody::Resize(resize) => self.resize(&resize)?,
            RequestBody::CloseStdin(name) => {
                let container = self.known(&name.id)?;
                if let Some(streams) = &container.streams {
                    let _ = streams.close_input();
                }
            }
            _ => {
                return Err((
                    RequestErrorKind::Unknown,
                    "this request is not answered at once".into(),
                ));
            }
        }
        Ok((done, Vec::new()))
    }

    fn known(&self, id: &str) -> Result<&Container, ErrorParts> {
        self.containers
            .get(id)
            .ok_or_else(|| (RequestErrorKind::NotFound, format!("there is no container {id}")))
    }

    pub(super) fn pod_state(&self) -> PodState {
        PodState {
            containers: self
                .containers
                .values()
                .map(|one| ContainerState { starting: one.starting.is_some(), ..one.state.clone() })
                .collect(),
            execs: self.execs.values().map(|one| one.state.clone()).collect(),
            pod_created: self.pod.is_some(),
            namespaces: self.namespace_names(),
            supervisor_pid: rustix::process::getpid().as_raw_nonzero().get().unsigned_abs(),
            init_pid: self
                .pod
                .as_ref()
                .and_then(|pod| pod.init.as_ref())
                .map_or(0, |(pid, _)| *pid),
        }
    }

    fn namespace_names(&self) -> Vec<String> {
        let named = self.pod.as_ref().map(|pod| pod.namespaces.named()).unwrap_or_default();
        named.into_iter().map(|(name, _)| name.to_owned()).collect()
    }

    fn namespaces(&self) -> Result<(ResponseBody, Vec<OwnedFd>), ErrorParts> {
        let named = self.pod.as_ref().map(|pod| pod.namespaces.named()).unwrap_or_default();
        let copies: Result<Vec<OwnedFd>, _> =
            named.into_iter().map(|(_, one)| one.try_clone_to_owned()).collect();
        let copies = copies.map_err(|error| (RequestErrorKind::Other, error.to_string()))?;
        Ok((ResponseBody::State(self.pod_state()), copies))
    }

    fn start(&mut self, origin: RequestOrigin, id: &str) {
        let outcome = match self.containers.get_mut(id) {
            None => Err((RequestErrorKind::NotFound, format!("there is no container {id}"))),
            Some(container) => match (container.state.phase(), &container.start) {
                (ContainerPhase::Created, Some(socket)) if container.starting.is_none() => {
                    let started = match &container.handler {
                        None => exchange::allow_start(socket),
                        Some(handler) => handler::start(handler).map(|(socket, _)| {
                            container.start = Some(socket);
                            // It may have exited before the start is confirmed.
                            container.state.started_at = now();
                        }),
                    };
                    started
                        .map_err(|error| {
                            (RequestErrorKind::Other, format!("starting {id}: {error}"))
                        })
                        .map(|()| container.starting = Some(origin))
                }
                (phase, _) => {
                    Err((RequestErrorKind::WrongState, format!("{id} is {phase:?}, not Created")))
                }
            },
        };
        if let Err((kind, message)) = outcome {
            self.connections.refuse(origin, kind, message);
        }
    }

    /// Takes reports of programs that have started or could not be run.
    pub(super) fn read_start_reports(&mut self) {
        let starting: Vec<String> = self
            .containers
            .iter()
            .filter(|(_, one)| one.starting.is_some())
            .map(|(id, _)| id.clone())
            .collect();
        for id in starting {
            let Some(container) = self.containers.get_mut(&id) else { continue };
            let Some(socket) = &container.start else { continue };
            let outcome = match exchange::receive(socket) {
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => continue,
                Ok(None) if container.handler.is_none() => Ok(()),
                Ok(None) => Err((RequestErrorKind::Other, "the start was interrupted".to_owned())),
                Ok(Some(CreateReport::Ready { .. })) if container.handler.is_some() => Ok(()),
                Ok(Some(CreateReport::Failed(trouble))) => {
                    Err((request_error_kind(&trouble), trouble.message))
                }
                Ok(Some(_)) => continue,
                Err(error) => Err((RequestErrorKind::Other, error.to_string())),
            };
            let Some(origin) = container.starting.take() else { continue };
            container.start = None;
            match outcome {
                Ok(()) => {
                    container.state.set_phase(ContainerPhase::Running);
                    container.state.started_at = now();
                    let state: ContainerState = container.state.clone();
                    if let Err(error) = records::write_state(&self.dir, &state) {
                        eprintln!("keelson-pod: the record of {id}: {error}");
                    }
                    self.connections.respond(origin, ResponseBody::Container(state), Vec::new());
                }
                Err((kind, message)) => {
                    container.state.started_at = 0;
                    self.connections.refuse(origin, kind, message);
                }
            }
        }
    }

    fn kill(&mut self, kill: &Kill) -> Result<(), ErrorParts> {
        if !signals::is_signal(kill.signal) {
            return Err((RequestErrorKind::InvalidSpec, format!("{} is no signal", kill.signal)));
        }
        self.known(&kill.id)?;
        let exec = self.execs.get(&kill.exec).filter(|exec| kill.all && exec.group.is_none());
        if exec.is_some() && self.kill_tree(&kill.exec) {
            return Ok(());
        }
        let container = self.known(&kill.id)?;
        let (pidfd, group) = match kill.exec.as_str() {
            "" => (container.pidfd.as_ref(), self.group_of(container)),
            exec => {
                let exec = self.execs.get(exec).ok_or_else(|| {
                    (RequestErrorKind::NotFound, format!("there is no exec {exec}"))
                })?;
                let path = exec.group.as_ref();
                let group = path.and_then(|path| self.hierarchy.as_ref()?.group(path).ok());
                (exec.pidfd.as_ref(), group)
            }
        };
        // A process that has exited needs no signal.
        let sent = pidfd.map_or(Ok(()), |pidfd| signals::send(pidfd, kill.signal));
        if let (true, Some(group)) = (kill.all, group) {
            self.kill_group(&group);
        }
        match sent {
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(errno) => {
                Err((RequestErrorKind::Other, format!("signalling {}: {errno}", kill.id)))
            }
        }
    }

    fn attach(&mut self, attach: &Attach, descriptors: Vec<OwnedFd>) -> Result<(), ErrorParts> {
        let id = &attach.container;
        let container = self.known(id)?;
        let streams = container.streams.as_ref().filter(|streams| !streams.is_drained());
        let streams = streams.ok_or_else(|| {
            (RequestErrorKind::WrongState, format!("the container {id} has ended"))
        })?;
        let mut descriptors = descriptors.into_iter();
        let mut next = |flagged: bool| if flagged { descriptors.next() } else { None };
        let chosen = [next(attach.stdin), next(attach.stdout), next(attach.stderr)];
        streams
            .attach(&chosen)
            .map_err(|error| (RequestErrorKind::Other, format!("attaching to {id}: {error}")))
    }

    fn resize(&mut self, resize: &Resize) -> Result<(), ErrorParts> {
        let id = &resize.container;
        let streams = self.known(id)?.streams.as_ref().filter(|streams| streams.has_terminal());
        let streams = streams
            .ok_or_else(|| (RequestErrorKind::WrongState, format!("{id} has no terminal")))?;
        streams.resize(resize.size.unwrap_or_default()).map_err(|error| {
            (RequestErrorKind::Other, format!("resizing the terminal of {id}: {error}"))
        })
    }

    fn reopen_log(&mut self, origin: RequestOrigin, id: &str) {
        let Some(container) = self.containers.get_mut(id) else {
            return self.connections.refuse(
                origin,
                RequestErrorKind::NotFound,
                format!("there is no container {id}"),
            );
        };
        match container.streams.as_mut().map(super::ContainerStreams::reopen) {
            Some(Ok(number)) => container.reopening.push((origin, number)),
            // Its output has ended; no more lines will be written.
            _ => self.connections.respond(origin, ResponseBody::Done(Empty {}), Vec::new()),
        }
    }

    fn begin_shutdown(&mut self, origin: RequestOrigin) {
        if self.shutdown.replace(origin).is_some() {
            return;
        }
        let all: Vec<(String, bool)> = self
            .containers
            .iter()
            .map(|(id, one)| (id.clone(), one.state.exit.is_some()))
            .collect();
        for (id, ended) in all {
            if ended {
                self.delete_ended(&id);
            } else if let Some(pidfd) = self.containers.get(&id).and_then(|one| one.pidfd.as_ref())
            {
                let _ = rustix::process::pidfd_send_signal(pidfd, Signal::KILL);
            }
        }
    }

    /// When all containers are gone, removes the namespaces and exits.
    pub(super) fn finish_shutdown(&mut self) {
        let Some(origin) = self.shutdown else { return };
        if self.ended
            || !self.containers.is_empty()
            || !self.pending_creates.is_empty()
            || !self.cgroup_jobs.is_empty()
        {
            return;
        }
        if let Some(pod) = self.pod.take() {
            if let Some((_, pidfd)) = &pod.init {
                let _ = rustix::process::pidfd_send_signal(pidfd, Signal::KILL);
            }
            container_create::unpin(&pod.spec.network_pin);
        }
        let _ = std::fs::remove_file(self.dir.join(crate::SOCKET));
        let _ = std::fs::remove_dir(records::dir(&self.dir));
        self.connections.respond(origin, ResponseBody::Done(Empty {}), Vec::new());
        self.ended = true;
    }
}
