//! Pods that an earlier `keelson run` left without an agent: it was killed, or exited before they
//! had ended.
//!
//! Rule: found by the agent's own records; the next agent of the root ends those that are not
//! desired again. Pods of a background agent are not among them: they are adopted.

use super::desired_pods::WantedPod;
use crate::kubelet::machine::node_name;
use anyhow::Result;
use host_files::HostRecords;
use pod_desired::{PodIdentities, UIDS_DIR};
use ports::pod_host::AgentRecords;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;

/// Records of pods that were ending, each as a manifest.
const ENDING_DIR: &str = "ending";

/// `namespace/name` of each. `wanted`: namespaces and names that are run now; `background_store`: pods of a
/// background agent.
pub(super) async fn below<'a>(
    agent_root: &Path,
    wanted: impl Iterator<Item = (&'a str, &'a str)>,
    background_store: &[WantedPod],
) -> Result<BTreeSet<String>> {
    let records = HostRecords::new(agent_root);
    let mut identities = PodIdentities::default();
    // The agent reports what cannot be read.
    let _ = identities.restore(&records.load(UIDS_DIR).await?.records);
    let suffix = format!("-{}", node_name(""));
    let running = identities
        .owners()
        .filter(|(_, manifest)| !background_store.iter().any(|pod| pod.manifest == *manifest))
        .filter_map(|(full_name, _)| full_name.rsplit_once('_'))
        .map(|(name, namespace)| (namespace.to_owned(), name.to_owned()));
    let ending = records.load(ENDING_DIR).await?.records;
    let ending = ending.iter().filter_map(|(_, content)| {
        let pod: Value = serde_json::from_slice(content).ok()?;
        let text = |key: &str| Some(pod["metadata"][key].as_str()?.to_owned());
        Some((text("namespace")?, text("name")?))
    });
    let named = running.chain(ending).map(|(namespace, name)| {
        let name = name.strip_suffix(&suffix).unwrap_or(&name);
        format!("{namespace}/{name}")
    });
    let mut left: BTreeSet<String> = named.collect();
    for (namespace, name) in wanted {
        left.remove(&format!("{namespace}/{name}"));
    }
    Ok(left)
}

pub(super) fn notice(pod: &str) -> String {
    format!("{pod} was left by an earlier run; it is ended")
}
