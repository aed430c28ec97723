//! The one place where adapters meet the agent.
//!
//! Rule: wiring only. Locks are taken before anything is touched and released last, the root
//! directory's and the claim before the shared lock file's, so that an agent that waits for the
//! file finds both free.

use super::end_requests::EndRequests;
use super::idle_memory::IdleEndpoint;
use super::pod_dependencies::pod_dependencies;
use crate::doctor::facts;
use crate::environment::Environment;
use crate::idle_memory::IdleMemory;
use crate::logging::LogCheck;
use anyhow::{Context, Result, ensure};
use cri_client::{CallLimits, CriClient, Endpoint};
use host_process::agent_claim::{self, AgentClaimError, AgentNames};
use host_process::end_signals::EndSignals;
use host_process::lock_file::{ContentionWatch, LockFile};
use host_process::root_lock::RootLock;
use host_process::{kernel_tunables, limits, shared_mount};
use local_socket::AgentSocket;
use machine_claims::HeldClaim;
use node_agent::{AgentDependencies, AgentExit};
use node_api::{HealthCheckCounts, HttpHealthEndpoint};
use node_config::{KubeletConfiguration, NodeConfig};
use node_policy::StartupRequirements;
use ports::{HealthEndpoint, ServiceNotifier};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UnixStream;
use tracing::{error, info, warn};

/// Enough for one machine's pods, and small enough to be left running everywhere.
const WORKERS: usize = 2;
const MOST_BLOCKING_THREADS: usize = 8;
/// The local socket that the verbs ask.
const LOCAL_SOCKET: &str = "/run/keelson/agent.sock";
const SOCKET_TRIES: usize = 10;
const SOCKET_PAUSE: Duration = Duration::from_millis(50);

pub(super) fn run(config: &NodeConfig, environment: &Environment) -> Result<AgentExit> {
    if let Some(point) = &environment.crash_at {
        node_agent::crash_points::arm(point);
    }
    let process = std::process::id();
    let watchdog_timeout = environment.service.watchdog(process).context("watchdog")?;
    let user = rustix::process::getuid();
    if !user.is_root() {
        error!(
            err = format!("expected to run as uid 0, runs as {}", user.as_raw()),
            "Kubelet running with insufficient permissions"
        );
    }
    check_start_requirements(config.settings())?;
    let flags = config.flags();
    let shared_lock = shared_lock(&flags.lock_file)?;
    let root_lock = RootLock::acquire(Path::new(&flags.root_dir), process)?;
    info!(v = 2, path = %root_lock.path().display(), "Root directory locked");
    let claim = claim_names(config, process)?;
    set_limits(config.settings());
    set_tunables(config.settings())?;
    share_root(Path::new(&flags.root_dir));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .max_blocking_threads(MOST_BLOCKING_THREADS)
        .thread_name("keelson")
        .enable_all()
        .build()
        .context("cannot start the task runtime")?;
    let contended = (flags.exit_on_lock_contention).then_some(flags.lock_file.as_str());
    let ended = runtime.block_on(async {
        let parts = agent_dependencies(config, environment, contended).await?;
        anyhow::Ok(node_agent::run(AgentDependencies { watchdog_timeout, ..parts }).await)
    });
    runtime.shutdown_timeout(Duration::from_secs(1));
    drop(claim);
    drop(root_lock);
    drop(shared_lock);
    ended
}

/// Refuses to start if the administrator asked for it, with every reason at once.
fn check_start_requirements(settings: &KubeletConfiguration) -> Result<()> {
    let requirements = StartupRequirements {
        fail_cgroup_v1: settings.fail_cgroup_v1,
        fail_swap_on: settings.fail_swap_on,
        single_process_oom_kill: settings.single_process_oom_kill,
        limited_swap: settings.memory_swap.swap_behavior == "LimitedSwap",
    };
    let startup_errors =
        node_policy::startup_errors(&facts::for_start(Path::new("/")), &requirements);
    let reasons: Vec<String> = startup_errors.iter().map(ToString::to_string).collect();
    ensure!(reasons.is_empty(), "{}", reasons.join("; "));
    Ok(())
}

/// Takes the lock of `--lock-file`, waiting for its holder without limit, as upstream does.
fn shared_lock(path: &str) -> Result<Option<LockFile>> {
    if path.is_empty() {
        return Ok(None);
    }
    info!(path, "Acquiring file lock");
    Ok(Some(LockFile::acquire(Path::new(path))?))
}

/// Claims the cgroups and names in which this agent removes what belongs to none of its pods: no
/// other agent's pods may be there. A machine without room for claims still runs its pods.
fn claim_names(config: &NodeConfig, process: u32) -> Result<Option<HeldClaim>> {
    let settings = config.settings();
    let cgroup = format!("{}/kubepods", settings.cgroup_root.trim_end_matches('/'));
    let names = AgentNames {
        root: Path::new(&config.flags().root_dir),
        cgroup: settings.cgroups_per_qos.then_some(&cgroup),
        pod_logs: Path::new(&settings.pod_logs_dir),
    };
    match agent_claim::acquire(Path::new(machine_claims::CLAIMS_DIR), &names, process) {
        Ok(claim) => Ok(Some(claim)),
        Err(AgentClaimError::Held(conflict)) => Err((*conflict).into()),
        Err(AgentClaimError::Files(error)) => {
            warn!(err = %error, "Another agent with the same cgroups would not be noticed");
            Ok(None)
        }
    }
}

fn set_limits(settings: &KubeletConfiguration) {
    let score = settings.oom_score_adj;
    if let Err(refused) = limits::set_oom_score_adj(Path::new("/proc/self"), score) {
        warn!(err = %refused, "Running with another OOM score than configured");
    }
    if let Ok(wanted) = u64::try_from(settings.max_open_files)
        && let Err(refused) = limits::set_open_files(wanted)
    {
        warn!(err = %refused, "Running with another limit of open files than configured");
    }
}

/// Sets the kernel settings that a node relies on, or refuses if the administrator protects them.
fn set_tunables(settings: &KubeletConfiguration) -> Result<()> {
    let protect = settings.protect_kernel_defaults;
    let (set, wrong) = kernel_tunables::set_up(Path::new("/proc/sys"), protect);
    for (name, value) in set {
        info!(v = 2, name, value, "Updated a value of the kernel");
    }
    let wrong: Vec<String> = wrong.iter().map(ToString::to_string).collect();
    if protect {
        ensure!(
            wrong.is_empty(),
            "protectKernelDefaults: {}; set these values, or set protectKernelDefaults to false",
            wrong.join("; ")
        );
    }
    for why in wrong {
        warn!(err = why, "Running with another value of the kernel than a node should have");
    }
    Ok(())
}

/// Makes the root directory a shared mount, which mount propagation from containers needs.
fn share_root(root: &Path) {
    match shared_mount::make_shared(root) {
        Ok(true) => info!(v = 2, path = %root.display(), "Root directory made a shared mount"),
        Ok(false) => {}
        Err(why) => {
            warn!(err = %why, "Mounts below the root directory are not shared with containers");
        }
    }
}

/// All dependencies except the watchdog timeout. Needs a running tokio reactor.
async fn agent_dependencies(
    config: &NodeConfig,
    environment: &Environment,
    contended: Option<&str>,
) -> Result<AgentDependencies> {
    let contention = contended
        .map(|path| {
            info!(path, "Watching for inotify events");
            ContentionWatch::start(Path::new(path))
        })
        .transpose()?;
    let end_requests = EndSignals::listen(contention).context("cannot listen for signals")?;
    let notifier = environment.service.notification_socket().unwrap_or_else(|unusable| {
        warn!(err = %unusable, "The service manager will not be notified");
        None
    });
    let settings = config.settings();
    let runtime = Arc::new(runtime_client(settings)?);
    let idle_memory = IdleMemory::default();
    let (proxies, health) = (&environment.proxies, Arc::new(HealthCheckCounts::default()));
    let mut pods = pod_dependencies(config, &runtime, &idle_memory, proxies, &health).await?;
    let socket = local_socket_path(Path::new(&config.flags().root_dir)).await;
    let local = Arc::new(AgentSocket::new(socket).with_runtime(runtime.clone()));
    let certificate =
        pods.cluster.as_ref().and_then(|cluster| cluster.certificates.client.as_ref());
    let lost = certificate.map(|certificate| certificate.lost.subscribe());
    pods.local = Some(Arc::new(IdleEndpoint { local, idle_memory }));
    Ok(AgentDependencies {
        pods: Some(pods),
        runtime,
        notifier: notifier.map(|socket| Arc::new(socket) as Arc<dyn ServiceNotifier>),
        watchdog_timeout: None,
        health_endpoint: health_endpoint(settings, health),
        log_check: Some(Arc::new(LogCheck)),
        sync_frequency: settings.sync_frequency.as_std().unwrap_or_default(),
        end_requests: Box::new(EndRequests { signals: end_requests, lost }),
    })
}

/// The path of the local socket: the well-known one, or, if another agent answers there, one below
/// this agent's root. Waits briefly for a former agent of this root to be gone.
async fn local_socket_path(root: &Path) -> PathBuf {
    for _ in 0..SOCKET_TRIES {
        if UnixStream::connect(LOCAL_SOCKET).await.is_err() {
            return LOCAL_SOCKET.into();
        }
        tokio::time::sleep(SOCKET_PAUSE).await;
    }
    let own = root.join("keelson/agent.sock");
    warn!(
        socket = %own.display(),
        "Another agent answers on {LOCAL_SOCKET}; this one is asked with --socket"
    );
    own
}

fn runtime_client(settings: &KubeletConfiguration) -> Result<CriClient> {
    let runtime = endpoint("containerRuntimeEndpoint", &settings.container_runtime_endpoint)?;
    let image = match settings.image_service_endpoint.as_str() {
        "" => None,
        text => Some(endpoint("imageServiceEndpoint", text)?),
    };
    let default = CallLimits::default();
    let request = settings.runtime_request_timeout.as_std().unwrap_or(default.request);
    let limits = CallLimits { request, ..default };
    Ok(CriClient::connect(&runtime, image.as_ref(), limits))
}

fn endpoint(field: &str, text: &str) -> Result<Endpoint> {
    let endpoint: Endpoint = text.parse().with_context(|| field.to_owned())?;
    if let Some(warning) = endpoint.warning() {
        warn!(field, "{warning}");
    }
    Ok(endpoint)
}

/// None if the port is 0, or if the address is not usable.
fn health_endpoint(
    settings: &KubeletConfiguration,
    counts: Arc<HealthCheckCounts>,
) -> Option<Arc<dyn HealthEndpoint>> {
    let port = u16::try_from(settings.healthz_port).ok().filter(|port| *port > 0)?;
    match health_address(&settings.healthz_bind_address, port) {
        Ok(address) => Some(Arc::new(HttpHealthEndpoint::new(address, counts))),
        Err(why) => {
            let host = settings.healthz_bind_address.as_str();
            error!(err = why, healthz_bind_address = host, "Failed to start healthz server");
            None
        }
    }
}

/// No address means all of them, as in Go. The only name that is known is `localhost`: upstream's
/// flag takes addresses only, and looking up a name from a file could delay the start for long.
fn health_address(host: &str, port: u16) -> Result<SocketAddr, String> {
    let address = match host {
        "" => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        "localhost" => IpAddr::V4(Ipv4Addr::LOCALHOST),
        _ => host
            .parse()
            .map_err(|_| format!("{host:?}: expected an IP address, such as 127.0.0.1"))?,
    };
    Ok(SocketAddr::new(address, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn health_addresses_are_addresses_and_never_looked_up() {
        let shown = |host| health_address(host, 10248).map(|address| address.to_string());
        assert_eq!(shown("127.0.0.1"), Ok("127.0.0.1:10248".to_owned()));
        assert_eq!(shown("::1"), Ok("[::1]:10248".to_owned()));
        assert_eq!(shown(""), Ok("0.0.0.0:10248".to_owned()));
        assert_eq!(shown("localhost"), Ok("127.0.0.1:10248".to_owned()));
        for name in ["node.example", "127.0.0.1:1", "[::1]", "not an address"] {
            let refused = shown(name);
            assert!(refused.as_ref().is_err_and(|why| why.contains(name)), "{refused:?}");
        }
    }
}
