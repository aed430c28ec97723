//! The runtime: its parts, its start, and the recovery of state that an earlier process left.
//!
//! Rule: a change runs to its end even if its caller disconnects, because a partial change is
//! useless; so every change is a task of its own. Partial changes of a process that died are taken
//! back at the next start, before anything is served.

mod boot;
mod conditions;
mod container_create;
mod container_run;
mod container_views;
mod defined_volumes;
pub(crate) mod execs;
mod handlers;
mod launching;
mod meeting;
mod metrics;
mod pod_files;
mod recovery;
mod sandbox_run;
mod sandbox_stop;
mod sandbox_views;
mod stats;
mod telling;
mod terminal;
#[cfg(test)]
mod tests;
mod updates;

use boot::Boot;
pub(crate) use terminal::{Resizer, Terminal};

use std::fs::File;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cgroup_files::{Controller, Hierarchy, Version};
use pod_supervisor::abilities::Abilities;
use pod_supervisor::launch::Program;
use rustix::fs::{FlockOperation, flock};

use crate::book::Book;
use crate::events::Events;
use crate::failure::{Doing as _, Failure, Result, blocking};
use crate::images::{Images, Puller};
use crate::names::{Former, RootNames};
use crate::network::{BuiltIn, Network};
use crate::settings::{CgroupDriver, Settings};
use crate::specification::{
    Abilities as GroupAbilities, AppArmor, Machine, PodPlaces, Selinux, capabilities,
};
use crate::streams::Streams;

/// How long to wait until the last supervisors have left their cgroup.
const LAST_PROCESSES: Duration = Duration::from_secs(2);

/// The embedded runtime. Clones share their state.
#[derive(Clone)]
pub struct Runtime {
    pub(crate) settings: Arc<Settings>,
    pub(crate) machine: Arc<Machine>,
    pub(crate) hierarchy: Arc<Hierarchy>,
    pub(crate) images: Images,
    pub(crate) network: Arc<Network>,
    pub(crate) names: Arc<RootNames>,
    pub(crate) book: Book,
    pub(crate) events: Events,
    pub(crate) usage: Arc<stats::Usage>,
    pub(crate) program: Arc<Program>,
    /// The kernel's features for containers; probed on first use.
    pub(crate) abilities: Arc<tokio::sync::OnceCell<Abilities>>,
    pub(crate) streams: Streams,
    pub(crate) handlers: Arc<handlers::Handlers>,
    /// The state directory describes processes of an earlier boot.
    pub(crate) rebooted: bool,
    /// The lock of the root, held as long as this lives: one server for each root.
    _alone: Arc<File>,
}

impl Runtime {
    /// Opens the directories and recovers the state in them. Must be called inside a tokio runtime.
    pub async fn open(mut settings: Settings) -> Result<Self> {
        // Each pod takes some descriptors. If the limit cannot be raised, errors come where they
        // run out.
        if let Err(error) = pod_supervisor::descriptors::raise() {
            tracing::warn!(%error, "raising the limit of descriptors");
        }
        for folder in [&settings.root, &settings.state] {
            crate::durable::make_folder(folder)?;
        }
        let alone = hold(&settings.root.join("runtime.lock")).await?;
        let book = Book::open(&settings.root.join("runtime"))?;
        let boot = Boot::look(&settings.state)?;
        let former =
            Former { has_records: !book.sandboxes().is_empty(), rebooted: boot.is_another() };
        let names = RootNames::take(&mut settings, former).await?;
        let images = Images::open(&settings.root, Puller::new(&settings)?)?;
        let built_in = settings.built_in_network.clone();
        let network = Network::new(
            settings.state.join("netns"),
            settings.cni.clone(),
            BuiltIn::of_root(built_in, &names.id, Arc::clone(&names.claim)),
        )?;
        let hierarchy = Hierarchy::detect()
            .map_err(|error| Failure::plain(format!("the machine's control groups: {error}")))?;
        let runtime = Self {
            machine: Arc::new(look_at_machine(&hierarchy, settings.cgroup_driver)?),
            book,
            names: Arc::new(names),
            events: Events::default(),
            usage: Arc::default(),
            program: Arc::new(supervisor_program(&settings)?),
            abilities: Arc::default(),
            images,
            network: Arc::new(network),
            hierarchy: Arc::new(hierarchy),
            rebooted: boot.is_another(),
            streams: Streams::new(settings.streams),
            settings: Arc::new(settings),
            handlers: Arc::default(),
            _alone: Arc::new(alone),
        };
        runtime.recover().await?;
        // Only now: after a crash in between, the next process must not trust PIDs of the earlier
        // boot.
        boot.note()?;
        runtime.preload().await;
        Ok(runtime)
    }

    /// The parent of the cgroups that an agent in this process creates for pods.
    pub fn cgroup_root(&self) -> &str {
        &self.names.cgroups
    }

    /// At shutdown: removes what only a root with pods needs. The default root's cgroups are never
    /// removed.
    pub async fn leave(&self) {
        if !self.book.sandboxes().is_empty() || self.names.has_default_cgroups() {
            return;
        }
        let group = self.hierarchy.group(&self.names.cgroups);
        let removed = blocking(move || {
            let failed = |error: cgroup_files::CgroupError| Failure::plain(error.to_string());
            group.and_then(|group| group.remove_within(LAST_PROCESSES)).map_err(failed)
        });
        if let Err(failure) = removed.await {
            tracing::warn!(%failure, "control groups of this root stay");
        }
    }

    /// The progress of pulls, as a watch; empty while nothing is pulled.
    pub fn watch_pulls(&self) -> tokio::sync::watch::Receiver<Vec<crate::PullProgress>> {
        self.images.watch_pulls()
    }

    /// Imports preloaded images. An error in one of them must not keep the runtime from serving.
    async fn preload(&self) {
        let Some(folder) = &self.settings.preloaded_images else { return };
        match self.images.preload(folder).await {
            Ok(problems) => {
                for problem in problems {
                    tracing::error!(problem, "a preloaded image is left out");
                }
            }
            Err(failure) => tracing::error!(folder = %folder.display(), %failure, "preloading"),
        }
    }

    /// Runs a change to its end, even if the caller stops waiting for it.
    pub(crate) async fn to_its_end<T: Send + 'static>(
        &self,
        change: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        // Boxed here: changes are large futures.
        match tokio::spawn(Box::pin(change)).await {
            Ok(outcome) => outcome,
            Err(error) => Err(Failure::new(tonic::Code::Internal, format!("a task: {error}"))),
        }
    }
}

impl Runtime {
    /// The directory of a pod's supervisor. Short, since a socket's path is limited to 107 bytes.
    pub(crate) fn pod_folder(&self, sandbox: &str) -> PathBuf {
        self.settings.state.join("pods").join(sandbox.get(..16).unwrap_or(sandbox))
    }

    /// The files that a pod's containers share.
    pub(crate) fn places(&self, sandbox: &str) -> PodPlaces {
        PodPlaces::new(&self.pod_folder(sandbox).join("shared"))
    }

    /// What outlives a reboot of a container beside its record.
    pub(crate) fn container_folder(&self, container: &str) -> PathBuf {
        self.settings.root.join("containers").join(container)
    }

    /// Mounts of a container that the runtime creates.
    pub(crate) fn container_mounts(&self, container: &str) -> PathBuf {
        self.settings.state.join("mounts").join(container.get(..32).unwrap_or(container))
    }
}

/// Takes the lock of a root; waits a moment for an earlier process that is exiting.
async fn hold(path: &Path) -> Result<File> {
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)
        .doing(format!("opening {}", path.display()))?;
    for _ in 0..50 {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(rustix::io::Errno::WOULDBLOCK) => {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            Err(error) => return Err(error).doing(format!("locking {}", path.display())),
        }
    }
    Err(Failure::plain(format!(
        "another runtime uses {}; stop it, or give this one a root of its own",
        path.parent().unwrap_or(path).display()
    )))
}

fn supervisor_program(settings: &Settings) -> Result<Program> {
    let program = match (&settings.supervisor, settings.carried_supervisor) {
        (Some(path), _) => Program::from_file(path),
        (None, Some(bytes)) => Program::from_bytes(bytes),
        (None, None) => Program::own(),
    };
    program.map_err(|error| Failure::plain(error.to_string()))
}

fn look_at_machine(hierarchy: &Hierarchy, cgroup_driver: CgroupDriver) -> Result<Machine> {
    // upstream: libsystemd sd_booted
    if cgroup_driver == CgroupDriver::Systemd && !Path::new("/run/systemd/system").is_dir() {
        return Err(Failure::plain(
            "cgroupDriver: systemd is asked for, but this machine does not run it \
             (no /run/systemd/system); expected cgroupfs",
        ));
    }
    let status = std::fs::read_to_string("/proc/self/status").doing("reading /proc/self/status")?;
    let set = capabilities::own_bounding_set(&status);
    let may_lower_score = capabilities::has(set, "SYS_RESOURCE");
    let own_score = std::fs::read_to_string("/proc/self/oom_score_adj")
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(0);
    let hostname = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let unified = hierarchy.version() == Version::V2;
    let root = hierarchy
        .group("/")
        .map_err(|error| Failure::plain(format!("the root of the control groups: {error}")))?;
    let swap_file = if unified { "memory.swap.max" } else { "memory.memsw.limit_in_bytes" };
    // With version 2 every cgroup but the root has the file.
    let swap = root.folder(Controller::Memory).is_some_and(|folder| {
        if unified { swap_below(&folder, swap_file) } else { folder.join(swap_file).exists() }
    });
    Ok(Machine {
        hostname,
        capabilities: set,
        lowest_oom_score: if may_lower_score { -1000 } else { own_score },
        apparmor: AppArmor::of_this_machine(),
        selinux: Selinux::of_this_machine(),
        unified_cgroups: unified,
        cgroup_driver,
        abilities: GroupAbilities { swap, huge_pages: root.folder(Controller::HugeTlb).is_some() },
    })
}

fn swap_below(folder: &Path, name: &str) -> bool {
    let Ok(entries) = std::fs::read_dir(folder) else { return false };
    entries.flatten().any(|entry| entry.path().join(name).exists())
}
