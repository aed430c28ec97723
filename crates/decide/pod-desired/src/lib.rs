//! Which pods this node should run: static ones, from the snapshots of their sources, with their
//! UIDs; and those of the API server.
//!
//! Rules: a snapshot is the whole of a source, so only the last one counts; a manifest with an
//! error removes nothing; of two manifests with a pod of the same name the one that has it keeps
//! it; a UID is assigned once and saved. Everything is a value: what must outlive the agent comes
//! out as records to write. Nothing here runs, stops or removes a pod.

mod api_pods;
mod manifests;
mod mirror_pods;
mod notice;
mod pod_identity;
mod record;
mod waiting;

pub use api_pods::{
    API_SOURCE, ApiPodEntry, ApiPods, CONFIG_MIRROR_ANNOTATION, MirrorPod, is_newer,
};
pub use manifests::{MANIFESTS_DIR, ManifestOptions, Manifests, PodCandidate, SourceUpdate};
pub use mirror_pods::{MirrorStep, StaticPodSet, config_hash, mirror_body, mirror_steps};
pub use notice::Notice;
pub use pod_identity::{IdentifiedPod, IdentityContext, PodIdentities, UIDS_DIR};
pub use record::RecordChange;
pub use waiting::WaitingPods;
