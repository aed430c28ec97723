//! The compact pod: every field of a v1 Pod that a node reads, as plain values.
//!
//! The rule it keeps: the fields are those of Kubernetes 1.36, each declared once (see `form`); no
//! default is filled in and nothing is judged here. Fields that Go holds as plain values use their
//! empty value for "not said", those that Go holds as pointers are `Option`s, so that the two can
//! be told apart where the reference tells them apart. A typical pod stays far below 30 KB.

pub mod container;
pub mod container_hash;
pub mod form;
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
pub use values::{Keyed, PortReference, TextMap, Timestamp};
pub use volume::{Volume, VolumeSource};

impl Pod {
    /// How many bytes the pod takes, itself included.
    pub fn total_bytes(&self) -> usize {
        size_of::<Self>() + form::Form::heap_bytes(self)
    }

    /// `name_namespace`, the name under which a static pod is known on a node.
    pub fn full_name(&self) -> String {
        format!("{}_{}", self.metadata.name, self.metadata.namespace)
    }
}
