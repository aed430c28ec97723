//! Watches a cgroup for OOM kills.
//!
//! Rule: the count is authoritative; the descriptor only means "read it again". Works while the
//! cgroup exists. Does not know which process was killed.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use rustix::event::{EventfdFlags, PollFlags, eventfd};

use crate::error::{CgroupError, Result, read, write};
use crate::group::Cgroup;
use crate::hierarchy::{CgroupVersion, Controller};

/// A descriptor that becomes ready (see [`MemoryEventsWatch::interest`]) on a memory event of the cgroup.
#[derive(Debug)]
pub struct MemoryEventsWatch {
    descriptor: OwnedFd,
    /// Version 1 drops the registration when this is closed.
    _control: Option<File>,
    version: CgroupVersion,
}

impl MemoryEventsWatch {
    pub fn new(group: &Cgroup) -> Result<Self> {
        let version = group.hierarchy().version();
        let dir = group.dir_for(Controller::Memory, "watching memory")?;
        let open = |file: &str| {
            let path = dir.join(file);
            File::open(&path).map_err(|source| CgroupError::Read { path, source })
        };
        if version == CgroupVersion::V2 {
            let mut file = open("memory.events")?;
            // The first read arms the notification.
            let _ = file.read(&mut [0; 1024]);
            return Ok(Self { descriptor: file.into(), _control: None, version });
        }
        let control = open("memory.oom_control")?;
        let event =
            eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(|errno| {
                CgroupError::Read { path: PathBuf::from("eventfd"), source: errno.into() }
            })?;
        use std::os::fd::AsRawFd;
        let registration = format!("{} {}", event.as_raw_fd(), control.as_raw_fd());
        write(&dir.join("cgroup.event_control"), &registration)?;
        Ok(Self { descriptor: event, _control: Some(control), version })
    }

    /// What to poll the descriptor for.
    pub fn interest(&self) -> PollFlags {
        match self.version {
            CgroupVersion::V1 => PollFlags::IN,
            CgroupVersion::V2 => PollFlags::PRI,
        }
    }

    /// Arms the descriptor for the next event; call it before reading the count.
    pub fn rearm(&self) {
        let mut buffer = [0; 1024];
        match self.version {
            CgroupVersion::V1 => drop(rustix::io::read(&self.descriptor, &mut buffer)),
            CgroupVersion::V2 => drop(rustix::io::pread(&self.descriptor, &mut buffer, 0)),
        }
    }
}

impl AsFd for MemoryEventsWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl Cgroup {
    /// How many processes of the cgroup (version 2: and of its descendants) were OOM killed since
    /// it was created.
    pub fn oom_kill_count(&self) -> Result<u64> {
        let file = match self.hierarchy().version() {
            CgroupVersion::V1 => "memory.oom_control",
            CgroupVersion::V2 => "memory.events",
        };
        let path = self.dir_for(Controller::Memory, file)?.join(file);
        let text = read(&path)?;
        let count = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        count.map_or(Ok(0), |count| crate::error::number(&path, count.trim()))
    }
}
