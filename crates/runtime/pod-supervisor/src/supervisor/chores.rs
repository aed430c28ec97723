//! Slow work on cgroups, done by forked helpers.
//!
//! Rule: killing a cgroup may take several passes and removing it waits until its processes have
//! exited, so neither happens in the supervisor itself. Requests that wait for a job get its
//! result.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use cgroup_files::{Cgroup, Version};
use container_create::exchange::{self, Report};
use container_create::{Trouble, TroubleKind};

use crate::protocol::{FailureKind, Nothing, Told};

use super::births::in_helper;
use super::{Asker, ExecProcess, Supervisor, records};

/// How long killed processes may take to leave the cgroup.
const LEAVE: Duration = Duration::from_secs(10);

pub(super) struct Chore {
    pub(super) socket: OwnedFd,
    then: Then,
}

/// What follows a job.
pub(super) enum Then {
    Nothing,
    /// Answer the request with the result.
    Answer(Asker),
    /// Continue the container's deletion.
    Forget(String),
    /// Send the error of a failed create, not before its remains are gone, so that the same name
    /// can be used again. Delete requests may have arrived meanwhile.
    Refuse(Refusal, Vec<Asker>),
}

pub(super) struct Refusal {
    pub(super) asker: Asker,
    pub(super) kind: FailureKind,
    pub(super) message: String,
}

impl Supervisor {
    /// Sends SIGKILL to all processes of a cgroup.
    pub(super) fn kill_group(&mut self, group: &Cgroup) {
        let unified = group.hierarchy().version() == Version::V2;
        if unified && group.kill().is_ok() {
            return;
        }
        let helper = in_helper(|_reporter| drop(group.kill()));
        self.add_chore(Then::Nothing, helper);
    }

    /// Kills the processes of a cgroup and removes it.
    pub(super) fn remove_group(&mut self, group: &Cgroup, then: Then) {
        let helper = in_helper(|reporter| {
            if let Err(error) = group.end_within(LEAVE) {
                let trouble = Trouble { kind: TroubleKind::Other, message: error.to_string() };
                let _ = reporter.failed(&trouble);
            }
        });
        self.add_chore(then, helper);
    }

    pub(super) fn add_chore(&mut self, then: Then, helper: io::Result<(OwnedFd, i32)>) {
        match helper {
            Ok((socket, _)) => self.chores.push(Chore { socket, then }),
            Err(error) => {
                let message = format!("starting a helper: {error}");
                self.finish_chore(then, Some(message));
            }
        }
    }

    pub(super) fn hear_chores(&mut self) {
        let mut at = 0;
        while at < self.chores.len() {
            match exchange::receive(&self.chores[at].socket) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => at += 1,
                Ok(Some(Report::Failed(trouble))) => {
                    let chore = self.chores.remove(at);
                    self.finish_chore(chore.then, Some(trouble.message));
                }
                _ => {
                    let chore = self.chores.remove(at);
                    self.finish_chore(chore.then, None);
                }
            }
        }
    }

    pub(super) fn finish_chore(&mut self, then: Then, trouble: Option<String>) {
        let id = match then {
            Then::Forget(id) => id,
            Then::Answer(asker) => {
                return match trouble {
                    None => self.connections.answer(asker, Told::Done(Nothing {}), Vec::new()),
                    Some(trouble) => self.connections.refuse(asker, FailureKind::Other, trouble),
                };
            }
            other => {
                if let Some(trouble) = trouble {
                    eprintln!("keelson-pod: {trouble}");
                }
                if let Then::Refuse(refusal, deleters) = other {
                    let Refusal { asker, kind, message } = refusal;
                    self.connections.refuse(asker, kind, message);
                    for deleter in deleters {
                        self.connections.answer(deleter, Told::Done(Nothing {}), Vec::new());
                    }
                }
                return;
            }
        };
        match trouble {
            None => self.forget_container(&id),
            Some(trouble) => {
                eprintln!("keelson-pod: removing {id}: {trouble}");
                let container = self.containers.get_mut(&id);
                let askers = container.map(|one| std::mem::take(&mut one.deleting));
                // The pod's shutdown fails too. All waiting requests get the error; only a new
                // request starts another attempt.
                for asker in askers.unwrap_or_default().into_iter().chain(self.shutdown.take()) {
                    self.connections.refuse(asker, FailureKind::Other, trouble.clone());
                }
            }
        }
    }

    pub(super) fn forget_container(&mut self, id: &str) {
        records::forget(&self.folder, id);
        self.execs.retain(|_, exec| exec.state.container != id);
        for asker in self.containers.remove(id).map(|one| one.deleting).unwrap_or_default() {
            self.connections.answer(asker, Told::Done(Nothing {}), Vec::new());
        }
    }

    pub(super) fn delete(&mut self, asker: Asker, id: &str) {
        let Some(container) = self.containers.get_mut(id) else {
            return self.connections.refuse(
                asker,
                FailureKind::NotFound,
                format!("there is no container {id}"),
            );
        };
        container.deleting.push(asker);
        // Already requested, perhaps by a client that has died.
        if container.deleting.len() > 1 {
            return;
        }
        let ended = container.state.exit.is_some();
        if let Some(pidfd) = container.pidfd.as_ref().filter(|_| !ended) {
            let _ = rustix::process::pidfd_send_signal(pidfd, rustix::process::Signal::KILL);
        }
        if ended {
            self.delete_ended(id);
        }
        // Otherwise the deletion continues when the container exits.
    }

    pub(super) fn delete_ended(&mut self, id: &str) {
        // Already running: its result goes to all waiting requests.
        if self.chores.iter().any(|one| matches!(&one.then, Then::Forget(other) if other == id)) {
            return;
        }
        let Some(container) = self.containers.get_mut(id) else { return };
        container.memory = None;
        container.streams = None;
        let Some(container) = self.containers.get(id) else { return };
        let then = Then::Forget(id.to_owned());
        match (container.handler.clone(), self.group_of(container)) {
            (Some(handler), group) => self.delete_by_handler(&handler, group.as_ref(), then),
            (None, Some(group)) => self.remove_group(&group, then),
            (None, None) => self.forget_container(id),
        }
    }

    /// Removes an exec's cgroup if it is empty; leftovers are retried with the next exec, and are
    /// removed with the container at the latest.
    pub(super) fn end_exec_group(&mut self, exec: &ExecProcess, kill: bool) {
        let Some(path) = &exec.group else { return };
        let group = self.hierarchy.as_ref().and_then(|hierarchy| hierarchy.group(path).ok());
        let Some(group) = group else { return };
        if kill && group.exists_somewhere() {
            return self.remove_group(&group, Then::Nothing);
        }
        if group.remove().is_err()
            && let Some(container) = self.containers.get_mut(&exec.state.container)
        {
            container.exec_groups.push(path.clone());
        }
    }

    pub(super) fn sweep_exec_groups(&mut self, id: &str) {
        let Some(hierarchy) = &self.hierarchy else { return };
        if let Some(container) = self.containers.get_mut(id) {
            container
                .exec_groups
                .retain(|path| hierarchy.group(path).is_ok_and(|group| group.remove().is_err()));
        }
    }
}
