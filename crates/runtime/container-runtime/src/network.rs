//! Pod networks: by CNI plugins if there is a CNI configuration, otherwise by the built-in bridge,
//! so that a bare host needs nothing.
//!
//! Rule: a planned network is in the sandbox's record on disk before it is set up; networks without
//! a record are torn down at startup. Tear-down is idempotent and uses only the record, not the
//! current configuration. CNI and the built-in network are never mixed for one pod.

mod addresses;
mod built_in;
mod cni;
mod trial;

use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;

use cri_wire::v1;
use netlink::NetlinkSocket;

use crate::failure::{CallContext as _, CriError, Result, blocking};
use crate::records::{NetworkKind, NetworkRecord, StoredSandbox};

pub(crate) use addresses::Subnet;
pub(crate) use built_in::{BuiltIn, BuiltInSettings};
pub(crate) use cni::{Cni, CniSettings};
pub use trial::{NetworkTrialError, try_built_in_network};

/// The name of a pod's interface inside its namespace.
pub(crate) const INSIDE: &str = "eth0";

impl From<cni_documents::CniError> for CriError {
    fn from(error: cni_documents::CniError) -> Self {
        Self::plain(error.to_string())
    }
}

impl From<netlink::NetlinkError> for CriError {
    fn from(error: netlink::NetlinkError) -> Self {
        Self::plain(error.to_string())
    }
}

/// What the network needs of a pod.
#[derive(Debug, Clone)]
pub(crate) struct PodNetwork {
    pub sandbox: String,
    pub config: v1::PodSandboxConfig,
}

impl PodNetwork {
    pub(crate) fn of(record: &StoredSandbox) -> Self {
        Self { sandbox: record.id.clone(), config: record.config.clone().unwrap_or_default() }
    }

    /// Host ports that lead to the pod.
    pub(crate) fn host_ports(&self) -> impl Iterator<Item = &v1::PortMapping> {
        self.config.port_mappings.iter().filter(|mapping| mapping.host_port > 0)
    }
}

/// CNI and the built-in network, and which of them is used for new pods.
#[derive(Debug)]
pub(crate) struct Network {
    cni: Cni,
    built_in: Arc<BuiltIn>,
    dir: PathBuf,
}

impl Network {
    /// `dir` is where network namespaces are pinned.
    pub(crate) fn new(dir: PathBuf, mut cni: CniSettings, built_in: BuiltIn) -> Result<Self> {
        crate::durable::make_dir(&dir)?;
        cni.calls = dir.with_file_name("cni");
        Ok(Self { cni: Cni::new(cni), built_in: Arc::new(built_in), dir })
    }

    /// The path at which a sandbox's network namespace is pinned.
    pub(crate) fn namespace_path(&self, sandbox: &str) -> PathBuf {
        self.dir.join(sandbox)
    }

    /// Whether pods can get a network now; otherwise the reason.
    pub(crate) async fn readiness(&self) -> std::result::Result<(), String> {
        match self.cni.configuration().await {
            Ok(Some(configuration)) => self.cni.readiness(&configuration).await,
            Ok(None) => self.built_in.readiness(),
            Err(failure) => Err(failure.text),
        }
    }

    /// Handles the kubelet's pod CIDR. As in containerd it changes nothing: with CNI the plugins
    /// choose, and the built-in network keeps its own range across servers that no kubelet has
    /// contacted yet. Logs the range in use if it differs.
    pub(crate) async fn on_pod_cidr(&self, range: &str) {
        match self.cni.configuration().await {
            Ok(None) => {
                if let Some(words) = self.built_in.range_mismatch(range) {
                    tracing::warn!("{words}");
                }
            }
            Ok(Some(_)) | Err(_) => {
                tracing::info!(range, "the pod CIDR is left to the CNI plugins");
            }
        }
    }

    /// Plans a new pod's network, with everything that tearing it down needs.
    pub(crate) async fn plan(&self, pod: &PodNetwork) -> Result<NetworkRecord> {
        let namespace = self.namespace_path(&pod.sandbox).display().to_string();
        let record = NetworkRecord { namespace, ..Default::default() };
        match self.cni.configuration().await? {
            Some(configuration) => {
                self.cni.find_plugins(&configuration)?;
                let (kind, cni_configuration) = (NetworkKind::Cni.into(), configuration.text);
                Ok(NetworkRecord { kind, cni_configuration, ..record })
            }
            None => {
                // Before anything of it exists: what cannot be created need not be torn down.
                let built_in = Arc::clone(&self.built_in);
                blocking(move || built_in.readiness().map_err(CriError::plain)).await?;
                let (link, addresses) = self.built_in.reserve(pod)?;
                let kind = NetworkKind::BuiltIn.into();
                Ok(NetworkRecord { kind, link, addresses, ..record })
            }
        }
    }

    /// Sets up the planned network; the record then has the addresses. If it fails, the record
    /// still lists what may be left, and the caller tears it down.
    pub(crate) async fn set_up(
        &self,
        pod: &PodNetwork,
        mut record: NetworkRecord,
        namespace: OwnedFd,
    ) -> Result<NetworkRecord> {
        let namespace = blocking(move || {
            netlink::in_namespace(namespace.as_fd(), || {
                let mut routes = NetlinkSocket::routes()?;
                let loopback = routes.link("lo")?;
                routes.set_up(loopback.index)
            })?;
            Ok(namespace)
        })
        .await
        .doing("bringing the pod's loopback up")?;
        match record.kind() {
            NetworkKind::Cni => {
                let result = self.cni.add(pod, &record).await?;
                record.addresses = cni_documents::addresses_of(&result, INSIDE)?;
                record.cni_result = result;
            }
            NetworkKind::BuiltIn => {
                let (built_in, pod) = (Arc::clone(&self.built_in), pod.clone());
                let plan = record.clone();
                blocking(move || built_in.add(&pod, &plan, namespace.as_fd())).await?;
            }
        }
        record.complete = true;
        Ok(record)
    }

    /// Tears everything down, including what was only planned. The namespace's pin is removed last,
    /// after the plugins.
    pub(crate) async fn tear_down(&self, pod: &PodNetwork, record: &NetworkRecord) -> Result<()> {
        let path = PathBuf::from(&record.namespace);
        match record.kind() {
            NetworkKind::Cni => self.cni.teardown(pod, record).await?,
            NetworkKind::BuiltIn => {
                let (built_in, pod, record) =
                    (Arc::clone(&self.built_in), pod.clone(), record.clone());
                blocking(move || built_in.remove(&pod, &record)).await?;
            }
        }
        blocking(move || Ok(netlink::unpin_namespace(&path)?)).await
    }

    /// Drops a plan that was never written to a record.
    pub(crate) fn release(&self, sandbox: &str) {
        self.built_in.release(sandbox);
    }

    /// At startup: adopts the networks of these pods and tears down those without a pod. What
    /// cannot be torn down is logged and retried at the next start: pods on the host network or on
    /// a CNI network do not need it.
    pub(crate) async fn adopt(&self, pods: Vec<(PodNetwork, NetworkRecord)>) {
        if let Err(failure) = self.remove_leftovers(pods).await {
            tracing::error!(%failure, "what former pods left of the network");
        }
    }

    async fn remove_leftovers(&self, pods: Vec<(PodNetwork, NetworkRecord)>) -> Result<()> {
        let built_in = Arc::clone(&self.built_in);
        built_in.adopt_members(&pods);
        let known: Vec<String> = pods.iter().map(|(pod, _)| pod.sandbox.clone()).collect();
        // While their namespaces are still pinned.
        self.cni.collect(&known).await;
        for name in crate::durable::names_in(&self.dir)? {
            if !known.contains(&name) {
                let path = self.dir.join(name);
                blocking(move || Ok(netlink::unpin_namespace(&path)?)).await?;
            }
        }
        blocking(move || built_in.remove_leftovers()).await
    }
}
