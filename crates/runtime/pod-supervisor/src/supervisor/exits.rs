//! Exits of processes, and expired deadlines.
//!
//! Rule: an exit is reported once, after the output is written (or a short timeout) and the exit
//! record is on disk. When the first process of a container in a shared PID namespace exits, the
//! rest of its cgroup is killed, as in a PID namespace of its own.

use std::time::Instant;

use cgroup_files::{Cgroup, Version};
use container_create::spec::NamespaceMode;
use rustix::process::{WaitOptions, WaitStatus};

use crate::protocol::{ContainerState, Event, Exit, FailureKind, Happened, Nothing, Phase, Told};

use super::{DRAIN, Supervisor, now, records};

/// How many finished execs stay listed.
const FINISHED_EXECS: usize = 64;

fn exit_of(status: WaitStatus) -> Exit {
    let signal = status.terminating_signal().unwrap_or(0);
    let code = status.exit_status().unwrap_or(128 + signal);
    Exit { code, signal, finished_at: now(), ..Exit::default() }
}

impl Supervisor {
    pub(super) fn reap(&mut self) {
        while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
            // Reports that it sent before it exited come first.
            self.hear_births();
            self.hear_starts();
            let number = pid.as_raw_nonzero().get();
            for birth in self.births.iter_mut().filter(|birth| birth.helper == Some(number)) {
                birth.helper = None;
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

    fn container_ended(&mut self, id: &str, mut exit: Exit) {
        let Some(container) = self.containers.get(id) else { return };
        let group = self.group_of(container);
        let own_pids = container.namespaces.pid() == NamespaceMode::Container;
        // The OOM event may still be unread.
        let kills = group.as_ref().and_then(|group| match group.out_of_memory_kills() {
            Ok(kills) => Some(kills),
            // A scope is removed with its last process; its count remains in the parent's.
            Err(_) => {
                let more = self.unclaimed_kills(group)?.saturating_sub(container.kills_before?);
                Some(container.state.out_of_memory_kills + more)
            }
        });
        self.note_kills(id, kills.unwrap_or_default());
        let Some(container) = self.containers.get_mut(id) else { return };
        container.pidfd = None;
        container.memory = None;
        exit.out_of_memory = container.state.out_of_memory_kills > 0;
        container.draining = Some((exit, Instant::now() + DRAIN));
        // Recorded at once: no other copy exists. Reported when the output is written.
        if container.starting.is_some() && container.state.started_at == 0 {
            container.state.started_at = exit.finished_at;
        }
        let mut state = ContainerState { exit: Some(exit), ..container.state.clone() };
        state.set_phase(Phase::Exited);
        if let Err(error) = records::write_state(&self.folder, &state) {
            eprintln!("keelson-pod: the record of {id}: {error}");
        }
        if let (Some(group), false) = (group, own_pids) {
            self.kill_group(&group);
        }
        self.settle_drained();
    }

    /// OOM kills in the parent cgroup (the pod's) that are attributed to no container of this pod.
    /// Only cgroup v2 counts hierarchically.
    pub(super) fn unclaimed_kills(&self, group: &Cgroup) -> Option<u64> {
        let above = group.parent().filter(|above| !above.is_root())?;
        if above.hierarchy().version() != Version::V2 {
            return None;
        }
        Some(above.out_of_memory_kills().ok()?.saturating_sub(self.claimed_kills))
    }

    /// Records a container's OOM kill count and reports an increase.
    fn note_kills(&mut self, id: &str, kills: u64) {
        let Some(container) = self.containers.get_mut(id) else { return };
        let before = container.state.out_of_memory_kills;
        if kills > before {
            self.claimed_kills += kills - before;
            container.state.out_of_memory_kills = kills;
            let event = Event { happened: Some(Happened::OutOfMemory(container.state.clone())) };
            self.connections.announce(&event);
        }
    }

    /// A container thread has woken the supervisor.
    pub(super) fn hear_streams(&mut self) {
        let _ = rustix::io::read(&*self.wake, &mut [0; 8]);
        self.settle_drained();
        self.answer_reopened();
    }

    fn settle_drained(&mut self) {
        let drained: Vec<String> = self
            .containers
            .iter()
            .filter(|(_, one)| one.draining.is_some())
            .filter(|(_, one)| one.streams.as_ref().is_none_or(super::Streams::is_drained))
            .map(|(id, _)| id.clone())
            .collect();
        for id in drained {
            self.announce_end(&id);
        }
    }

    fn announce_end(&mut self, id: &str) {
        let Some(container) = self.containers.get_mut(id) else { return };
        let Some((exit, _)) = container.draining.take() else { return };
        container.state.exit = Some(exit);
        container.state.set_phase(Phase::Exited);
        container.start = None;
        let starting = container.starting.take();
        let state = container.state.clone();
        let deleting = !container.deleting.is_empty();
        // It exited before its start could be confirmed.
        if let Some(asker) = starting {
            self.connections.answer(asker, Told::Container(state.clone()), Vec::new());
        }
        let event = Event { happened: Some(Happened::ContainerExited(state)) };
        self.connections.announce(&event);
        if deleting || self.shutdown.is_some() {
            self.delete_ended(id);
        }
    }

    pub(super) fn exec_ended(&mut self, id: &str, mut exit: Exit) {
        let being_born = self.births.iter().any(|birth| birth.subject.is_exec(id));
        let Some(mut exec) = self.execs.remove(id) else { return };
        if being_born {
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
        let event = Event { happened: Some(Happened::ExecExited(exec.state.clone())) };
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

    pub(super) fn hear_memory(&mut self, id: &str) {
        let Some(container) = self.containers.get(id) else { return };
        if let Some(memory) = &container.memory {
            memory.acknowledge();
        }
        let kills = self.group_of(container).and_then(|group| group.out_of_memory_kills().ok());
        match (kills, self.containers.get_mut(id)) {
            (Some(kills), _) => self.note_kills(id, kills),
            // The cgroup is removed; its descriptor would stay ready for ever.
            (None, Some(container)) => container.memory = None,
            (None, None) => {}
        }
    }

    fn answer_reopened(&mut self) {
        let mut answers = Vec::new();
        for container in self.containers.values_mut() {
            let Some(streams) = &container.streams else { continue };
            let (done, mut error) = streams.reopened();
            let drained = streams.is_drained();
            let (over, waiting): (Vec<_>, Vec<_>) =
                container.reopening.drain(..).partition(|(_, number)| *number <= done || drained);
            container.reopening = waiting;
            answers.extend(over.into_iter().map(|(asker, _)| (asker, error.take())));
        }
        for (asker, error) in answers {
            match error {
                None => self.connections.answer(asker, Told::Done(Nothing {}), Vec::new()),
                Some(error) => {
                    let message = format!("opening the log: {error}");
                    self.connections.refuse(asker, FailureKind::Other, message);
                }
            }
        }
    }

    pub(super) fn keep_deadlines(&mut self, now: Instant) {
        self.end_late_births(now);
        let late: Vec<String> = self
            .containers
            .iter()
            .filter(|(_, one)| one.draining.as_ref().is_some_and(|(_, until)| *until <= now))
            .map(|(id, _)| id.clone())
            .collect();
        for id in late {
            self.announce_end(&id);
        }
        let late: Vec<String> = self
            .execs
            .iter()
            .filter(|(_, one)| one.deadline.is_some_and(|deadline| deadline <= now))
            .map(|(id, _)| id.clone())
            .collect();
        for id in late {
            self.end_exec(&id);
        }
    }

    /// The timeout of an exec has expired: its whole tree is killed.
    fn end_exec(&mut self, id: &str) {
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
