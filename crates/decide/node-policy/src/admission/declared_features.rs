//! The features that a node of this version declares, and which of them a pod needs.
//!
//! Rules: a feature is declared where its gate is on and the runtime can do its part; the list is
//! in order. A pod that needs one which is not declared is rejected. Features that only matter when
//! a running pod changes are declared and asked for nowhere else.
//!
//! upstream: component-helpers/nodedeclaredfeatures, pkg/kubelet/lifecycle/handlers.go

use std::collections::BTreeSet;

use pod_model::pod::Pod;
use pod_model::pod::container::RestartRuleAction;

#[cfg(test)]
mod tests;

const EXTEND_WEB_SOCKETS: &str = "ExtendWebSocketsToKubelet";
const RESIZE_POD_LEVEL: &str = "InPlacePodLevelResourcesVerticalScaling";
const RESIZE_INIT: &str = "InPlacePodVerticalScalingInitContainers";
const RESTART_ALL: &str = "RestartAllContainersOnContainerExits";
const USERS_ON_HOST_NETWORK: &str = "UserNamespacesHostNetworkSupport";

/// The gates of features, and the gate of declaring at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FeatureGates {
    /// `NodeDeclaredFeatures`
    pub declared: bool,
    pub extend_web_sockets: bool,
    pub resize_pod_level: bool,
    pub resize_init: bool,
    pub restart_all: bool,
    pub users_on_host_network: bool,
}

/// What this node declares; None where it does not declare at all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DeclaredFeatures(Option<BTreeSet<&'static str>>);

impl DeclaredFeatures {
    /// `runtime_maps_users_on_host_network`: whether the runtime says that it can.
    pub fn new(gates: &FeatureGates, runtime_maps_users_on_host_network: bool) -> Self {
        let all = [
            (EXTEND_WEB_SOCKETS, gates.extend_web_sockets),
            (RESIZE_POD_LEVEL, gates.resize_pod_level),
            (RESIZE_INIT, gates.resize_init),
            (RESTART_ALL, gates.restart_all),
            (
                USERS_ON_HOST_NETWORK,
                gates.users_on_host_network && runtime_maps_users_on_host_network,
            ),
        ];
        let declared = all.into_iter().filter(|(_, is_on)| *is_on).map(|(name, _)| name).collect();
        Self(gates.declared.then_some(declared))
    }

    /// For the node's status, in order.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.0.iter().flatten().copied()
    }

    /// The error for a feature that the pod needs and the node does not declare, with the
    /// reference's text.
    pub(super) fn rejection(&self, pod: &Pod) -> Option<String> {
        let declared = self.0.as_ref()?;
        let lacking: Vec<&str> =
            needed(pod).into_iter().filter(|name| !declared.contains(name)).collect();
        (!lacking.is_empty()).then(|| {
            format!("Pod requires node features that are not available: {}", lacking.join(", "))
        })
    }
}

fn needed(pod: &Pod) -> Vec<&'static str> {
    let spec = &pod.spec;
    let mut rules = spec
        .containers
        .iter()
        .chain(&spec.init_containers)
        .flat_map(|container| &container.restart_policy_rules);
    let restarts_all = rules.any(|rule| rule.action == RestartRuleAction::RestartAllContainers);
    let maps_users = spec.host_network && spec.has_user_namespace();
    [(RESTART_ALL, restarts_all), (USERS_ON_HOST_NETWORK, maps_users)]
        .into_iter()
        .filter(|(_, needs)| *needs)
        .map(|(name, _)| name)
        .collect()
}
