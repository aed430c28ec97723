//! The supervisor's event loop.
//!
//! Rule: every wait ends with a ready descriptor or at the nearest deadline. Ready descriptors are
//! handled in a fixed order: helpers' reports before exited children, so that a PID is known before
//! its exit.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{Supervisor, signals};

/// What became ready.
enum Ready {
    Listener,
    Signals,
    Wake,
    Connection(u64),
    Memory(String),
}

impl Supervisor {
    pub(super) fn run(&mut self) {
        while !(self.ended && self.connections.is_flushed()) {
            let ready = self.wait();
            self.hear_births();
            self.hear_starts();
            for one in ready {
                match one {
                    Ready::Listener => self.connections.accept(),
                    Ready::Signals => {
                        signals::drain(&self.signals);
                        self.reap();
                    }
                    Ready::Wake => self.hear_streams(),
                    Ready::Memory(id) => self.hear_memory(&id),
                    Ready::Connection(id) => {
                        self.connections.write(id);
                        for request in self.connections.read(id) {
                            self.serve(id, request);
                        }
                    }
                }
            }
            self.hear_chores();
            self.keep_deadlines(Instant::now());
            self.finish_shutdown();
            self.connections.drop_broken();
        }
    }

    fn nearest_deadline(&self) -> Option<Instant> {
        let births = self.births.iter().map(|birth| birth.deadline);
        let drains = self
            .containers
            .values()
            .filter_map(|container| container.draining.as_ref().map(|(_, until)| *until));
        let execs = self.execs.values().filter_map(|exec| exec.deadline);
        births.chain(drains).chain(execs).min()
    }

    /// The polled descriptors and their sources; creates, jobs and starts are checked on every
    /// pass.
    fn watched(&self) -> Vec<(BorrowedFd<'_>, PollFlags, Option<Ready>)> {
        let read = PollFlags::IN;
        // Before exited children: a cgroup and its count may be removed with its last process.
        let mut watched: Vec<(BorrowedFd<'_>, PollFlags, Option<Ready>)> = self
            .containers
            .iter()
            .filter_map(|(id, container)| {
                let memory = container.memory.as_ref()?;
                Some((memory.as_fd(), memory.interest(), Some(Ready::Memory(id.clone()))))
            })
            .collect();
        watched.extend([
            (self.signals.as_fd(), read, Some(Ready::Signals)),
            (self.wake.as_fd(), read, Some(Ready::Wake)),
            (self.connections.listener(), read, Some(Ready::Listener)),
        ]);
        for (id, socket, writes) in self.connections.watched() {
            let flags = if writes { read | PollFlags::OUT } else { read };
            watched.push((socket, flags, Some(Ready::Connection(id))));
        }
        watched.extend(self.births.iter().map(|birth| (birth.socket.as_fd(), read, None)));
        watched.extend(self.chores.iter().map(|chore| (chore.socket.as_fd(), read, None)));
        for container in self.containers.values() {
            if let Some(start) = container.start.as_ref().filter(|_| container.starting.is_some()) {
                watched.push((start.as_fd(), read, None));
            }
        }
        watched
    }

    fn wait(&self) -> Vec<Ready> {
        let (mut descriptors, whats): (Vec<PollFd<'_>>, Vec<Option<Ready>>) = self
            .watched()
            .into_iter()
            .map(|(descriptor, flags, what)| (PollFd::from_borrowed_fd(descriptor, flags), what))
            .unzip();
        let limit = self.nearest_deadline().map(|deadline| {
            let left = deadline.saturating_duration_since(Instant::now());
            // Rounded up: waking too early would only wait again.
            timespec(left + Duration::from_millis(1))
        });
        if poll(&mut descriptors, limit.as_ref()).is_err() {
            return Vec::new();
        }
        descriptors
            .iter()
            .zip(whats)
            .filter(|(descriptor, _)| !descriptor.revents().is_empty())
            .filter_map(|(_, what)| what)
            .collect()
    }
}

fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(duration.subsec_nanos()),
    }
}
