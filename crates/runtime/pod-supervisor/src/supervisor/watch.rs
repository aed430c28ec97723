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
enum ReadySource {
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
            self.read_create_reports();
            self.read_start_reports();
            for one in ready {
                match one {
                    ReadySource::Listener => self.connections.accept(),
                    ReadySource::Signals => {
                        signals::drain(&self.signals);
                        self.reap();
                    }
                    ReadySource::Wake => self.on_stream_wake(),
                    ReadySource::Memory(id) => self.on_oom_event(&id),
                    ReadySource::Connection(id) => {
                        self.connections.write(id);
                        for request in self.connections.read(id) {
                            self.serve(id, request);
                        }
                    }
                }
            }
            self.read_cgroup_jobs();
            self.enforce_deadlines(Instant::now());
            self.finish_shutdown();
            self.connections.drop_broken();
        }
    }

    fn nearest_deadline(&self) -> Option<Instant> {
        let pending_creates = self.pending_creates.iter().map(|pending| pending.deadline);
        let drains = self
            .containers
            .values()
            .filter_map(|container| container.draining.as_ref().map(|(_, until)| *until));
        let execs = self.execs.values().filter_map(|exec| exec.deadline);
        pending_creates.chain(drains).chain(execs).min()
    }

    /// The polled descriptors and their sources; creates, jobs and starts are checked on every
    /// pass.
    fn watched(&self) -> Vec<(BorrowedFd<'_>, PollFlags, Option<ReadySource>)> {
        let read = PollFlags::IN;
        // Before exited children: a cgroup and its count may be removed with its last process.
        let mut watched: Vec<(BorrowedFd<'_>, PollFlags, Option<ReadySource>)> = self
            .containers
            .iter()
            .filter_map(|(id, container)| {
                let memory = container.memory.as_ref()?;
                Some((memory.as_fd(), memory.interest(), Some(ReadySource::Memory(id.clone()))))
            })
            .collect();
        watched.extend([
            (self.signals.as_fd(), read, Some(ReadySource::Signals)),
            (self.wake.as_fd(), read, Some(ReadySource::Wake)),
            (self.connections.listener(), read, Some(ReadySource::Listener)),
        ]);
        for (id, socket, writes) in self.connections.watched() {
            let flags = if writes { read | PollFlags::OUT } else { read };
            watched.push((socket, flags, Some(ReadySource::Connection(id))));
        }
        watched.extend(
            self.pending_creates.iter().map(|pending| (pending.socket.as_fd(), read, None)),
        );
        watched.extend(self.cgroup_jobs.iter().map(|job| (job.socket.as_fd(), read, None)));
        for container in self.containers.values() {
            if let Some(start) = container.start.as_ref().filter(|_| container.starting.is_some()) {
                watched.push((start.as_fd(), read, None));
            }
        }
        watched
    }

    fn wait(&self) -> Vec<ReadySource> {
        let (mut descriptors, whats): (Vec<PollFd<'_>>, Vec<Option<ReadySource>>) = self
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
