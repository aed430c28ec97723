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

use cgroup_files::{Cgroup, MemoryWatch};
use ports::pod_host::HostError;
use rustix::event::PollFlags;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::task::JoinSet;

use crate::groups::{CgroupSetup, HostCgroups, kills_in, of_cgroup};

/// After a memory event: when to read again, as long as the count has not changed.
const READ_AGAIN: [Duration; 7] = [
    Duration::from_millis(1),
    Duration::from_millis(4),
    Duration::from_millis(15),
    Duration::from_millis(50),
    Duration::from_millis(200),
    Duration::from_millis(700),
    Duration::from_secs(2),
];

/// Version 2: between an event without an OOM kill and the next read.
const CALM: Duration = Duration::from_secs(1);

type Counts = BTreeMap<String, u64>;

/// Waits for more OOM kills in the direct child cgroups than are known.
pub(crate) async fn more(
    host: &HostCgroups,
    name: &[String],
    known: &Counts,
) -> Result<Counts, HostError> {
    let setup = host.setup().await?;
    let group = setup.group(&CgroupSetup::name(name)?)?;
    let gone = || HostError::Lasting(format!("there is nothing below the group {}", group.path()));
    let above = group.clone();
    let apart = |error| HostError::Passing(format!("control group {}: {error}", group.path()));
    let watches = host.apart.run(move || watch_below(&above)).await.map_err(apart)??;
    if watches.is_empty() {
        return Err(gone());
    }
    // Each watch is awaited in a task of its own, which ends with this one.
    let mut news = JoinSet::new();
    for (watch, group) in watches {
        news.spawn(next_news(Watched::new(watch, group)?));
    }
    let mut pauses = [].iter();
    let mut calm = false;
    loop {
        let above = group.clone();
        let counts = host.apart.run(move || counts_below(&above)).await.map_err(apart)??;
        if counts.iter().any(|(name, count)| known.get(name).is_none_or(|old| old < count)) {
            return Ok(counts);
        }
        if std::mem::take(&mut calm) {
            tokio::time::sleep(CALM).await;
            continue;
        }
        let heard = match pauses.next() {
            Some(pause) => match tokio::time::timeout(*pause, news.join_next()).await {
                Ok(heard) => heard,
                Err(_) => continue,
            },
            None => news.join_next().await,
        };
        match heard {
            Some(Ok(Some(watched))) => {
                calm = interest(&watched.watch) == Interest::PRIORITY;
                if !calm && pauses.as_slice().is_empty() {
                    pauses = READ_AGAIN.iter();
                }
                news.spawn(next_news(watched));
            }
            // That cgroup is gone, or cannot be watched any more; others may go on.
            Some(_) => {}
            None => return Err(gone()),
        }
    }
}

/// A watched cgroup.
struct Watched {
    watch: MemoryWatch,
    ready: AsyncFd<OwnedFd>,
    group: Cgroup,
}

impl Watched {
    /// Must be called within a tokio runtime.
    fn new(watch: MemoryWatch, group: Cgroup) -> Result<Self, HostError> {
        let descriptor = watch.as_fd().try_clone_to_owned();
        let ready = descriptor.and_then(|descriptor| asynchronous(descriptor, interest(&watch)));
        let ready = ready.map_err(|error| {
            HostError::Passing(format!("watching the group {}: {error}", group.path()))
        })?;
        Ok(Self { watch, ready, group })
    }
}

/// The watch again, after an event; `None` if there will be no more.
async fn next_news(watched: Watched) -> Option<Watched> {
    let mut guard = watched.ready.ready(interest(&watched.watch)).await.ok()?;
    watched.watch.acknowledge();
    guard.clear_ready();
    drop(guard);
    // Removing a cgroup makes its descriptor ready, too.
    watched.group.exists_somewhere().then_some(watched)
}

fn interest(watch: &MemoryWatch) -> Interest {
    if watch.interest().contains(PollFlags::PRI) { Interest::PRIORITY } else { Interest::READABLE }
}

fn watch_below(group: &Cgroup) -> Result<Vec<(MemoryWatch, Cgroup)>, HostError> {
    let mut all = Vec::new();
    for child in below(group)? {
        match MemoryWatch::new(&child) {
            Ok(watch) => all.push((watch, child)),
            // A half-created or half-removed cgroup must not cost the others' events.
            Err(error) if error.is_missing() || !child.exists_somewhere() => {}
            Err(error) => return Err(of_cgroup(&error)),
        }
    }
    Ok(all)
}

#[expect(deprecated, reason = "what its unsafe successor asks, an owned descriptor keeps")]
fn asynchronous(descriptor: OwnedFd, interest: Interest) -> std::io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(descriptor, interest)
}

fn counts_below(group: &Cgroup) -> Result<Counts, HostError> {
    let mut counts = Counts::new();
    for child in below(group)? {
        let name = child.path().rsplit('/').next().unwrap_or_default().to_owned();
        match kills_in(&child) {
            Ok(0) => {}
            Ok(kills) => {
                counts.insert(name, kills);
            }
            Err(error) if error.is_missing() => {}
            Err(error) => return Err(of_cgroup(&error)),
        }
    }
    Ok(counts)
}

fn below(group: &Cgroup) -> Result<Vec<Cgroup>, HostError> {
    match group.children() {
        Ok(children) => Ok(children),
        Err(error) if error.is_missing() => Ok(Vec::new()),
        Err(error) => Err(of_cgroup(&error)),
    }
}
