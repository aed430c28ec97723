//! Which static pods this node should run, from the snapshots of its sources, and under which UIDs.
//!
//! Rules: a snapshot is the whole of a source, so only the last one counts; a manifest with an
//! error removes nothing; of two manifests with a pod of the same name the one that has it keeps
//! it; a UID is assigned once and saved. Everything is a value: what must outlive the agent comes
//! out as records to write. Nothing here runs, stops or removes a pod.

mod manifests;
mod notice;
mod pod_identity;
mod record;
mod waiting;

pub use manifests::{MANIFESTS_DIR, ManifestOptions, Manifests, PodCandidate, SourceUpdate};
pub use notice::Notice;
pub use pod_identity::{IdentifiedPod, IdentityContext, PodIdentities, UIDS_DIR};
pub use record::RecordChange;
pub use waiting::WaitingPods;
