//! The one place where adapters meet the node controller.
//!
//! Rule: wiring only. A port or socket that cannot be opened is reported and left out unless it was
//! configured explicitly; the controllers themselves always run.

use super::access;
use super::pages::{LocalPages, PublicPages};
use super::system_environment::HostEnvironment;
use crate::environment::Environment;
use anyhow::{Context, Result, anyhow};
use apiserver_client::ApiClient;
use cloud_nodes::{FileCloud, ProgramCloud};
use controller_config::{CloudSource, MinTlsVersion, NodeControllerConfig, SecureServing};
use host_process::end_signals::EndSignals;
use node_api::{
    CertificateSource, ListeningPort, PageSocket, ReviewTimes, Reviews, SecurePort, TlsSettings,
};
use node_controller::{
    ApiClients, ClusterRange, ControllerConfig, EnabledControllers, HealthConfig, LeaderConfig,
    NodeController, PodCleanupConfig, RangesConfig, WriteConfig,
};
use ports::{CloudProvider, ClusterApi, ShutdownRequests};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tracing::{info, warn};

const MOST_BLOCKING_THREADS: usize = 4;
/// Reviews are asked for as often as in upstream's delegated authentication.
const REVIEW_RATE: (f32, u32) = (200.0, 400);

/// Runs until a signal; returns its name. `port_by_name`: the port was configured explicitly.
pub(super) fn run(
    config: &NodeControllerConfig,
    port_by_name: bool,
    environment: &Environment,
    working_directory: &Path,
) -> Result<String> {
    if let Some(point) = &environment.crash_at {
        node_controller::crash_points::arm(point);
    }
    // One thread: a heartbeat is a few microseconds of work in three tasks, and passing it between
    // threads would cost more than that.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .max_blocking_threads(MOST_BLOCKING_THREADS)
        .thread_name("keelson")
        .enable_all()
        .build()
        .context("cannot start the task runtime")?;
    let ended = runtime.block_on(serve(config, port_by_name, environment, working_directory));
    runtime.shutdown_timeout(Duration::from_secs(1));
    ended
}

async fn serve(
    config: &NodeControllerConfig,
    port_by_name: bool,
    environment: &Environment,
    working_directory: &Path,
) -> Result<String> {
    let mut signals = EndSignals::listen(None).context("cannot listen for signals")?;
    let connection = &config.connection;
    let access =
        access::main(&connection.kubeconfig, &connection.master, environment, working_directory)?;
    let monitor_grace = config.lifecycle.monitor_grace;
    let client = access::client(access, connection.rate, monitor_grace, environment)?;
    let settings = controller_config(config)?;
    let clients = clients(&client, &settings);
    let controller = NodeController::new(
        settings,
        clients,
        cloud(config.cloud.as_ref()),
        Arc::new(HostEnvironment),
    )?;
    let port = match &config.serving {
        Some(serving) => {
            let port = secure_port(serving, &controller, environment, working_directory).await;
            may_be_taken(port, serving.address, port_by_name)?
        }
        None => None,
    };
    let socket = local_socket(config.local_socket.as_deref()).await;
    let local_pages = Arc::new(LocalPages(controller.clone()));
    let (end, ended) = tokio::sync::oneshot::channel::<()>();
    let run = controller.run(async {
        // A dropped sender is a request too.
        let _ = ended.await;
    });
    let serve_port = async {
        match port {
            Some(port) => port.serve().await,
            None => std::future::pending().await,
        }
    };
    let serve_socket = async {
        match socket {
            Some(socket) => socket.serve(local_pages).await,
            None => std::future::pending().await,
        }
    };
    tokio::pin!(run);
    let reason = tokio::select! {
        reason = signals.next() => reason,
        () = &mut run => return Err(anyhow!("the controller ended by itself")),
        () = serve_port => return Err(anyhow!("the secure port ended by itself")),
        () = serve_socket => return Err(anyhow!("the local socket ended by itself")),
    };
    info!(reason = %reason, "Ending");
    drop(end);
    if tokio::time::timeout(config.shutdown_timeout, run).await.is_err() {
        warn!(timeout = ?config.shutdown_timeout, "Not everything could be ended in time");
    }
    Ok(reason.to_string())
}

/// Connections and credentials are shared; the rates are not, as with upstream's separate client
/// for the election. Each request times out before the controller's own deadline, so that a dead
/// connection is left in time: for the lease, by the election's own deadline.
fn clients(client: &ApiClient, config: &ControllerConfig) -> ApiClients {
    let work = client.with_caller_timeout(config.writes.deadline);
    let lease_reads = work.with_own_rate_limit();
    let election = match &config.leader {
        Some(leader) => {
            lease_reads.with_own_rate_limit().with_caller_timeout(leader.renew_deadline / 2)
        }
        None => lease_reads.with_own_rate_limit(),
    };
    ApiClients {
        work: Arc::new(work),
        lease_reads: Arc::new(lease_reads),
        election: Arc::new(election),
    }
}

/// A default port may be in use by another process: kube-controller-manager beside this one has the
/// same default. Every other error of serving stays an error.
fn may_be_taken(
    port: Result<ListeningPort>,
    address: SocketAddr,
    by_name: bool,
) -> Result<Option<ListeningPort>> {
    let failure = match port {
        Ok(port) => return Ok(Some(port)),
        Err(failure) => failure,
    };
    let taken = std::net::TcpListener::bind(address)
        .is_err_and(|error| error.kind() == std::io::ErrorKind::AddrInUse);
    if by_name || !taken {
        return Err(failure);
    }
    warn!(
        err = format!("{failure:#}"),
        "The default port is taken, by kube-controller-manager perhaps: health and metrics of this \
         process are served on its local socket alone; --secure-port names another, 0 none"
    );
    Ok(None)
}

/// The configuration in the shell's types.
fn controller_config(config: &NodeControllerConfig) -> Result<ControllerConfig> {
    let (on, life) = (config.controllers, config.lifecycle);
    let leader = match &config.leader {
        None => None,
        Some(leader) => Some(LeaderConfig {
            namespace: leader.namespace.clone(),
            name: leader.name.clone(),
            identity: identity()?,
            lease_duration: leader.lease,
            renew_deadline: leader.renew,
            retry_period: leader.retry,
        }),
    };
    let ranges = config.ranges.as_ref().map(|ranges| RangesConfig {
        cluster: ranges
            .cluster
            .iter()
            .map(|(range, node_mask)| ClusterRange { range: *range, node_mask: *node_mask })
            .collect(),
        service: ranges.service.clone(),
    });
    Ok(ControllerConfig {
        enabled: EnabledControllers {
            node_lifecycle: on.lifecycle,
            taint_eviction: on.taint_eviction,
            node_ipam: on.pod_ranges,
            pod_cleanup: on.pod_cleanup,
            cloud_node_lifecycle: on.cloud,
            cloud_node: on.cloud,
        },
        health: HealthConfig {
            monitor_period: life.monitor_period,
            monitor_grace: life.monitor_grace,
            startup_grace: life.startup_grace,
            eviction_rate: f64::from(life.eviction_rate),
            secondary_eviction_rate: f64::from(life.secondary_eviction_rate),
            large_zone_above: usize::try_from(life.large_above).unwrap_or(usize::MAX),
            unhealthy_zone_share: life.unhealthy_share,
            ..HealthConfig::default()
        },
        pod_cleanup: PodCleanupConfig {
            terminated_threshold: config
                .terminated_pods
                .map_or(0, |most| usize::try_from(most).unwrap_or(usize::MAX)),
            ..PodCleanupConfig::default()
        },
        ranges,
        leader,
        writes: WriteConfig {
            events_per_batch: events_per_batch(config.connection.rate),
            ..WriteConfig::default()
        },
        toleration_comparisons: config.tolerations_compare,
        ..ControllerConfig::default()
    })
}

/// What the rate allows in half a second, and at most half of the burst: other writes share the
/// rate.
fn events_per_batch(rate: Option<(f32, u32)>) -> usize {
    const MOST: u32 = 64;
    let Some((each_second, burst)) = rate else { return MOST as usize };
    let most = (burst / 2).clamp(1, MOST);
    (f64::from(each_second) / 2.0).clamp(1.0, f64::from(most)) as usize
}

/// Host name and a random part, as in client-go: no two processes have the same.
fn identity() -> Result<String> {
    let mut random = [0_u8; 16];
    rustix::rand::getrandom(&mut random[..], rustix::rand::GetRandomFlags::empty())
        .context("no randomness for an identity")?;
    let random: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    Ok(format!("{host}_{random}"))
}

fn cloud(source: Option<&CloudSource>) -> Option<Arc<dyn CloudProvider>> {
    Some(match source? {
        CloudSource::File(path) => Arc::new(FileCloud::new(Path::new(path))),
        CloudSource::Program(path) => Arc::new(ProgramCloud::new(Path::new(path))),
    })
}

async fn secure_port(
    serving: &SecureServing,
    controller: &NodeController,
    environment: &Environment,
    working_directory: &Path,
) -> Result<ListeningPort> {
    let delegation = &serving.delegation;
    let client = |flag: &str, file: Option<&String>| -> Result<Option<Arc<dyn ClusterApi>>> {
        let access = match file {
            Some(file) => access::of_file(file, working_directory).context(flag.to_owned())?,
            None => match access::of_pod(environment) {
                Some(access) => access.context(flag.to_owned())?,
                None => return Ok(None),
            },
        };
        let client: ApiClient =
            access::client(access, Some(REVIEW_RATE), Duration::ZERO, environment)?;
        Ok(Some(Arc::new(client)))
    };
    let authentication =
        client("--authentication-kubeconfig", delegation.authentication_kubeconfig.as_ref())?;
    let authorization =
        client("--authorization-kubeconfig", delegation.authorization_kubeconfig.as_ref())?;
    if authorization.is_none() {
        warn!(
            "Without --authorization-kubeconfig only the paths that are open to all are answered"
        );
    }
    let times = ReviewTimes {
        token: delegation.token_cache_ttl,
        allowed: delegation.allowed_cache_ttl,
        refused: delegation.denied_cache_ttl,
    };
    let source = match &serving.certificate {
        Some((certificate, key)) => CertificateSource::Files {
            certificate: working_directory.join(certificate),
            key: working_directory.join(key),
        },
        None => CertificateSource::SelfSigned {
            dir: serving.cert_dir.as_ref().map(|dir| working_directory.join(dir)),
            names: vec!["localhost".to_owned(), "127.0.0.1".to_owned()],
        },
    };
    let port = SecurePort {
        address: serving.address,
        tls: TlsSettings {
            source,
            tls13_only: serving.min_tls_version == MinTlsVersion::Tls13,
            cipher_suites: serving.cipher_suites.clone(),
            client_authorities: serving
                .client_ca_file
                .as_ref()
                .map(|file| working_directory.join(file)),
        },
        open_paths: serving.open_paths.clone(),
        authority_lookup: authentication.clone().filter(|_| delegation.lookup_client_ca),
        reviews: Reviews::new(authentication, authorization, times),
        pages: Arc::new(PublicPages(controller.clone())),
    };
    let listening = port.listen().await.map_err(|error| anyhow!("secure port: {error}"))?;
    info!(address = ?serving.address, "Serving securely");
    Ok(listening)
}

/// Optional: its failure affects nothing else.
async fn local_socket(path: Option<&str>) -> Option<PageSocket> {
    match PageSocket::listen(Path::new(path?)).await {
        Ok(socket) => Some(socket),
        Err(error) => {
            warn!(err = error.to_string(), "`explain` will not be answered");
            None
        }
    }
}

#[cfg(test)]
mod tests;
