//! The port to a cloud provider: which instances it has, where they are, and whether they run.
//!
//! Rule: an answer is either certain or an error. "There is no such instance" is returned only when
//! the cloud itself answered so; an adapter that cannot be sure returns an error, because a node
//! may be deleted on a clear no. An adapter writes neither to the cloud nor to the cluster.

use std::collections::BTreeMap;

use crate::PortFuture;

/// Identifies a node: a cloud finds its instance by the provider id, or only by the node's name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CloudNodeName {
    pub name: String,
    /// `spec.providerID`, such as `aws:///eu-1a/i-0123`; empty until it has been set.
    pub provider_id: String,
}

/// Whether an instance runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InstanceState {
    Running,
    ShutDown,
    /// The instance exists; nothing more is known.
    #[default]
    Unknown,
}

/// An address of an instance, as the API names kinds: `InternalIP`, `ExternalIP`, `Hostname`,
/// `InternalDNS`, `ExternalDNS`. Others are skipped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CloudAddress {
    pub kind: String,
    pub address: String,
}

/// One instance as the cloud describes it. A text is empty where the cloud does not report it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CloudInstance {
    /// The name of its node.
    pub node: String,
    pub provider_id: String,
    pub instance_type: String,
    pub zone: String,
    pub region: String,
    pub state: InstanceState,
    pub addresses: Vec<CloudAddress>,
    pub labels: BTreeMap<String, String>,
}

/// Why a cloud gave no answer. All mean the same to a caller: the state is unknown, retry later.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cloud {cloud}: {cause}")]
pub struct CloudError {
    pub cloud: String,
    pub cause: String,
}

/// A cloud. The adapter sets a deadline for every call.
pub trait CloudProvider: Send + Sync {
    /// The name of the provider, for messages.
    fn name(&self) -> &str;
    /// One instance; `None` only when the cloud is certain that it does not have it.
    fn instance<'a>(
        &'a self,
        node: &'a CloudNodeName,
    ) -> PortFuture<'a, Result<Option<CloudInstance>, CloudError>>;
    /// All instances that are meant to be nodes. One that is missing here is not yet gone: call
    /// `instance` before acting on it.
    fn instances(&self) -> PortFuture<'_, Result<Vec<CloudInstance>, CloudError>>;
}
