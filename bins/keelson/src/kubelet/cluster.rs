//! Makes the agent a node of a cluster: access to the API server, and the settings of the Node
//! object.
//!
//! Rule: wiring only. Without `--kubeconfig` there is no cluster. Status, Lease and events have
//! their own clients, as upstream has: a client that waits delays no other.

use super::machine::{self, MachineSize};
use super::machine_info::HostMachineInfo;
use super::node_credentials::{ManagedCertificate, NodeCredentials, node_credentials};
use super::pod_settings;
use anyhow::{Result, anyhow};
use apiserver_client::{
    ApiClient, ClientOptions, ClusterAccess, ProxyEnvironment, RateLimit, RequestMetrics,
};
use certificate_files::CertificateDir;
use node_agent::{
    CertificateDependencies, ClientCertificate, ClusterDependencies, ClusterEventQueue,
    ClusterSettings,
};
use node_config::flags::KUBERNETES_VERSION;
use node_config::{KubeletConfiguration, NodeConfig};
use node_status::object::NodeSettings;
use ports::cluster_objects::NodeTaint;
use ports::{CertificateStore, ClusterApi};
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// The field manager in the API server's records.
const MANAGER: &str = "kubelet";
/// Checkpoint of the devices that plugins have registered.
const DEVICE_CHECKPOINT: &str = "device-plugins/kubelet_internal_checkpoint";

/// None for a standalone node. Call within tokio.
pub(super) fn cluster_dependencies(
    config: &NodeConfig,
    node_name: &str,
    size: &MachineSize,
    connection: &ApiConnection<'_>,
) -> Result<Option<ClusterDependencies>> {
    let Some(credentials) = node_credentials(config)? else { return Ok(None) };
    let NodeCredentials { access, managed } = credentials;
    let access = access.with_proxy_from(connection.proxies).map_err(|error| anyhow!("{error}"))?;
    let settings = config.settings();
    let api =
        connection.client(&access, rate(settings.kube_apiqps, settings.kube_api_burst), None)?;
    let lease_duration = seconds(settings.node_lease_duration_seconds);
    let update_frequency = settings.node_status_update_frequency.as_std().unwrap_or_default();
    let deadline = update_frequency.min(lease_duration).max(Duration::from_secs(1));
    let heartbeats = connection.client(&access, None, Some(deadline))?;
    let event_api =
        connection.client(&access, rate(settings.event_record_qps, settings.event_burst), None)?;
    let root_dir = Path::new(&config.flags().root_dir);
    Ok(Some(ClusterDependencies {
        api: Arc::new(api),
        heartbeats: Arc::new(heartbeats),
        machine: Arc::new(HostMachineInfo::new(root_dir, node_name)),
        settings: ClusterSettings {
            node: node_settings(config, node_name),
            registers: settings.register_node,
            node_ips: node_ips(config),
            reservation: pod_settings::reservation(config, size)?,
            declared_features: pod_settings::declared_features(config),
            update_frequency,
            report_frequency: settings.node_status_report_frequency.as_std().unwrap_or_default(),
            lease_duration,
            resets_devices: !root_dir.join(DEVICE_CHECKPOINT).exists(),
        },
        events: Arc::new(ClusterEventQueue::new(node_name)),
        event_api: Arc::new(event_api),
        certificates: certificates(config, managed, connection)?,
    }))
}

/// The certificates that the cluster issues to this node.
fn certificates(
    config: &NodeConfig,
    managed: Option<ManagedCertificate>,
    connection: &ApiConnection<'_>,
) -> Result<CertificateDependencies> {
    let settings = config.settings();
    let client_certificate = |managed: ManagedCertificate| {
        let bootstrap = match managed.bootstrap {
            Some(access) => {
                let access = access
                    .with_proxy_from(connection.proxies)
                    .map_err(|error| anyhow!("{error}"))?;
                Some(Arc::new(connection.client(&access, None, None)?) as Arc<dyn ClusterApi>)
            }
            None => None,
        };
        anyhow::Ok(ClientCertificate {
            store: Arc::new(managed.store),
            bootstrap,
            rotates: managed.rotates,
            replace_now: managed.replace_now,
            lost: watch::Sender::new(None),
        })
    };
    let serving = settings.server_tls_bootstrap.then(|| serving_store(config));
    Ok(CertificateDependencies {
        client: managed.map(client_certificate).transpose()?,
        serving: serving.map(|store| Arc::new(store) as Arc<dyn CertificateStore>),
    })
}

/// The files of the serving certificate that the cluster signs.
pub(super) fn serving_store(config: &NodeConfig) -> CertificateDir {
    let settings = config.settings();
    let store = CertificateDir::serving(Path::new(&config.flags().cert_dir));
    match (settings.tls_cert_file.as_str(), settings.tls_private_key_file.as_str()) {
        ("", _) | (_, "") => store,
        (certificate, key) => store.with_files(certificate.into(), key.into()),
    }
}

/// How the API server is reached, and where requests to it are counted.
pub(super) struct ApiConnection<'a> {
    pub(super) proxies: &'a ProxyEnvironment,
    pub(super) metrics: Arc<RequestMetrics>,
}

impl ApiConnection<'_> {
    fn client(
        &self,
        access: &ClusterAccess,
        rate: Option<RateLimit>,
        deadline: Option<Duration>,
    ) -> Result<ApiClient> {
        let default = ClientOptions::default();
        let options = ClientOptions {
            user_agent: format!(
                "{MANAGER}/{KUBERNETES_VERSION} (linux/{}) keelson/{}",
                machine::architecture(),
                env!("CARGO_PKG_VERSION")
            ),
            field_manager: MANAGER.to_owned(),
            rate,
            deadline: deadline.unwrap_or(default.deadline),
            metrics: self.metrics.clone(),
            ..default
        };
        ApiClient::new(access.clone(), options).map_err(|error| anyhow!("--kubeconfig: {error}"))
    }
}

/// No limit where the rate is zero or less.
fn rate(per_second: i32, burst: i32) -> Option<RateLimit> {
    RateLimit::new(f64::from(per_second), u32::try_from(burst).unwrap_or(1))
}

fn seconds(count: i32) -> Duration {
    Duration::from_secs(u64::try_from(count).unwrap_or(0))
}

/// The addresses of `--node-ip`, also those that only name a family.
fn node_ips(config: &NodeConfig) -> Vec<IpAddr> {
    config.flags().node_ip.split(',').filter_map(|ip| ip.trim().parse().ok()).collect()
}

fn node_settings(config: &NodeConfig, node_name: &str) -> NodeSettings {
    let (settings, flags) = (config.settings(), config.flags());
    let taints = settings.register_with_taints.iter().map(|taint| NodeTaint {
        key: taint.key.clone(),
        value: taint.value.clone(),
        effect: taint.effect.clone(),
        time_added: None,
    });
    NodeSettings {
        node_name: node_name.to_owned(),
        hostname: node_name.to_owned(),
        labels: flags.node_labels.clone(),
        taints: taints.collect(),
        unschedulable: false,
        external_cloud_provider: flags.cloud_provider == "external",
        controller_attaches_volumes: settings.enable_controller_attach_detach,
        provider_id: settings.provider_id.clone(),
        max_pods: i64::from(settings.max_pods),
        pods_per_core: i64::from(settings.pods_per_core),
        port: port(settings),
        max_images: i64::from(settings.node_status_max_images),
        architecture: machine::architecture().to_owned(),
        kubelet_version: KUBERNETES_VERSION.to_owned(),
        counts_local_storage: settings.local_storage_capacity_isolation,
    }
}

fn port(settings: &KubeletConfiguration) -> u16 {
    u16::try_from(settings.port).unwrap_or(0)
}
