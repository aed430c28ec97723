//! What the decisions read of nodes and pods: small values that the shell builds from API objects.
//!
//! Only the fields that a decision reads, so that fifteen thousand nodes fit in a few megabytes.
//! Names stay in the shell: decisions use handles.

use pod_model::TaintEffect;

use crate::time::RemoteTime;
use crate::zones::ZoneKey;

/// A node's handle: small, dense, and reused when a node of the same name is created again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

/// A pod's handle, one per UID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodId(pub u32);

/// A condition's status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConditionState {
    /// It holds.
    True,
    /// It does not hold.
    False,
    /// Unknown.
    Unknown,
}

/// The node conditions that decisions read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConditionKind {
    /// The node accepts pods.
    Ready,
    /// Memory is low.
    MemoryPressure,
    /// Disk is low.
    DiskPressure,
    /// Process ids are low.
    PidPressure,
    /// The network is not configured; written by network plugins, never by this controller.
    NetworkUnavailable,
}

impl ConditionKind {
    /// All of them, in the order in which taints are derived.
    pub const ALL: [Self; 5] = [
        Self::Ready,
        Self::MemoryPressure,
        Self::DiskPressure,
        Self::PidPressure,
        Self::NetworkUnavailable,
    ];

    /// Its name in the API.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ready => "Ready",
            Self::MemoryPressure => "MemoryPressure",
            Self::DiskPressure => "DiskPressure",
            Self::PidPressure => "PIDPressure",
            Self::NetworkUnavailable => "NetworkUnavailable",
        }
    }

    const fn slot(self) -> usize {
        self as usize
    }
}

/// One condition as last written to the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeConditionFacts {
    /// Whether it holds.
    pub status: ConditionState,
    /// When its writer last updated it, on the writer's clock.
    pub heartbeat: RemoteTime,
    /// When it last changed, on the writer's clock.
    pub transition: RemoteTime,
}

/// The conditions of one node; any may be missing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conditions([Option<NodeConditionFacts>; 5]);

impl Conditions {
    /// One of them.
    pub fn get(&self, kind: ConditionKind) -> Option<NodeConditionFacts> {
        self.0.get(kind.slot()).copied().flatten()
    }

    /// Writes or removes one.
    pub fn set(&mut self, kind: ConditionKind, condition: Option<NodeConditionFacts>) {
        if let Some(slot) = self.0.get_mut(kind.slot()) {
            *slot = condition;
        }
    }

    /// The status of one of them.
    pub fn status(&self, kind: ConditionKind) -> Option<ConditionState> {
        self.get(kind).map(|condition| condition.status)
    }

    /// Whether the Ready condition is True.
    pub fn is_ready(&self) -> bool {
        self.status(ConditionKind::Ready) == Some(ConditionState::True)
    }
}

/// A taint's key; those that decisions interpret have a variant.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TaintKey {
    /// The node's Ready condition is False.
    NotReady,
    /// The node's Ready condition is Unknown: no heartbeat arrives.
    Unreachable,
    /// Memory is low.
    MemoryPressure,
    /// Disk is low.
    DiskPressure,
    /// Process ids are low.
    PidPressure,
    /// The network is not configured.
    NetworkUnavailable,
    /// An administrator cordoned it.
    Unschedulable,
    /// An administrator declared the node powered off for good.
    OutOfService,
    /// The cloud reports it as shut down.
    CloudShutdown,
    /// The cloud has not initialized it yet.
    CloudUninitialized,
    /// Anything else.
    Other(Box<str>),
}

impl TaintKey {
    const NAMED: [(Self, &'static str); 10] = [
        (Self::NotReady, "node.kubernetes.io/not-ready"),
        (Self::Unreachable, "node.kubernetes.io/unreachable"),
        (Self::MemoryPressure, "node.kubernetes.io/memory-pressure"),
        (Self::DiskPressure, "node.kubernetes.io/disk-pressure"),
        (Self::PidPressure, "node.kubernetes.io/pid-pressure"),
        (Self::NetworkUnavailable, "node.kubernetes.io/network-unavailable"),
        (Self::Unschedulable, "node.kubernetes.io/unschedulable"),
        (Self::OutOfService, "node.kubernetes.io/out-of-service"),
        (Self::CloudShutdown, "node.cloudprovider.kubernetes.io/shutdown"),
        (Self::CloudUninitialized, "node.cloudprovider.kubernetes.io/uninitialized"),
    ];

    /// Parses a key.
    pub fn parse(text: &str) -> Self {
        Self::NAMED
            .into_iter()
            .find_map(|(key, name)| (name == text).then_some(key))
            .unwrap_or_else(|| Self::Other(text.into()))
    }

    /// Its text in the API.
    pub fn as_str(&self) -> &str {
        match self {
            Self::NotReady => "node.kubernetes.io/not-ready",
            Self::Unreachable => "node.kubernetes.io/unreachable",
            Self::MemoryPressure => "node.kubernetes.io/memory-pressure",
            Self::DiskPressure => "node.kubernetes.io/disk-pressure",
            Self::PidPressure => "node.kubernetes.io/pid-pressure",
            Self::NetworkUnavailable => "node.kubernetes.io/network-unavailable",
            Self::Unschedulable => "node.kubernetes.io/unschedulable",
            Self::OutOfService => "node.kubernetes.io/out-of-service",
            Self::CloudShutdown => "node.cloudprovider.kubernetes.io/shutdown",
            Self::CloudUninitialized => "node.cloudprovider.kubernetes.io/uninitialized",
            Self::Other(text) => text,
        }
    }

    /// Whether this is one of the two "lost" taints (not-ready, unreachable); a node carries at
    /// most one.
    pub fn means_lost(&self) -> bool {
        matches!(self, Self::NotReady | Self::Unreachable)
    }
}

/// A taint. Two taints of one key and effect are the same taint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taint {
    /// Its key.
    pub key: TaintKey,
    /// Its value; often empty.
    pub value: Box<str>,
    /// Its effect on pods.
    pub effect: TaintEffect,
    /// When it was added, on the clock of the client that added it.
    pub added: Option<RemoteTime>,
}

impl Taint {
    /// A taint without a value.
    pub fn new(key: TaintKey, effect: TaintEffect, added: Option<RemoteTime>) -> Self {
        Self { key, value: "".into(), effect, added }
    }

    /// Whether this is the taint of that key and effect.
    pub fn is(&self, key: &TaintKey, effect: TaintEffect) -> bool {
        self.key == *key && self.effect == effect
    }
}

/// The fields of a node that decisions read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeHealthFacts {
    /// When the API server created it.
    pub created: RemoteTime,
    /// Its resource version; grows with each write.
    pub version: u64,
    /// Its conditions.
    pub conditions: Conditions,
    /// Its taints, in order.
    pub taints: Vec<Taint>,
    /// Whether it is cordoned.
    pub unschedulable: bool,
    /// The zone from its labels.
    pub zone: ZoneKey,
    /// Whether its labels exclude it from its zone's count.
    pub excluded: bool,
    /// Label changes that [`crate::taints::mirrored_labels`] found necessary.
    pub label_fixes: Vec<(Box<str>, Box<str>)>,
}

#[cfg(test)]
mod tests;
