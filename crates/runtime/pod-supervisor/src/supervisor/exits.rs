//! Exits of processes, and expired deadlines.
//!
//! Rule: an exit is reported once, after the output is written (or a short timeout) and the exit
//! record is on disk. When the first process of a container in a shared PID namespace exits, the
//! rest of its cgroup is killed, as in a PID namespace of its own.

use std::time::Instant;

use cgroup_files::{Cgroup, CgroupVersion};
use container_create::spec::NamespaceMode;
use rustix::process::{WaitOptions, WaitStatus};

use crate::protocol::{
    ContainerPhase, ContainerState, Empty, Event, EventBody, ProcessExit, RequestErrorKind,
    ResponseBody,
};

use super::{DRAIN_TIMEOUT, Supervisor, now, records};

/// How many finished execs stay listed.
const FINISHED_EXECS: usize = 64;

fn exit_of(status: WaitStatus) -> ProcessExit {
    let signal = status.terminating_signal().unwrap_or(0);
    let code = status.exit_status().unwrap_or(128 + signal);
    ProcessExit { code, signal, finished_at: now(), ..ProcessExit::default() }
}

impl Supervisor {
    pub(super) fn reap(&mut self) {
        while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
            // Reports that it sent before it exited come first.
            self.read_create_reports();
            self.read_start_reports();
            let number = pid.as_raw_nonzero().get();
            for pending in
                self.pending_creates.iter_mut().filter(|pending| pending.helper == Some(number))
            {
                pending.helper = None;
            }
            let pid = number.unsigned_abs();
            let exit = exit_of(status);
            let container = self
                .containers
                .values()
                .find(|one| one.state.pid == pid && one.pidfd.is_some())
                .map(|one| one.state.id.clone());
            let exec =
                self.execs.iter().find(|(_, one)| one.state.pid == pid && one.pidfd.is_some());
            let exec = exec.map(|(id, _)| id.clone());
            match (container, exec) {
                (Some(id), _) => self.container_ended(&id, exit),
                (None, Some(id)) => self.exec_ended(&id, exit),
                // The pod's init: its exit ends the shared PID namespace and all processes in it.
                (None, None) => {
                    if let Some(pod) = &mut self.pod
                        && pod.init.as_ref().is_some_and(|(init, _)| *init == pid)
                    {
                        pod.init = None;
                    }
                }
            }
        }
    }

    fn container_ended(&mut self, id: &str, mut exit: ProcessExit) {
        let Some(container) = self.containers.get(id) else { return };
        let group = self.group_of(container);
        let has_own_pid_namespace = container.namespaces.pid() == NamespaceMode::Container;
        // The OOM event may still be unread.
        let oom_kills = group.as_ref().and_then(|group| match group.oom_kill_count() {
            Ok(oom_kills) => Some(oom_kills),
            // A scope is removed with its last process; its count remains in the parent's.
            Err(_) => {
                let more =
                    self.unclaimed_oom_kills(group)?.saturating_sub(container.oom_kills_before?);
                Some(container.state.out_of_memory_kills + more)
            }
        });
        self.record_oom_kills(id, oom_kills.unwrap_or_default());
        let Some(container) = self.containers.get_mut(id) else { return };
        container.pidfd = None;
        container.memory = None;
        exit.out_of_memory = container.state.out_of_memory_kills > 0;
        container.draining = Some((exit, Instant::now() + DRAIN_TIMEOUT));
        // Recorded at once: no other copy exists. Reported when the output is written.
        if container.starting.is_some() && container.state.started_at == 0 {
            container.state.started_at = exit.finished_at;
        }
        let mut state = ContainerState { exit: Some(exit), ..container.state.clone() };
        state.set_phase(ContainerPhase::Exited);
        if let Err(error) = records::write_state(&self.dir, &state) {
            eprintln!("keelson-pod: the record of {id}: {error}");
        }
        if let (Some(group), false) = (group, has_own_pid_namespace) {
            self.kill_group(&group);
        }
        self.finish_drained();
    }

    /// OOM kills in the parent cgroup (the pod's) that are attributed to no container of this pod.
    /// Only cgroup v2 counts hierarchically.
    pub(super) fn unclaimed_oom_kills(&self, group: &Cgroup) -> Option<u64> {
        let parent = group.parent().filter(|parent| !parent.is_root())?;
        if parent.hierarchy().version() != CgroupVersion::V2 {
            return None;
        }
        Some(parent.oom_kill_count().ok()?.saturating_sub(self.claimed_oom_kills))
    }

    /// Records a container's OOM kill count and reports an increase.
    fn record_oom_kills(&mut self, id: &str, oom_kills: u64) {
        let Some(container) = self.containers.get_mut(id) else { return };
        let before = container.state.out_of_memory_kills;
        if oom_kills > before {
            self.claimed_oom_kills += oom_kills - before;
            container.state.out_of_memory_kills = oom_kills;
            let event = Event { body: Some(EventBody::OutOfMemory(container.state.clone())) };
            self.connections.announce(&event);
        }
    }

    /// A container thread has woken the supervisor.
    pub(super) fn on_stream_wake(&mut self) {
        let _ = rustix::io::read(&*self.wake, &mut [0; 8]);
        self.finish_drained();
        self.respond_to_reopened();
    }

    fn finish_drained(&mut self) {
        let drained: Vec<String> = self
            .containers
            .iter()
            .filter(|(_, one)| one.draining.is_some())
            .filter(|(_, one)| one.streams.as_ref().is_none_or(super::ContainerStreams::is_drained))
            .map(|(id, _)| id.clone())
            .collect();
        for id in drained {
            self.announce_exit(&id);
        }
    }

    fn announce_exit(&mut self, id: &str) {
        let Some(container) = self.containers.get_mut(id) else { return };
        let Some((exit, _)) = container.draining.take() else { return };
        container.state.exit = Some(exit);
        container.state.set_phase(ContainerPhase::Exited);
        container.start = None;
        let starting = container.starting.take();
        let state = container.state.clone();
        let deleting = !container.deleting.is_empty();
        // It exited before its start could be confirmed.
        if let Some(origin) = starting {
            self.connections.respond(origin, ResponseBody::Container(state.clone()), Vec::new());
        }
        let event = Event { body: Some(EventBody::ContainerExited(state)) };
        self.connections.announce(&event);
        if deleting || self.shutdown.is_some() {
            self.delete_ended(id);
        }
    }

    pub(super) fn exec_ended(&mut self, id: &str, mut exit: ProcessExit) {
        let being_created = self.pending_creates.iter().any(|pending| pending.subject.is_exec(id));
        let Some(mut exec) = self.execs.remove(id) else { return };
        if being_created {
            exec.early_exit = Some(exit);
            self.execs.insert(id.to_owned(), exec);
            return;
        }
        exec.pidfd = None;
        exec.deadline = None;
        exit.timed_out = exec.timed_out;
        exec.state.exit = Some(exit);
        let timed_out = exec.timed_out;
        self.end_exec_group(&exec, timed_out);
        let event = Event { body: Some(EventBody::ExecExited(exec.state.clone())) };
        self.connections.announce(&event);
        self.execs.insert(id.to_owned(), exec);
        let mut finished: Vec<(i64, String)> = self
            .execs
            .iter()
            .filter_map(|(id, one)| Some((one.state.exit?.finished_at, id.clone())))
            .collect();
        finished.sort_unstable();
        for (_, old) in finished.iter().rev().skip(FINISHED_EXECS) {
            self.execs.remove(old);
        }
    }

    pub(super) fn on_oom_event(&mut self, id: &str) {
        let Some(container) = self.containers.get(id) else { return };
        if let Some(memory) = &container.memory {
            memory.rearm();
        }
        let oom_kills = self.group_of(container).and_then(|group| group.oom_kill_count().ok());
        match (oom_kills, self.containers.get_mut(id)) {
            (Some(oom_kills), _) => self.record_oom_kills(id, oom_kills),
            // The cgroup is removed; its descriptor would stay ready for ever.
            (None, Some(container)) => container.memory = None,
            (None, None) => {}
        }
    }

    fn respond_to_reopened(&mut self) {
        let mut responses = Vec::new();
        for container in self.containers.values_mut() {
            let Some(streams) = &container.streams else { continue };
            let (done, mut error) = streams.reopened();
            let drained = streams.is_drained();
            let (over, waiting): (Vec<_>, Vec<_>) =
                container.reopening.drain(..).partition(|(_, number)| *number <= done || drained);
            container.reopening = waiting;
            responses.extend(over.into_iter().map(|(origin, _)| (origin, error.take())));
        }
        for (origin, error) in responses {
            match error {
                None => self.connections.respond(origin, ResponseBody::Done(Empty {}), Vec::new()),
                Some(error) => {
                    let message = format!("opening the log: {error}");
                    self.connections.refuse(origin, RequestErrorKind::Other, message);
                }
            }
        }
    }

    pub(super) fn enforce_deadlines(&mut self, now: Instant) {
        self.abandon_overdue_creates(now);
        let overdue: Vec<String> = self
            .containers
            .iter()
            .filter(|(_, one)| one.draining.as_ref().is_some_and(|(_, until)| *until <= now))
            .map(|(id, _)| id.clone())
            .collect();
        for id in overdue {
            self.announce_exit(&id);
        }
        let overdue: Vec<String> = self
            .execs
            .iter()
            .filter(|(_, one)| one.deadline.is_some_and(|deadline| deadline <= now))
            .map(|(id, _)| id.clone())
            .collect();
        for id in overdue {
            self.time_out_exec(&id);
        }
    }

    /// The timeout of an exec has expired: its whole tree is killed.
    fn time_out_exec(&mut self, id: &str) {
        let Some(exec) = self.execs.get_mut(id) else { return };
        exec.deadline = None;
        exec.timed_out = true;
        let group = exec.group.clone();
        if group.is_none() && self.kill_tree(id) {
            return;
        }
        if let Some(pidfd) = self.execs.get(id).and_then(|exec| exec.pidfd.as_ref()) {
            let _ = rustix::process::pidfd_send_signal(pidfd, rustix::process::Signal::KILL);
        }
        let group = group.and_then(|path| self.hierarchy.as_ref()?.group(&path).ok());
        if let Some(group) = group {
            self.kill_group(&group);
        }
    }
}
