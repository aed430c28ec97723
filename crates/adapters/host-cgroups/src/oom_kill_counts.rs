//! OOM kills as counted by the cgroups themselves, for machines where the kernel's log cannot be
//! read.
//!
//! Rules: event-driven: a descriptor of each cgroup becomes ready on a memory event, and the count
//! is authoritative. Version 1 notifies before it kills, so a count that has not changed yet is
//! read again a few times. Version 2 notifies whenever a cgroup runs into its limit, up to a
//! hundred times a second, so events are handled at most once a second. A cgroup's count is lost
//! with it.

use std::collections::BTreeMap;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use cgroup_files::{Cgroup, MemoryEventsWatch};
use ports::pod_host::HostError;
use rustix::event::PollFlags;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::task::JoinSet;

use crate::groups::{CgroupSetup, HostCgroups, cgroup_error, oom_kills_in};

/// After a memory event: when to read again, as long as the count has not changed.
const REREAD_PAUSES: [Duration; 7] = [
    Duration::from_millis(1),
    Duration::from_millis(4),
    Duration::from_millis(15),
    Duration::from_millis(50),
    Duration::from_millis(200),
    Duration::from_millis(700),
    Duration::from_secs(2),
];

/// Version 2: between an event without an OOM kill and the next read.
const MIN_READ_INTERVAL: Duration = Duration::from_secs(1);

type Counts = BTreeMap<String, u64>;

/// Waits for more OOM kills in the direct child cgroups than are known.
pub(crate) async fn wait_for_new_kills(
    host: &HostCgroups,
    name: &[String],
    known: &Counts,
) -> Result<Counts, HostError> {
    let setup = host.setup().await?;
    let group = setup.group(&CgroupSetup::name(name)?)?;
    let no_children =
        || HostError::Permanent(format!("there is nothing below the group {}", group.path()));
    let above = group.clone();
    let blocking_pool =
        |error| HostError::Transient(format!("control group {}: {error}", group.path()));
    let watches =
        host.blocking_pool.run(move || watch_below(&above)).await.map_err(blocking_pool)??;
    if watches.is_empty() {
        return Err(no_children());
    }
    // Each watch is awaited in a task of its own, which ends with this one.
    let mut memory_event_tasks = JoinSet::new();
    for (watch, group) in watches {
        memory_event_tasks.spawn(wait_for_memory_event(WatchedCgroup::new(watch, group)?));
    }
    let mut pauses = [].iter();
    let mut throttled = false;
    loop {
        let above = group.clone();
        let counts =
            host.blocking_pool.run(move || counts_below(&above)).await.map_err(blocking_pool)??;
        if counts.iter().any(|(name, count)| known.get(name).is_none_or(|old| old < count)) {
            return Ok(counts);
        }
        if std::mem::take(&mut throttled) {
            tokio::time::sleep(MIN_READ_INTERVAL).await;
            continue;
        }
        let woken = match pauses.next() {
            Some(pause) => match tokio::time::timeout(*pause, memory_event_tasks.join_next()).await
            {
                Ok(woken) => woken,
                Err(_) => continue,
            },
            None => memory_event_tasks.join_next().await,
        };
        match woken {
            Some(Ok(Some(watched))) => {
                throttled = interest(&watched.watch) == Interest::PRIORITY;
                if !throttled && pauses.as_slice().is_empty() {
                    pauses = REREAD_PAUSES.iter();
                }
                memory_event_tasks.spawn(wait_for_memory_event(watched));
            }
            // That cgroup is gone, or cannot be watched any more; others may go on.
            Some(_) => {}
            None => return Err(no_children()),
        }
    }
}

/// A watched cgroup.
struct WatchedCgroup {
    watch: MemoryEventsWatch,
    ready: AsyncFd<OwnedFd>,
    group: Cgroup,
}

impl WatchedCgroup {
    /// Must be called within a tokio runtime.
    fn new(watch: MemoryEventsWatch, group: Cgroup) -> Result<Self, HostError> {
        let descriptor = watch.as_fd().try_clone_to_owned();
        let ready = descriptor.and_then(|descriptor| async_fd(descriptor, interest(&watch)));
        let ready = ready.map_err(|error| {
            HostError::Transient(format!("watching the group {}: {error}", group.path()))
        })?;
        Ok(Self { watch, ready, group })
    }
}

/// The watch again, after an event; `None` if there will be no more.
async fn wait_for_memory_event(watched: WatchedCgroup) -> Option<WatchedCgroup> {
    let mut guard = watched.ready.ready(interest(&watched.watch)).await.ok()?;
    watched.watch.rearm();
    guard.clear_ready();
    drop(guard);
    // Removing a cgroup makes its descriptor ready, too.
    watched.group.exists_in_any_hierarchy().then_some(watched)
}

fn interest(watch: &MemoryEventsWatch) -> Interest {
    if watch.interest().contains(PollFlags::PRI) { Interest::PRIORITY } else { Interest::READABLE }
}

fn watch_below(group: &Cgroup) -> Result<Vec<(MemoryEventsWatch, Cgroup)>, HostError> {
    let mut all = Vec::new();
    for child in below(group)? {
        match MemoryEventsWatch::new(&child) {
            Ok(watch) => all.push((watch, child)),
            // A half-created or half-removed cgroup must not cost the others' events.
            Err(error) if error.is_missing() || !child.exists_in_any_hierarchy() => {}
            Err(error) => return Err(cgroup_error(&error)),
        }
    }
    Ok(all)
}

#[expect(deprecated, reason = "what its unsafe successor asks, an owned descriptor keeps")]
fn async_fd(descriptor: OwnedFd, interest: Interest) -> std::io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(descriptor, interest)
}

fn counts_below(group: &Cgroup) -> Result<Counts, HostError> {
    let mut counts = Counts::new();
    for child in below(group)? {
        let name = child.path().rsplit('/').next().unwrap_or_default().to_owned();
        match oom_kills_in(&child) {
            Ok(0) => {}
            Ok(kills) => {
                counts.insert(name, kills);
            }
            Err(error) if error.is_missing() => {}
            Err(error) => return Err(cgroup_error(&error)),
        }
    }
    Ok(counts)
}

fn below(group: &Cgroup) -> Result<Vec<Cgroup>, HostError> {
    match group.children() {
        Ok(children) => Ok(children),
        Err(error) if error.is_missing() => Ok(Vec::new()),
        Err(error) => Err(cgroup_error(&error)),
    }
}
