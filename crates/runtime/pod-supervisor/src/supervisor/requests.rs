//! Requests of servers.
//!
//! Rule: every request gets one response, at once or when the work is done; an unknown one is
//! refused by name. The sender's credentials are trusted, the content is not.

use std::os::fd::OwnedFd;

use container_create::exchange::{self, Report};
use rustix::process::Signal;

use crate::protocol::frame::Received;
use crate::protocol::{
    Ask, Attach, ContainerState, FailureKind, Hello, Kill, Nothing, Phase, PodState, Request,
    Resize, Told, VERSION,
};

use super::births::failure_kind;
use super::{Asker, Container, Supervisor, handler, now, records, signals};

type Refusal = (FailureKind, String);

impl Supervisor {
    pub(super) fn serve(&mut self, connection: u64, received: Received<Request>) {
        let Received { message, descriptors } = received;
        let asker = Asker { connection, request: message.id };
        match message.ask {
            Some(Ask::Pod(spec)) => self.make_pod(asker, spec),
            Some(Ask::Create(spec)) => self.create(asker, spec),
            Some(Ask::Exec(ask)) => {
                self.sweep_exec_groups(&ask.container);
                self.exec(asker, ask, descriptors);
            }
            Some(Ask::Delete(name)) => self.delete(asker, &name.id),
            Some(Ask::Shutdown(Nothing {})) => self.begin_shutdown(asker),
            Some(Ask::ReopenLog(name)) => self.reopen_log(asker, &name.id),
            Some(Ask::Start(name)) => self.start(asker, &name.id),
            Some(Ask::Kill(kill)) if self.kill_by_handler(asker, &kill) => {}
            Some(ask) => match self.answer_now(connection, ask, descriptors) {
                Ok((told, descriptors)) => self.connections.answer(asker, told, descriptors),
                Err((kind, message)) => self.connections.refuse(asker, kind, message),
            },
            None => {
                let message =
                    format!("version {VERSION} of the supervisor does not know this request");
                self.connections.refuse(asker, FailureKind::Unknown, message);
            }
        }
    }

    fn answer_now(
        &mut self,
        connection: u64,
        ask: Ask,
        descriptors: Vec<OwnedFd>,
    ) -> Result<(Told, Vec<OwnedFd>), Refusal> {
        let done = Told::Done(Nothing {});
        match ask {
            Ask::Hello(_) => {
                self.connections.greet(connection);
                let program = env!("CARGO_PKG_VERSION").to_owned();
                return Ok((Told::Hello(Hello { version: VERSION, program }), Vec::new()));
            }
            Ask::List(Nothing {}) => return Ok((Told::State(self.pod_state()), Vec::new())),
            Ask::Namespaces(Nothing {}) => return self.namespaces(),
            Ask::Kill(kill) => self.kill(&kill)?,
            Ask::Attach(attach) => self.attach(&attach, descriptors)?,
            Ask::Resize(resize) => self.resize(&resize)?,
            Ask::CloseStdin(name) => {
                let container = self.known(&name.id)?;
                if let Some(streams) = &container.streams {
                    let _ = streams.close_input();
                }
            }
            _ => return Err((FailureKind::Unknown, "this request is not answered at once".into())),
        }
        Ok((done, Vec::new()))
    }

    fn known(&self, id: &str) -> Result<&Container, Refusal> {
        self.containers
            .get(id)
            .ok_or_else(|| (FailureKind::NotFound, format!("there is no container {id}")))
    }

    pub(super) fn pod_state(&self) -> PodState {
        PodState {
            containers: self
                .containers
                .values()
                .map(|one| ContainerState { starting: one.starting.is_some(), ..one.state.clone() })
                .collect(),
            execs: self.execs.values().map(|one| one.state.clone()).collect(),
            pod_made: self.pod.is_some(),
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

    fn namespaces(&self) -> Result<(Told, Vec<OwnedFd>), Refusal> {
        let named = self.pod.as_ref().map(|pod| pod.namespaces.named()).unwrap_or_default();
        let copies: Result<Vec<OwnedFd>, _> =
            named.into_iter().map(|(_, one)| one.try_clone_to_owned()).collect();
        let copies = copies.map_err(|error| (FailureKind::Other, error.to_string()))?;
        Ok((Told::State(self.pod_state()), copies))
    }

    fn start(&mut self, asker: Asker, id: &str) {
        let outcome = match self.containers.get_mut(id) {
            None => Err((FailureKind::NotFound, format!("there is no container {id}"))),
            Some(container) => match (container.state.phase(), &container.start) {
                (Phase::Created, Some(socket)) if container.starting.is_none() => {
                    let begun = match &container.handler {
                        None => exchange::go(socket),
                        Some(handler) => handler::start(handler).map(|(socket, _)| {
                            container.start = Some(socket);
                            // It may have exited before the start is confirmed.
                            container.state.started_at = now();
                        }),
                    };
                    begun
                        .map_err(|error| (FailureKind::Other, format!("starting {id}: {error}")))
                        .map(|()| container.starting = Some(asker))
                }
                (phase, _) => {
                    Err((FailureKind::WrongState, format!("{id} is {phase:?}, not Created")))
                }
            },
        };
        if let Err((kind, message)) = outcome {
            self.connections.refuse(asker, kind, message);
        }
    }

    /// Takes reports of programs that have started or could not be run.
    pub(super) fn hear_starts(&mut self) {
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
                Ok(None) => Err((FailureKind::Other, "the start was interrupted".to_owned())),
                Ok(Some(Report::Ready { .. })) if container.handler.is_some() => Ok(()),
                Ok(Some(Report::Failed(trouble))) => Err((failure_kind(&trouble), trouble.message)),
                Ok(Some(_)) => continue,
                Err(error) => Err((FailureKind::Other, error.to_string())),
            };
            let Some(asker) = container.starting.take() else { continue };
            container.start = None;
            match outcome {
                Ok(()) => {
                    container.state.set_phase(Phase::Running);
                    container.state.started_at = now();
                    let state: ContainerState = container.state.clone();
                    if let Err(error) = records::write_state(&self.folder, &state) {
                        eprintln!("keelson-pod: the record of {id}: {error}");
                    }
                    self.connections.answer(asker, Told::Container(state), Vec::new());
                }
                Err((kind, message)) => {
                    container.state.started_at = 0;
                    self.connections.refuse(asker, kind, message);
                }
            }
        }
    }

    fn kill(&mut self, kill: &Kill) -> Result<(), Refusal> {
        if !signals::is_signal(kill.signal) {
            return Err((FailureKind::BadSpec, format!("{} is no signal", kill.signal)));
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
                let exec = self
                    .execs
                    .get(exec)
                    .ok_or_else(|| (FailureKind::NotFound, format!("there is no exec {exec}")))?;
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
            Err(errno) => Err((FailureKind::Other, format!("signalling {}: {errno}", kill.id))),
        }
    }

    fn attach(&mut self, attach: &Attach, descriptors: Vec<OwnedFd>) -> Result<(), Refusal> {
        let id = &attach.container;
        let container = self.known(id)?;
        let streams = container.streams.as_ref().filter(|streams| !streams.is_drained());
        let streams = streams
            .ok_or_else(|| (FailureKind::WrongState, format!("the container {id} has ended")))?;
        let mut descriptors = descriptors.into_iter();
        let mut next = |flagged: bool| if flagged { descriptors.next() } else { None };
        let chosen = [next(attach.stdin), next(attach.stdout), next(attach.stderr)];
        streams
            .attach(&chosen)
            .map_err(|error| (FailureKind::Other, format!("attaching to {id}: {error}")))
    }

    fn resize(&mut self, resize: &Resize) -> Result<(), Refusal> {
        let id = &resize.container;
        let streams = self.known(id)?.streams.as_ref().filter(|streams| streams.has_terminal());
        let streams =
            streams.ok_or_else(|| (FailureKind::WrongState, format!("{id} has no terminal")))?;
        streams.resize(resize.size.unwrap_or_default()).map_err(|error| {
            (FailureKind::Other, format!("resizing the terminal of {id}: {error}"))
        })
    }

    fn reopen_log(&mut self, asker: Asker, id: &str) {
        let Some(container) = self.containers.get_mut(id) else {
            return self.connections.refuse(
                asker,
                FailureKind::NotFound,
                format!("there is no container {id}"),
            );
        };
        match container.streams.as_mut().map(super::Streams::reopen) {
            Some(Ok(number)) => container.reopening.push((asker, number)),
            // Its output has ended; no more lines will be written.
            _ => self.connections.answer(asker, Told::Done(Nothing {}), Vec::new()),
        }
    }

    fn begin_shutdown(&mut self, asker: Asker) {
        if self.shutdown.replace(asker).is_some() {
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
        let Some(asker) = self.shutdown else { return };
        if self.ended
            || !self.containers.is_empty()
            || !self.births.is_empty()
            || !self.chores.is_empty()
        {
            return;
        }
        if let Some(pod) = self.pod.take() {
            if let Some((_, pidfd)) = &pod.init {
                let _ = rustix::process::pidfd_send_signal(pidfd, Signal::KILL);
            }
            container_create::unpin(&pod.spec.network_pin);
        }
        let _ = std::fs::remove_file(self.folder.join(crate::SOCKET));
        let _ = std::fs::remove_dir(records::folder(&self.folder));
        self.connections.answer(asker, Told::Done(Nothing {}), Vec::new());
        self.ended = true;
    }
}
