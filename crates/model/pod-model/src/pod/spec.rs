//! The pod itself: metadata, specification, and the little of its status that the node reads.
//!
//! The rule it keeps: every field of the PodSpec of Kubernetes 1.36 is here. The status that the
//! node writes is another type; from what others wrote it needs only the fields below.

use super::codec::{object, string_enum};
use super::container::{Container, EphemeralContainer};
use super::meta::ObjectMeta;
use super::resources::{QosClass, ResourceList, ResourceRequirements};
use super::scheduling::{Affinity, Toleration, TopologySpreadConstraint};
use super::security::PodSecurityContext;
use super::values::{IgnoredField, TextMap, Timestamp};
use super::volume::{NamedReference, Volume};
use crate::CopyOnWrite;

string_enum! {
    pub enum RestartPolicy { Always, OnFailure, Never }
    pub enum DnsPolicy { ClusterFirst, ClusterFirstWithHostNet, Default, NoPolicy = "None" }
    pub enum PreemptionPolicy { PreemptLowerPriority, Never }
    pub enum OsName { Linux = "linux", Windows = "windows" }
    pub enum PodPhase { Pending, Running, Succeeded, Failed, Unknown }
}

object! {
    pub struct Pod {
        "apiVersion" api_version: IgnoredField;
        "kind" kind: IgnoredField;
        "metadata" metadata: ObjectMeta, always;
        /// Shared, as a pod is kept as its manifest has it and as it is run, which differ in the rest.
        "spec" spec: CopyOnWrite<PodSpec>, always;
        "status" status: ObservedPodStatus, always;
    }

    pub struct PodSpec {
        "volumes" volumes: Vec<Volume>;
        "initContainers" init_containers: Vec<Container>;
        "containers" containers: Vec<Container>, always;
        "ephemeralContainers" ephemeral_containers: Vec<EphemeralContainer>;
        "restartPolicy" restart_policy: RestartPolicy;
        "terminationGracePeriodSeconds" termination_grace_period_seconds: Option<i64>;
        "activeDeadlineSeconds" active_deadline_seconds: Option<i64>;
        "dnsPolicy" dns_policy: DnsPolicy;
        "nodeSelector" node_selector: TextMap;
        "serviceAccountName" service_account_name: Box<str>;
        "serviceAccount" service_account: Box<str>;
        "automountServiceAccountToken" automount_service_account_token: Option<bool>;
        "nodeName" node_name: Box<str>;
        "hostNetwork" host_network: bool;
        "hostPID" host_pid: bool;
        "hostIPC" host_ipc: bool;
        "shareProcessNamespace" share_process_namespace: Option<bool>;
        "securityContext" security_context: Option<Box<PodSecurityContext>>;
        "imagePullSecrets" image_pull_secrets: Vec<NamedReference>;
        "hostname" hostname: Box<str>;
        "subdomain" subdomain: Box<str>;
        "affinity" affinity: Option<Box<Affinity>>;
        "schedulerName" scheduler_name: Box<str>;
        "tolerations" tolerations: Vec<Toleration>;
        "hostAliases" host_aliases: Vec<HostAlias>;
        "priorityClassName" priority_class_name: Box<str>;
        "priority" priority: Option<i32>;
        "dnsConfig" dns_config: Option<Box<PodDnsConfig>>;
        "readinessGates" readiness_gates: Vec<PodReadinessGate>;
        "runtimeClassName" runtime_class_name: Option<Box<str>>;
        "enableServiceLinks" enable_service_links: Option<bool>;
        "preemptionPolicy" preemption_policy: Option<PreemptionPolicy>;
        "overhead" overhead: ResourceList;
        "topologySpreadConstraints" topology_spread_constraints: Vec<TopologySpreadConstraint>;
        "setHostnameAsFQDN" set_hostname_as_fqdn: Option<bool>;
        "os" os: Option<PodOs>;
        "hostUsers" host_users: Option<bool>;
        "schedulingGates" scheduling_gates: Vec<PodSchedulingGate>;
        "resourceClaims" resource_claims: Vec<PodResourceClaim>;
        "resources" resources: Option<Box<ResourceRequirements>>;
        "hostnameOverride" hostname_override: Option<Box<str>>;
        "schedulingGroup" scheduling_group: Option<Box<PodSchedulingGroup>>;
    }

    pub struct HostAlias {
        "ip" ip: Box<str>, always;
        "hostnames" hostnames: Vec<Box<str>>;
    }

    pub struct PodDnsConfig {
        "nameservers" nameservers: Vec<Box<str>>;
        "searches" searches: Vec<Box<str>>;
        "options" options: Vec<PodDnsConfigOption>;
    }

    pub struct PodDnsConfigOption {
        "name" name: Box<str>;
        "value" value: Option<Box<str>>;
    }

    pub struct PodReadinessGate {
        "conditionType" condition_type: Box<str>, always;
    }

    pub struct PodOs {
        "name" name: OsName, always;
    }

    pub struct PodSchedulingGate {
        "name" name: Box<str>, always;
    }

    pub struct PodResourceClaim {
        "name" name: Box<str>, always;
        "resourceClaimName" resource_claim_name: Option<Box<str>>;
        "resourceClaimTemplateName" resource_claim_template_name: Option<Box<str>>;
    }

    pub struct PodSchedulingGroup {
        "podGroupName" pod_group_name: Option<Box<str>>;
    }

    /// A status as read from the API.
    pub struct ObservedPodStatus {
        "observedGeneration" observed_generation: i64;
        "phase" phase: PodPhase;
        "conditions" conditions: IgnoredField;
        "message" message: Box<str>;
        "reason" reason: Box<str>;
        "nominatedNodeName" nominated_node_name: IgnoredField;
        "hostIP" host_ip: IgnoredField;
        "hostIPs" host_ips: IgnoredField;
        "podIP" pod_ip: IgnoredField;
        "podIPs" pod_ips: IgnoredField;
        "startTime" start_time: Option<Timestamp>;
        "initContainerStatuses" init_container_statuses: IgnoredField;
        "containerStatuses" container_statuses: IgnoredField;
        "qosClass" qos_class: QosClass;
        "ephemeralContainerStatuses" ephemeral_container_statuses: IgnoredField;
        "resize" resize: IgnoredField;
        "resourceClaimStatuses" resource_claim_statuses: Vec<PodResourceClaimStatus>;
        "extendedResourceClaimStatus" extended_resource_claim_status: IgnoredField;
        "allocatedResources" allocated_resources: IgnoredField;
        "resources" resources: IgnoredField;
        "nodeAllocatableResourceClaimStatuses" node_allocatable_claims: IgnoredField;
    }

    pub struct PodResourceClaimStatus {
        "name" name: Box<str>, always;
        "resourceClaimName" resource_claim_name: Option<Box<str>>;
    }
}

/// Which of the three lists a container is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContainerList {
    Init,
    Regular,
    Ephemeral,
}

impl ContainerList {
    /// The name of the list in a specification.
    pub fn field(self) -> &'static str {
        match self {
            Self::Init => "initContainers",
            Self::Regular => "containers",
            Self::Ephemeral => "ephemeralContainers",
        }
    }
}

impl PodSpec {
    /// All containers in the order init, regular, ephemeral, each with its place in its list.
    pub fn all_containers(&self) -> impl Iterator<Item = (ContainerList, usize, &Container)> {
        let numbered = |list| move |(at, container)| (list, at, container);
        let ephemeral = self.ephemeral_containers.iter().map(|each| &each.container);
        self.init_containers
            .iter()
            .enumerate()
            .map(numbered(ContainerList::Init))
            .chain(self.containers.iter().enumerate().map(numbered(ContainerList::Regular)))
            .chain(ephemeral.enumerate().map(numbered(ContainerList::Ephemeral)))
    }

    pub fn all_containers_mut(&mut self) -> impl Iterator<Item = &mut Container> {
        let ephemeral = self.ephemeral_containers.iter_mut().map(|each| &mut each.container);
        self.init_containers.iter_mut().chain(&mut self.containers).chain(ephemeral)
    }

    /// Whether the pod asks for a user namespace (`hostUsers: false`).
    pub fn has_user_namespace(&self) -> bool {
        self.host_users == Some(false)
    }

    pub fn is_windows(&self) -> bool {
        self.os.as_ref().is_some_and(|os| os.name == OsName::Windows)
    }
}
