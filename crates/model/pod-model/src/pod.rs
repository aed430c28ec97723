//! The compact pod: every field of a v1 Pod that a node reads, as plain values.
//!
//! The rule it keeps: the fields are those of Kubernetes 1.36, each declared once (see `codec`); no
//! default is filled in and nothing is validated here. Fields that Go holds as plain values are
//! unset when empty, those that Go holds as pointers are `Option`s, so that unset and empty are
//! distinct where they are in the reference. A typical pod stays far below 30 KB.

pub mod codec;
pub mod container;
pub mod container_hash;
pub mod handler;
pub mod meta;
pub mod resources;
pub mod scheduling;
pub mod security;
pub mod spec;
pub mod status;
pub mod values;
pub mod volume;

pub use container::{Container, EphemeralContainer};
pub use container_hash::{container_hash, container_hash_text};
pub use meta::ObjectMeta;
pub use resources::{QosClass, ResourceList, ResourceRequirements};
pub use spec::{Pod, PodSpec};
pub use values::{PortReference, SortedMap, TextMap, Timestamp};
pub use volume::{Volume, VolumeSource};

/// The source of a pod; every value but `api` makes it a static one.
const SOURCE_ANNOTATION: &str = "kubernetes.io/config.source";
/// The annotation of a mirror pod.
const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";
const SYSTEM_CRITICAL_PRIORITY: i32 = 2_000_000_000;

/// Where a static pod is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceKind {
    File,
    Url,
}

impl SourceKind {
    /// As the source annotation of static pods names it.
    pub fn word(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Url => "http",
        }
    }
}

impl Pod {
    /// Whether it came from a manifest of the node's, not from an API server.
    pub fn is_static(&self) -> bool {
        let source = self.metadata.annotations.get(SOURCE_ANNOTATION);
        source.is_some_and(|source| &**source != "api")
    }

    /// Whether the node must keep it: static, a mirror of a static one, or of a system's priority.
    // upstream: pkg/kubelet/types/pod_update.go
    pub fn is_critical(&self) -> bool {
        self.is_static()
            || self.metadata.annotations.contains(MIRROR_ANNOTATION)
            || self.spec.priority.is_some_and(|priority| priority >= SYSTEM_CRITICAL_PRIORITY)
    }

    /// How many bytes the pod takes, itself included.
    pub fn total_bytes(&self) -> usize {
        size_of::<Self>() + codec::FieldCodec::heap_bytes(self)
    }

    /// `name_namespace`, the name under which a static pod is known on a node.
    pub fn full_name(&self) -> String {
        format!("{}_{}", self.metadata.name, self.metadata.namespace)
    }
}
