//! Slow work on cgroups, done by forked helpers.
//!
//! Rule: killing a cgroup may take several passes and removing it waits until its processes have
//! exited, so neither happens in the supervisor itself. Requests that wait for a job get its
//! result.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use cgroup_files::{Cgroup, CgroupVersion};
use container_create::exchange::{self, CreateReport};
use container_create::{CreateError, CreateErrorKind};

use crate::protocol::{Empty, RequestErrorKind, ResponseBody};

use super::pending_creates::in_helper;
use super::{ExecProcess, RequestOrigin, Supervisor, records};

/// How long killed processes may take to leave the cgroup.
const CGROUP_EMPTY_TIMEOUT: Duration = Duration::from_secs(10);

pub(super) struct CgroupJob {
    pub(super) socket: OwnedFd,
    after: AfterJob,
}

/// What follows a job.
pub(super) enum AfterJob {
    Nothing,
    /// Answer the request with the result.
    Respond(RequestOrigin),
    /// Continue the container's deletion.
    Forget(String),
    /// Send the error of a failed create, not before its remains are gone, so that the same name
    /// can be used again. Delete requests may have arrived meanwhile.
    Refuse(RejectedRequest, Vec<RequestOrigin>),
}

pub(super) struct RejectedRequest {
    pub(super) origin: RequestOrigin,
    pub(super) kind: RequestErrorKind,
    pub(super) message: String,
}

impl Supervisor {
    /// Sends SIGKILL to all processes of a cgroup.
    pub(super) fn kill_group(&mut self, group: &Cgroup) {
        let unified = group.hierarchy().version() == CgroupVersion::V2;
        if unified && group.kill().is_ok() {
            return;
        }
        let helper = in_helper(|_reporter| drop(group.kill()));
        self.add_cgroup_job(AfterJob::Nothing, helper);
    }

    /// Kills the processes of a cgroup and removes it.
    pub(super) fn remove_group(&mut self, group: &Cgroup, after: AfterJob) {
        let helper = in_helper(|reporter| {
            if let Err(error) = group.kill_and_remove_within(CGROUP_EMPTY_TIMEOUT) {
                let trouble =
                    CreateError { kind: CreateErrorKind::Other, message: error.to_string() };
                let _ = reporter.failed(&trouble);
            }
        });
        self.add_cgroup_job(after, helper);
    }

    pub(super) fn add_cgroup_job(&mut self, after: AfterJob, helper: io::Result<(OwnedFd, i32)>) {
        match helper {
            Ok((socket, _)) => self.cgroup_jobs.push(CgroupJob { socket, after }),
            Err(error) => {
                let message = format!("starting a helper: {error}");
                self.finish_cgroup_job(after, Some(message));
            }
        }
    }

    pub(super) fn read_cgroup_jobs(&mut self) {
        let mut at = 0;
        while at < self.cgroup_jobs.len() {
            match exchange::receive(&self.cgroup_jobs[at].socket) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => at += 1,
                Ok(Some(CreateReport::Failed(error))) => {
                    let job = self.cgroup_jobs.remove(at);
                    self.finish_cgroup_job(job.after, Some(error.message));
                }
                _ => {
                    let job = self.cgroup_jobs.remove(at);
                    self.finish_cgroup_job(job.after, None);
                }
            }
        }
    }

    pub(super) fn finish_cgroup_job(&mut self, after: AfterJob, error: Option<String>) {
        let id = match after {
            AfterJob::Forget(id) => id,
            AfterJob::Respond(origin) => {
                return match error {
                    None => {
                        self.connections.respond(origin, ResponseBody::Done(Empty {}), Vec::new());
                    }
                    Some(error) => self.connections.refuse(origin, RequestErrorKind::Other, error),
                };
            }
            other => {
                if let Some(error) = error {
                    eprintln!("keelson-pod: {error}");
                }
                if let AfterJob::Refuse(rejected, deleters) = other {
                    let RejectedRequest { origin, kind, message } = rejected;
                    self.connections.refuse(origin, kind, message);
                    for deleter in deleters {
                        self.connections.respond(deleter, ResponseBody::Done(Empty {}), Vec::new());
                    }
                }
                return;
            }
        };
        match error {
            None => self.forget_container(&id),
            Some(error) => {
                eprintln!("keelson-pod: removing {id}: {error}");
                let container = self.containers.get_mut(&id);
                let origins = container.map(|one| std::mem::take(&mut one.deleting));
                // The pod's shutdown fails too. All waiting requests get the error; only a new
                // request starts another attempt.
                for origin in origins.unwrap_or_default().into_iter().chain(self.shutdown.take()) {
                    self.connections.refuse(origin, RequestErrorKind::Other, error.clone());
                }
            }
        }
    }

    pub(super) fn forget_container(&mut self, id: &str) {
        records::forget(&self.dir, id);
        self.execs.retain(|_, exec| exec.state.container != id);
        for origin in self.containers.remove(id).map(|one| one.deleting).unwrap_or_default() {
            self.connections.respond(origin, ResponseBody::Done(Empty {}), Vec::new());
        }
    }

    pub(super) fn delete(&mut self, origin: RequestOrigin, id: &str) {
        let Some(container) = self.containers.get_mut(id) else {
            return self.connections.refuse(
                origin,
                RequestErrorKind::NotFound,
                format!("there is no container {id}"),
            );
        };
        container.deleting.push(origin);
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
        if self
            .cgroup_jobs
            .iter()
            .any(|one| matches!(&one.after, AfterJob::Forget(other) if other == id))
        {
            return;
        }
        let Some(container) = self.containers.get_mut(id) else { return };
        container.memory = None;
        container.streams = None;
        let Some(container) = self.containers.get(id) else { return };
        let after = AfterJob::Forget(id.to_owned());
        match (container.handler.clone(), self.group_of(container)) {
            (Some(handler), group) => self.delete_by_handler(&handler, group.as_ref(), after),
            (None, Some(group)) => self.remove_group(&group, after),
            (None, None) => self.forget_container(id),
        }
    }

    /// Removes an exec's cgroup if it is empty; leftovers are retried with the next exec, and are
    /// removed with the container at the latest.
    pub(super) fn end_exec_group(&mut self, exec: &ExecProcess, kill: bool) {
        let Some(path) = &exec.group else { return };
        let group = self.hierarchy.as_ref().and_then(|hierarchy| hierarchy.group(path).ok());
        let Some(group) = group else { return };
        if kill && group.exists_in_any_hierarchy() {
            return self.remove_group(&group, AfterJob::Nothing);
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
