//! Cgroups of pods: created, limited, listed, removed.
//!
//! Rule: a cgroup's name is a list of words, and the driver turns it into a path. Removing a cgroup
//! first kills what runs in it. What this machine's kernel cannot limit (huge pages without their
//! controller) is skipped with a warning; what the kernel refuses is an error.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cgroup_files::names::{Driver, GroupName};
use cgroup_files::{Cgroup, CgroupError, Controller, Hierarchy, HugePageLimit, Limits, Version};
use host_paths::Apart;
use ports::pod_host::{CgroupLimits, HostError, HostFuture, PodCgroups};
use ports::runtime_objects::CgroupDriver;
use systemd_units::{Address, UnitError};
use tokio::sync::watch;
use tracing::{error, info, warn};

use crate::operation_times::{Operation, OperationTimes};
use crate::{slices, weight};

#[cfg(test)]
mod tests;

/// For a call to cgroupfs or to systemd.
const LIMIT: Duration = Duration::from_secs(60);

/// For the runtime to report its cgroup driver, from the beginning of a call.
const DRIVER_LIMIT: Duration = Duration::from_secs(60);

/// For killed processes to be gone.
const DEATH: Duration = Duration::from_secs(20);

const MOST_CALLS: usize = 16;

/// The driver and hierarchies that cgroups are created with.
#[derive(Debug, Clone)]
pub struct CgroupSetup {
    pub hierarchy: Hierarchy,
    pub driver: Driver,
    /// Systemd's sockets, for its driver.
    pub systemd: Vec<Address>,
}

impl CgroupSetup {
    /// This machine's hierarchies.
    pub fn detect(driver: Driver) -> Result<Self, CgroupError> {
        Ok(Self { hierarchy: Hierarchy::detect()?, driver, systemd: Address::usual() })
    }

    pub(crate) fn name(words: &[String]) -> Result<GroupName, HostError> {
        words.iter().try_fold(GroupName::root(), |name, word| {
            name.child(word).map_err(|error| HostError::Lasting(error.to_string()))
        })
    }

    pub(crate) fn group(&self, name: &GroupName) -> Result<Cgroup, HostError> {
        self.hierarchy.group(&name.path(self.driver)).map_err(|error| of_cgroup(&error))
    }

    fn unified(&self) -> bool {
        self.hierarchy.version() == Version::V2
    }

    /// Whether setting limits counts as a creation or an update.
    fn making(&self, words: &[String]) -> Operation {
        let group = Self::name(words).and_then(|name| self.group(&name));
        let is_there = group.is_ok_and(|group| group.exists_somewhere());
        if is_there { Operation::Update } else { Operation::Create }
    }

    fn apply(&self, words: &[String], limits: &CgroupLimits) -> Result<(), HostError> {
        let name = Self::name(words)?;
        let group = self.group(&name)?;
        if self.driver == Driver::Systemd {
            slices::make(&self.systemd, &name, limits, self.unified())
                .map_err(|error| of_unit(&error))?;
        }
        group.create().map_err(|error| of_cgroup(&error))?;
        group.apply(&self.limits(words, limits)).map_err(|error| of_cgroup(&error))
    }

    fn limit_existing(&self, path: &str, limits: &CgroupLimits) -> Result<(), HostError> {
        let name = GroupName::from_path(path, self.driver)
            .map_err(|error| HostError::Lasting(error.to_string()))?;
        let group = self.group(&name)?;
        if name.words().is_empty() || !group.exists_somewhere() {
            return Err(HostError::Lasting(format!("there is no cgroup {}", group.path())));
        }
        if self.driver == Driver::Systemd {
            slices::limit(&self.systemd, &name, limits, self.unified())
                .map_err(|error| of_unit(&error))?;
        }
        group.apply(&self.limits(name.words(), limits)).map_err(|error| of_cgroup(&error))
    }

    fn limits(&self, words: &[String], limits: &CgroupLimits) -> Limits {
        let mut huge_pages = Vec::new();
        if self.hierarchy.controllers().contains(&Controller::HugeTlb) {
            for (page_size, bytes) in &limits.hugepages {
                huge_pages.push(HugePageLimit { page_size: page_size.clone(), bytes: *bytes });
            }
        } else if limits.hugepages.iter().any(|(_, bytes)| *bytes > 0) {
            warn!(group = words.join("/"), "this machine cannot limit huge pages");
        }
        let mut unified: BTreeMap<String, String> = limits.unified.iter().cloned().collect();
        let shares = limits.cpu_shares.filter(|shares| *shares > 0);
        if let Some(shares) = shares.filter(|_| self.unified()) {
            unified.insert("cpu.weight".to_owned(), weight::of_shares(shares).to_string());
        }
        Limits {
            cpu_shares: shares.filter(|_| !self.unified()),
            cpu_quota: limits.cpu_quota,
            cpu_period: limits.cpu_period,
            memory: limits.memory_bytes,
            pids: limits.pids,
            huge_pages,
            unified,
            ..Limits::default()
        }
    }

    fn remove(&self, words: &[String]) -> Result<(), HostError> {
        let name = Self::name(words)?;
        if words.is_empty() {
            return Err(HostError::Lasting("the root of all groups cannot be removed".to_owned()));
        }
        let group = self.group(&name)?;
        if group.exists_somewhere() {
            group.kill().or_else(passed_over).map_err(|error| of_cgroup(&error))?;
        }
        if self.driver == Driver::Systemd {
            slices::remove(&self.systemd, &name).map_err(|error| of_unit(&error))?;
        }
        group.remove_within(DEATH).or_else(passed_over).map_err(|error| of_cgroup(&error))
    }

    fn children(&self, words: &[String]) -> Result<Vec<String>, HostError> {
        let group = self.group(&Self::name(words)?)?;
        let children = match group.children() {
            Ok(children) => children,
            Err(error) if error.is_missing() => return Ok(Vec::new()),
            Err(error) => return Err(of_cgroup(&error)),
        };
        let mut names: Vec<String> = children
            .iter()
            .filter_map(|child| {
                let last = child.path().rsplit('/').next()?;
                match self.driver {
                    Driver::CgroupFs => Some(last.to_owned()),
                    // Scopes and services are not the agent's.
                    Driver::Systemd => {
                        let name = GroupName::from_path(last, Driver::Systemd).ok()?;
                        name.words().last().map(|word| word.replace('_', "-"))
                    }
                }
            })
            .collect();
        names.sort();
        Ok(names)
    }

    fn memory_kills(&self, words: &[String]) -> Result<Option<u64>, HostError> {
        let group = self.group(&Self::name(words)?)?;
        match kills_in(&group) {
            Ok(kills) => Ok(Some(kills)),
            Err(error) if error.is_missing() => Ok(None),
            Err(CgroupError::NoController { .. }) => Ok(None),
            Err(error) => Err(of_cgroup(&error)),
        }
    }
}

/// OOM kills: version 2 counts those of descendants too; version 1 does not.
pub(crate) fn kills_in(group: &Cgroup) -> Result<u64, CgroupError> {
    let mut kills = group.out_of_memory_kills()?;
    if group.hierarchy().version() == Version::V1 {
        for child in group.children()? {
            match kills_in(&child) {
                Ok(more) => kills += more,
                Err(error) if error.is_missing() => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(kills)
}

/// A cgroup that is gone needs no removal.
fn passed_over(error: CgroupError) -> Result<(), CgroupError> {
    if error.is_missing() { Ok(()) } else { Err(error) }
}

pub(crate) fn of_cgroup(error: &CgroupError) -> HostError {
    use rustix::io::Errno;
    let source = std::error::Error::source(error)
        .and_then(|source| source.downcast_ref::<std::io::Error>())
        .and_then(Errno::from_io_error);
    let passing = matches!(error, CgroupError::WillNotDie { .. })
        || source.is_some_and(|errno| {
            [Errno::BUSY, Errno::AGAIN, Errno::INTR, Errno::NOMEM, Errno::NOSPC, Errno::MFILE]
                .contains(&errno)
        });
    let text = error.to_string();
    if passing { HostError::Passing(text) } else { HostError::Lasting(text) }
}

fn of_unit(error: &UnitError) -> HostError {
    let text = error.to_string();
    if error.is_passing() { HostError::Passing(text) } else { HostError::Lasting(text) }
}

#[derive(Debug, Clone)]
pub struct HostCgroups {
    /// With the cgroup driver of the configuration.
    configured: Arc<CgroupSetup>,
    /// `None` until the runtime has reported its driver.
    setup: Arc<watch::Sender<Option<Arc<CgroupSetup>>>>,
    pub(crate) apart: Apart,
    pub(crate) times: Arc<OperationTimes>,
}

impl HostCgroups {
    /// The driver in `configured` applies only if the runtime cannot report its own.
    pub fn new(configured: CgroupSetup) -> Self {
        Self {
            configured: Arc::new(configured),
            setup: Arc::new(watch::Sender::new(None)),
            apart: Apart::new("cgroups", MOST_CALLS, LIMIT),
            times: Arc::default(),
        }
    }

    /// Waits until the driver is known, within a limit.
    pub(crate) async fn setup(&self) -> Result<Arc<CgroupSetup>, HostError> {
        let mut setup = self.setup.subscribe();
        let known = tokio::time::timeout(DRIVER_LIMIT, setup.wait_for(Option::is_some)).await;
        match known.map(|known| known.map(|known| known.clone())) {
            Ok(Ok(Some(known))) => Ok(known),
            // The sender lives as long as this value.
            Ok(_) => Ok(self.configured.clone()),
            Err(_) => Err(HostError::Passing(format!(
                "the container runtime has not told its cgroup driver (cgroupfs or systemd) for \
                 {} s, and nothing is made before it does; see that it is up",
                DRIVER_LIMIT.as_secs()
            ))),
        }
    }

    fn call<'a, T, F>(&'a self, name: &[String], call: F) -> HostFuture<'a, T>
    where
        T: Send + 'static,
        F: FnOnce(&CgroupSetup, &[String]) -> Result<T, HostError> + Send + 'static,
    {
        let name = name.to_vec();
        let shown = name.join("/");
        Box::pin(async move {
            let setup = self.setup().await.map_err(|error| named(&shown, &error))?;
            match self.apart.run(move || call(&setup, &name)).await {
                Ok(done) => done,
                Err(error) => Err(HostError::Passing(format!("control group {shown}: {error}"))),
            }
        })
    }
}

impl PodCgroups for HostCgroups {
    fn learn_driver(&self, driver: Option<CgroupDriver>) {
        let said = match driver {
            Some(CgroupDriver::Cgroupfs) => Driver::CgroupFs,
            Some(CgroupDriver::Systemd) => Driver::Systemd,
            None => self.configured.driver,
        };
        self.setup.send_if_modified(|known| match known {
            None => {
                info!(driver = ?said, told_by_runtime = driver.is_some(), "Using this cgroup driver");
                *known = Some(Arc::new(CgroupSetup { driver: said, ..(*self.configured).clone() }));
                true
            }
            Some(known) => {
                if known.driver != said {
                    error!(
                        used = ?known.driver,
                        told = ?said,
                        "The container runtime uses another cgroup driver now; start the agent again"
                    );
                }
                false
            }
        });
    }

    fn apply<'a>(&'a self, name: &'a [String], limits: &'a CgroupLimits) -> HostFuture<'a, ()> {
        let (limits, times) = (limits.clone(), self.times.clone());
        self.call(name, move |setup, name| {
            let operation = setup.making(name);
            times.of(operation, || setup.apply(name, &limits))
        })
    }

    fn limit_existing<'a>(&'a self, path: &'a str, limits: &'a CgroupLimits) -> HostFuture<'a, ()> {
        let (path, limits, times) = (path.to_owned(), limits.clone(), self.times.clone());
        self.call(&[], move |setup, _| {
            times.of(Operation::Update, || setup.limit_existing(&path, &limits))
        })
    }

    fn remove<'a>(&'a self, name: &'a [String]) -> HostFuture<'a, ()> {
        let times = self.times.clone();
        self.call(name, move |setup, name| times.of(Operation::Destroy, || setup.remove(name)))
    }

    fn children<'a>(&'a self, name: &'a [String]) -> HostFuture<'a, Vec<String>> {
        self.call(name, CgroupSetup::children)
    }

    fn runtime_name<'a>(&'a self, name: &'a [String]) -> HostFuture<'a, String> {
        Box::pin(async move {
            let group = CgroupSetup::name(name)?;
            let setup = self.setup().await.map_err(|error| named(&name.join("/"), &error))?;
            Ok(match setup.driver {
                Driver::CgroupFs => group.path(Driver::CgroupFs),
                Driver::Systemd => group.slice(),
            })
        })
    }

    fn memory_kills<'a>(&'a self, name: &'a [String]) -> HostFuture<'a, Option<u64>> {
        self.call(name, CgroupSetup::memory_kills)
    }

    fn more_memory_kills<'a>(
        &'a self,
        name: &'a [String],
        known: &'a BTreeMap<String, u64>,
    ) -> HostFuture<'a, BTreeMap<String, u64>> {
        Box::pin(crate::kill_counts::more(self, name, known))
    }

    fn is_unified(&self) -> bool {
        self.configured.unified()
    }
}

/// The same error, with the cgroup that it is about.
fn named(group: &str, error: &HostError) -> HostError {
    let text = format!("control group {group}: {error}");
    match error {
        HostError::Passing(_) => HostError::Passing(text),
        HostError::Lasting(_) => HostError::Lasting(text),
    }
}
