//! From the bytes of a manifest to a pod that a node can run.
//!
//! Four steps, each a function from value to value: [`decode`] makes typed pods out of YAML or JSON
//! and reports errors with file, line and field; [`apply_defaults`] fills in what an API server
//! would; [`static_pod::apply`] makes a static pod of it; [`validate`] checks it as an API server
//! checks a new pod. [`read_static_pods`] is all four in the order of the reference. The rule it
//! keeps: same result and same defaults as an API server of Kubernetes 1.36 with the same gates;
//! all findings are collected, and no input makes it panic. It opens no file and reads no clock.
//! [`decode_content`] does the same for a ConfigMap or a Secret that stands beside pods.

mod content_references;
mod contents;
mod decode;
mod defaults;
mod gates;
mod preparation;
mod source;
pub mod static_pod;
mod validation;

#[cfg(test)]
mod bad_manifests;
#[cfg(test)]
mod tests;

pub use content_references::{ReferencedContent, content_references};
pub use contents::{ContentManifest, content_kind, decode_content};
pub use decode::{Decoded, ListPolicy, MAX_MANIFEST_BYTES, ManifestPod, Strictness, decode};
pub use defaults::{apply_defaults, with_default_tag};
pub use gates::PodGates;
pub use preparation::prepare_for_create;
pub use source::{StaticPodSource, StaticPods, read_static_pods};
pub use validation::validate;
