//! The runtime: its parts, its start, and the recovery of state that an earlier process left.
//!
//! Rule: a change runs to its end even if its caller disconnects, because a partial change is
//! useless; so every change is a task of its own. Partial changes of a process that died are taken
//! back at the next start, before anything is served.

mod boot;
mod container_create;
mod container_run;
mod container_views;
mod defined_volumes;
pub(crate) mod execs;
mod handlers;
mod metrics;
mod pod_files;
mod reconnecting;
mod recovery;
mod runtime_status;
mod sandbox_run;
mod sandbox_stop;
mod sandbox_views;
mod stats;
mod supervisor_events;
mod supervisor_launch;
mod terminal;
#[cfg(test)]
mod tests;
mod updates;

use boot::BootMarker;
pub(crate) use terminal::{AsyncTerminal, Resizer};

use std::fs::File;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cgroup_files::{CgroupHierarchies, CgroupVersion, Controller};
use pod_supervisor::kernel_features::KernelFeatures;
use pod_supervisor::launch::SupervisorProgram;
use rustix::fs::{FlockOperation, flock};

use crate::events::EventBroadcast;
use crate::failure::{CallContext as _, CriError, Result, blocking};
use crate::images::{Puller, RuntimeImages};
use crate::names::{PreviousPods, RootNames};
use crate::network::{BuiltIn, Network};
use crate::record_store::RecordStore;
use crate::settings::{CgroupDriver, RuntimeSettings};
use crate::specification::{
    AppArmor, HostCapabilities, KernelFeatures as CgroupFeatures, PodPaths, Selinux, capabilities,
};
use crate::streams::StreamingServer;

/// How long to wait until the last supervisors have left their cgroup.
const LAST_PROCESSES: Duration = Duration::from_secs(2);

/// The embedded runtime. Clones share their state.
#[derive(Clone)]
pub struct Runtime {
    pub(crate) settings: Arc<RuntimeSettings>,
    pub(crate) machine: Arc<HostCapabilities>,
    pub(crate) hierarchy: Arc<CgroupHierarchies>,
    pub(crate) images: RuntimeImages,
    pub(crate) network: Arc<Network>,
    pub(crate) names: Arc<RootNames>,
    pub(crate) record_store: RecordStore,
    pub(crate) events: EventBroadcast,
    pub(crate) usage: Arc<stats::Usage>,
    pub(crate) program: Arc<SupervisorProgram>,
    /// The kernel's features for containers; probed on first use.
    pub(crate) kernel_features: Arc<tokio::sync::OnceCell<KernelFeatures>>,
    pub(crate) streams: StreamingServer,
    pub(crate) handlers: Arc<handlers::OciHandlers>,
    /// The state directory describes processes of an earlier boot.
    pub(crate) rebooted: bool,
    /// The lock of the root, held as long as this lives: one server for each root.
    _alone: Arc<File>,
}

impl Runtime {
    /// Opens the directories and recovers the state in them. Must be called inside a tokio runtime.
    pub async fn open(mut settings: RuntimeSettings) -> Result<Self> {
        // Each pod takes some descriptors. If the limit cannot be raised, errors come where they
        // run out.
        if let Err(error) = pod_supervisor::descriptors::raise() {
            tracing::warn!(%error, "raising the limit of descriptors");
        }
        for dir in [&settings.root, &settings.state] {
            crate::durable::make_dir(dir)?;
        }
        let root_lock = lock_root(&settings.root.join("runtime.lock")).await?;
        let record_store = RecordStore::open(&settings.root.join("runtime"))?;
        let boot = BootMarker::read(&settings.state)?;
        let previous = PreviousPods {
            has_records: !record_store.sandboxes().is_empty(),
            rebooted: boot.has_rebooted(),
        };
        let names = RootNames::take(&mut settings, previous).await?;
        let images = RuntimeImages::open(&settings.root, Puller::new(&settings)?)?;
        let built_in = settings.built_in_network.clone();
        let network = Network::new(
            settings.state.join("netns"),
            settings.cni.clone(),
            BuiltIn::of_root(built_in, &names.id, Arc::clone(&names.claim)),
        )?;
        let hierarchy = CgroupHierarchies::detect()
            .map_err(|error| CriError::plain(format!("the machine's control groups: {error}")))?;
        let runtime = Self {
            machine: Arc::new(inspect_machine(&hierarchy, settings.cgroup_driver)?),
            record_store,
            names: Arc::new(names),
            events: EventBroadcast::default(),
            usage: Arc::default(),
            program: Arc::new(supervisor_program(&settings)?),
            kernel_features: Arc::default(),
            images,
            network: Arc::new(network),
            hierarchy: Arc::new(hierarchy),
            rebooted: boot.has_rebooted(),
            streams: StreamingServer::new(settings.streams),
            settings: Arc::new(settings),
            handlers: Arc::default(),
            _alone: Arc::new(root_lock),
        };
        runtime.recover().await?;
        // Only now: after a crash in between, the next process must not trust PIDs of the earlier
        // boot.
        boot.write()?;
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
        if !self.record_store.sandboxes().is_empty() || self.names.has_default_cgroups() {
            return;
        }
        let group = self.hierarchy.group(&self.names.cgroups);
        let removed = blocking(move || {
            let failed = |error: cgroup_files::CgroupError| CriError::plain(error.to_string());
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
        let Some(dir) = &self.settings.preloaded_images else { return };
        match self.images.preload(dir).await {
            Ok(errors) => {
                for error in errors {
                    tracing::error!(error, "a preloaded image is left out");
                }
            }
            Err(error) => tracing::error!(dir = %dir.display(), %error, "preloading images"),
        }
    }

    /// Runs a change to its end, even if the caller stops waiting for it.
    pub(crate) async fn run_to_completion<T: Send + 'static>(
        &self,
        change: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        // Boxed here: changes are large futures.
        match tokio::spawn(Box::pin(change)).await {
            Ok(outcome) => outcome,
            Err(error) => Err(CriError::new(tonic::Code::Internal, format!("a task: {error}"))),
        }
    }
}

impl Runtime {
    /// The directory of a pod's supervisor. Short, since a socket's path is limited to 107 bytes.
    pub(crate) fn pod_dir(&self, sandbox: &str) -> PathBuf {
        self.settings.state.join("pods").join(sandbox.get(..16).unwrap_or(sandbox))
    }

    /// The files that a pod's containers share.
    pub(crate) fn pod_paths(&self, sandbox: &str) -> PodPaths {
        PodPaths::new(&self.pod_dir(sandbox).join("shared"))
    }

    /// What outlives a reboot of a container beside its record.
    pub(crate) fn container_dir(&self, container: &str) -> PathBuf {
        self.settings.root.join("containers").join(container)
    }

    /// Mounts of a container that the runtime creates.
    pub(crate) fn container_mounts(&self, container: &str) -> PathBuf {
        self.settings.state.join("mounts").join(container.get(..32).unwrap_or(container))
    }
}

/// Takes the lock of a root; waits a moment for an earlier process that is exiting.
async fn lock_root(path: &Path) -> Result<File> {
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
    Err(CriError::plain(format!(
        "another runtime uses {}; stop it, or give this one a root of its own",
        path.parent().unwrap_or(path).display()
    )))
}

fn supervisor_program(settings: &RuntimeSettings) -> Result<SupervisorProgram> {
    let program = match (&settings.supervisor, settings.carried_supervisor) {
        (Some(path), _) => SupervisorProgram::from_file(path),
        (None, Some(bytes)) => SupervisorProgram::from_bytes(bytes),
        (None, None) => SupervisorProgram::own(),
    };
    program.map_err(|error| CriError::plain(error.to_string()))
}

fn inspect_machine(
    hierarchy: &CgroupHierarchies,
    cgroup_driver: CgroupDriver,
) -> Result<HostCapabilities> {
    // upstream: libsystemd sd_booted
    if cgroup_driver == CgroupDriver::Systemd && !Path::new("/run/systemd/system").is_dir() {
        return Err(CriError::plain(
            "cgroupDriver: systemd is asked for, but this machine does not run it \
             (no /run/systemd/system); expected cgroupfs",
        ));
    }
    let status = std::fs::read_to_string("/proc/self/status").doing("reading /proc/self/status")?;
    let set = capabilities::own_bounding_set(&status);
    let may_lower_score = capabilities::has(set, "SYS_RESOURCE");
    let own_oom_score = std::fs::read_to_string("/proc/self/oom_score_adj")
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(0);
    let hostname = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let unified = hierarchy.version() == CgroupVersion::V2;
    let root = hierarchy
        .group("/")
        .map_err(|error| CriError::plain(format!("the root of the control groups: {error}")))?;
    let swap_file = if unified { "memory.swap.max" } else { "memory.memsw.limit_in_bytes" };
    // With version 2 every cgroup but the root has the file.
    let swap = root.dir(Controller::Memory).is_some_and(|dir| {
        if unified { swap_below(&dir, swap_file) } else { dir.join(swap_file).exists() }
    });
    Ok(HostCapabilities {
        hostname,
        capabilities: set,
        lowest_oom_score: if may_lower_score { -1000 } else { own_oom_score },
        apparmor: AppArmor::of_this_machine(),
        selinux: Selinux::of_this_machine(),
        unified_cgroups: unified,
        cgroup_driver,
        kernel_features: CgroupFeatures {
            swap,
            huge_pages: root.dir(Controller::HugeTlb).is_some(),
        },
    })
}

fn swap_below(dir: &Path, name: &str) -> bool {
    let Ok(entries) = std::fs::read_dir(dir) else { return false };
    entries.flatten().any(|entry| entry.path().join(name).exists())
}
