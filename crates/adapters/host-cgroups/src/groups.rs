//! Cgroups of pods: created, limited, listed, removed.
//!
//! Rule: a cgroup's name is a list of words, and the driver turns it into a path. Removing a cgroup
//! first kills what runs in it. What this machine's kernel cannot limit (huge pages without their
//! controller) is skipped with a warning; what the kernel refuses is an error.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cgroup_files::names::{CgroupManager, CgroupName};
use cgroup_files::{
    Cgroup, CgroupError, CgroupHierarchies, CgroupResources, CgroupVersion, Controller,
    HugePageLimit,
};
use host_paths::BlockingPool;
use ports::pod_host::{CgroupLimits, HostError, HostFuture, PodCgroups};
use ports::runtime_objects::CgroupDriver;
use systemd_units::{SystemdAddress, UnitError};
use tokio::sync::watch;
use tracing::{error, info, warn};

use crate::operation_times::{Operation, OperationTimes};
use crate::{slices, weight};

#[cfg(test)]
mod tests;

/// For a call to cgroupfs or to systemd.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);

/// For the runtime to report its cgroup driver, from the beginning of a call.
const DRIVER_TIMEOUT: Duration = Duration::from_secs(60);

/// For killed processes to be gone.
const EXIT_TIMEOUT: Duration = Duration::from_secs(20);

const MAX_CALLS: usize = 16;

/// The driver and hierarchies that cgroups are created with.
#[derive(Debug, Clone)]
pub struct CgroupSetup {
    pub hierarchy: CgroupHierarchies,
    pub driver: CgroupManager,
    /// Systemd's sockets, for its driver.
    pub systemd: Vec<SystemdAddress>,
}

impl CgroupSetup {
    /// This machine's hierarchies.
    pub fn detect(driver: CgroupManager) -> Result<Self, CgroupError> {
        Ok(Self {
            hierarchy: CgroupHierarchies::detect()?,
            driver,
            systemd: SystemdAddress::default_addresses(),
        })
    }

    pub(crate) fn name(components: &[String]) -> Result<CgroupName, HostError> {
        components.iter().try_fold(CgroupName::root(), |name, component| {
            name.child(component).map_err(|error| HostError::Permanent(error.to_string()))
        })
    }

    pub(crate) fn group(&self, name: &CgroupName) -> Result<Cgroup, HostError> {
        self.hierarchy.group(&name.path(self.driver)).map_err(|error| cgroup_error(&error))
    }

    fn unified(&self) -> bool {
        self.hierarchy.version() == CgroupVersion::V2
    }

    /// Whether setting limits counts as a creation or an update.
    fn operation_for(&self, components: &[String]) -> Operation {
        let group = Self::name(components).and_then(|name| self.group(&name));
        let is_there = group.is_ok_and(|group| group.exists_in_any_hierarchy());
        if is_there { Operation::Update } else { Operation::Create }
    }

    fn apply(&self, components: &[String], limits: &CgroupLimits) -> Result<(), HostError> {
        let name = Self::name(components)?;
        let group = self.group(&name)?;
        if self.driver == CgroupManager::Systemd {
            slices::make(&self.systemd, &name, limits, self.unified())
                .map_err(|error| unit_error(&error))?;
        }
        group.create().map_err(|error| cgroup_error(&error))?;
        group.apply(&self.limits(components, limits)).map_err(|error| cgroup_error(&error))
    }

    fn set_limits_of_existing(&self, path: &str, limits: &CgroupLimits) -> Result<(), HostError> {
        let name = CgroupName::from_path(path, self.driver)
            .map_err(|error| HostError::Permanent(error.to_string()))?;
        let group = self.group(&name)?;
        if name.components().is_empty() || !group.exists_in_any_hierarchy() {
            return Err(HostError::Permanent(format!("there is no cgroup {}", group.path())));
        }
        if self.driver == CgroupManager::Systemd {
            slices::limit(&self.systemd, &name, limits, self.unified())
                .map_err(|error| unit_error(&error))?;
        }
        group.apply(&self.limits(name.components(), limits)).map_err(|error| cgroup_error(&error))
    }

    fn limits(&self, components: &[String], limits: &CgroupLimits) -> CgroupResources {
        let mut huge_pages = Vec::new();
        if self.hierarchy.controllers().contains(&Controller::HugeTlb) {
            for (page_size, bytes) in &limits.hugepages {
                huge_pages.push(HugePageLimit { page_size: page_size.clone(), bytes: *bytes });
            }
        } else if limits.hugepages.iter().any(|(_, bytes)| *bytes > 0) {
            warn!(group = components.join("/"), "this machine cannot limit huge pages");
        }
        let mut unified: BTreeMap<String, String> = limits.unified.iter().cloned().collect();
        let shares = limits.cpu_shares.filter(|shares| *shares > 0);
        if let Some(shares) = shares.filter(|_| self.unified()) {
            unified.insert("cpu.weight".to_owned(), weight::of_shares(shares).to_string());
        }
        CgroupResources {
            cpu_shares: shares.filter(|_| !self.unified()),
            cpu_quota: limits.cpu_quota,
            cpu_period: limits.cpu_period,
            memory: limits.memory_bytes,
            pids: limits.pids,
            huge_pages,
            unified,
            ..CgroupResources::default()
        }
    }

    fn remove(&self, components: &[String]) -> Result<(), HostError> {
        let name = Self::name(components)?;
        if components.is_empty() {
            return Err(HostError::Permanent(
                "the root of all groups cannot be removed".to_owned(),
            ));
        }
        let group = self.group(&name)?;
        if group.exists_in_any_hierarchy() {
            group.kill().or_else(ignore_missing).map_err(|error| cgroup_error(&error))?;
        }
        if self.driver == CgroupManager::Systemd {
            slices::remove(&self.systemd, &name).map_err(|error| unit_error(&error))?;
        }
        group
            .remove_within(EXIT_TIMEOUT)
            .or_else(ignore_missing)
            .map_err(|error| cgroup_error(&error))
    }

    fn children(&self, components: &[String]) -> Result<Vec<String>, HostError> {
        let group = self.group(&Self::name(components)?)?;
        let children = match group.children() {
            Ok(children) => children,
            Err(error) if error.is_missing() => return Ok(Vec::new()),
            Err(error) => return Err(cgroup_error(&error)),
        };
        let mut names: Vec<String> = children
            .iter()
            .filter_map(|child| {
                let last = child.path().rsplit('/').next()?;
                match self.driver {
                    CgroupManager::CgroupFs => Some(last.to_owned()),
                    // Scopes and services are not the agent's.
                    CgroupManager::Systemd => {
                        let name = CgroupName::from_path(last, CgroupManager::Systemd).ok()?;
                        name.components().last().map(|component| component.replace('_', "-"))
                    }
                }
            })
            .collect();
        names.sort();
        Ok(names)
    }

    fn oom_kills(&self, components: &[String]) -> Result<Option<u64>, HostError> {
        let group = self.group(&Self::name(components)?)?;
        match oom_kills_in(&group) {
            Ok(kills) => Ok(Some(kills)),
            Err(error) if error.is_missing() => Ok(None),
            Err(CgroupError::NoController { .. }) => Ok(None),
            Err(error) => Err(cgroup_error(&error)),
        }
    }
}

/// OOM kills: version 2 counts those of descendants too; version 1 does not.
pub(crate) fn oom_kills_in(group: &Cgroup) -> Result<u64, CgroupError> {
    let mut kills = group.oom_kill_count()?;
    if group.hierarchy().version() == CgroupVersion::V1 {
        for child in group.children()? {
            match oom_kills_in(&child) {
                Ok(wait_for_new_kills) => kills += wait_for_new_kills,
                Err(error) if error.is_missing() => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(kills)
}

/// A cgroup that is gone needs no removal.
fn ignore_missing(error: CgroupError) -> Result<(), CgroupError> {
    if error.is_missing() { Ok(()) } else { Err(error) }
}

pub(crate) fn cgroup_error(error: &CgroupError) -> HostError {
    use rustix::io::Errno;
    let source = std::error::Error::source(error)
        .and_then(|source| source.downcast_ref::<std::io::Error>())
        .and_then(Errno::from_io_error);
    let passing = matches!(error, CgroupError::ProcessesRemain { .. })
        || source.is_some_and(|errno| {
            [Errno::BUSY, Errno::AGAIN, Errno::INTR, Errno::NOMEM, Errno::NOSPC, Errno::MFILE]
                .contains(&errno)
        });
    let text = error.to_string();
    if passing { HostError::Transient(text) } else { HostError::Permanent(text) }
}

fn unit_error(error: &UnitError) -> HostError {
    let text = error.to_string();
    if error.is_transient() { HostError::Transient(text) } else { HostError::Permanent(text) }
}

#[derive(Debug, Clone)]
pub struct HostCgroups {
    /// With the cgroup driver of the configuration.
    configured: Arc<CgroupSetup>,
    /// `None` until the runtime has reported its driver.
    setup: Arc<watch::Sender<Option<Arc<CgroupSetup>>>>,
    pub(crate) blocking_pool: BlockingPool,
    pub(crate) times: Arc<OperationTimes>,
}

impl HostCgroups {
    /// The driver in `configured` applies only if the runtime cannot report its own.
    pub fn new(configured: CgroupSetup) -> Self {
        Self {
            configured: Arc::new(configured),
            setup: Arc::new(watch::Sender::new(None)),
            blocking_pool: BlockingPool::new("cgroups", MAX_CALLS, CALL_TIMEOUT),
            times: Arc::default(),
        }
    }

    /// Waits until the driver is known, within a limit.
    pub(crate) async fn setup(&self) -> Result<Arc<CgroupSetup>, HostError> {
        let mut setup = self.setup.subscribe();
        let current = tokio::time::timeout(DRIVER_TIMEOUT, setup.wait_for(Option::is_some)).await;
        match current.map(|current| current.map(|current| current.clone())) {
            Ok(Ok(Some(current))) => Ok(current),
            // The sender lives as long as this value.
            Ok(_) => Ok(self.configured.clone()),
            Err(_) => Err(HostError::Transient(format!(
                "the container runtime has not told its cgroup driver (cgroupfs or systemd) for \
                 {} s, and nothing is made before it does; see that it is up",
                DRIVER_TIMEOUT.as_secs()
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
            let setup = self.setup().await.map_err(|error| with_cgroup_name(&shown, &error))?;
            match self.blocking_pool.run(move || call(&setup, &name)).await {
                Ok(done) => done,
                Err(error) => Err(HostError::Transient(format!("control group {shown}: {error}"))),
            }
        })
    }
}

impl PodCgroups for HostCgroups {
    fn set_driver(&self, driver: Option<CgroupDriver>) {
        let runtime_driver = match driver {
            Some(CgroupDriver::Cgroupfs) => CgroupManager::CgroupFs,
            Some(CgroupDriver::Systemd) => CgroupManager::Systemd,
            None => self.configured.driver,
        };
        self.setup.send_if_modified(|current| match current {
            None => {
                info!(driver = ?runtime_driver, told_by_runtime = driver.is_some(), "Using this cgroup driver");
                *current = Some(Arc::new(CgroupSetup { driver: runtime_driver, ..(*self.configured).clone() }));
                true
            }
            Some(current) => {
                if current.driver != runtime_driver {
                    error!(
                        used = ?current.driver,
                        told = ?runtime_driver,
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
            let operation = setup.operation_for(name);
            times.of(operation, || setup.apply(name, &limits))
        })
    }

    fn set_limits_of_existing<'a>(
        &'a self,
        path: &'a str,
        limits: &'a CgroupLimits,
    ) -> HostFuture<'a, ()> {
        let (path, limits, times) = (path.to_owned(), limits.clone(), self.times.clone());
        self.call(&[], move |setup, _| {
            times.of(Operation::Update, || setup.set_limits_of_existing(&path, &limits))
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
            let setup =
                self.setup().await.map_err(|error| with_cgroup_name(&name.join("/"), &error))?;
            Ok(match setup.driver {
                CgroupManager::CgroupFs => group.path(CgroupManager::CgroupFs),
                CgroupManager::Systemd => group.slice(),
            })
        })
    }

    fn oom_kills<'a>(&'a self, name: &'a [String]) -> HostFuture<'a, Option<u64>> {
        self.call(name, CgroupSetup::oom_kills)
    }

    fn wait_for_oom_kills<'a>(
        &'a self,
        name: &'a [String],
        current: &'a BTreeMap<String, u64>,
    ) -> HostFuture<'a, BTreeMap<String, u64>> {
        Box::pin(crate::oom_kill_counts::wait_for_new_kills(self, name, current))
    }

    fn is_unified(&self) -> bool {
        self.configured.unified()
    }
}

/// The same error, with the cgroup that it is about.
fn with_cgroup_name(group: &str, error: &HostError) -> HostError {
    let text = format!("control group {group}: {error}");
    match error {
        HostError::Transient(_) => HostError::Transient(text),
        HostError::Permanent(_) => HostError::Permanent(text),
    }
}
