//! What a background agent needs after it was killed: the manifests of its pods with what they use,
//! and the settings of the runtime that they run in.
//!
//! Rule: on disk before a pod is started, removed from disk before a pod is ended on request, so
//! that a restarted agent runs exactly the desired pods, on the same network.

use super::contents::ContentDocument;
use super::desired_pods::WantedPod;
use anyhow::{Context, Result, anyhow, bail};
use host_files::HostRecords;
use ports::pod_host::AgentRecords;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[cfg(test)]
mod tests;

const RECORD_DIR: &str = "background";
const VERSION: u32 = 1;

#[derive(Clone)]
pub(super) struct BackgroundPodStore {
    records: Arc<dyn AgentRecords>,
    runtime_config: PathBuf,
}

#[derive(Serialize, Deserialize)]
struct BackgroundPodRecord {
    version: u32,
    namespace: String,
    name: String,
    manifest: String,
    text: String,
    /// The documents of the ConfigMaps and Secrets that it uses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    contents: Vec<String>,
}

impl BackgroundPodStore {
    pub(super) fn below(agent_root: &Path) -> Self {
        Self {
            records: Arc::new(HostRecords::new(agent_root)),
            runtime_config: agent_root.join("runtime-config.json"),
        }
    }

    /// The settings file of the runtime. A given one is kept; without one, pods that were left are
    /// adopted with the settings that they were started with.
    pub(super) fn runtime_config(
        &self,
        asked: Option<&Path>,
        left: &[WantedPod],
    ) -> Result<Option<PathBuf>> {
        let background_store = &self.runtime_config;
        let shown =
            || format!("keep the runtime's configuration as {}", background_store.display());
        match asked {
            Some(file) => {
                // Written atomically; a leftover copy is overwritten.
                let beside = background_store.with_extension("json.new");
                fs::copy(file, &beside).with_context(shown)?;
                fs::rename(&beside, background_store).with_context(shown)?;
            }
            None if left.is_empty() && background_store.exists() => {
                fs::remove_file(background_store).with_context(shown)?;
            }
            None => {}
        }
        Ok(background_store.exists().then(|| background_store.clone()))
    }

    pub(super) async fn load(&self) -> Result<Vec<WantedPod>> {
        let loaded = self.records.load(RECORD_DIR).await?;
        if let Some(why) = loaded.unreadable.first() {
            bail!("a record of the background agent: {why}");
        }
        let mut pods = Vec::new();
        for (name, bytes) in loaded.records {
            let record: BackgroundPodRecord =
                serde_json::from_slice(&bytes).with_context(|| format!("the record {name}"))?;
            if record.version != VERSION {
                bail!("the record {name} has version {}; expected {VERSION}", record.version);
            }
            let contents = record.contents.iter().map(|text| ContentDocument::read(text));
            let contents: Result<Vec<ContentDocument>, String> = contents.collect();
            let contents = contents.map_err(|why| anyhow!("the record {name}: {why}"))?;
            let BackgroundPodRecord { namespace, name, manifest, text, .. } = record;
            let text = text.into();
            pods.push(WantedPod { namespace, name, manifest, text, contents, instead_of: None });
        }
        Ok(pods)
    }

    pub(super) async fn save(&self, pod: &WantedPod) -> Result<()> {
        let record = BackgroundPodRecord {
            version: VERSION,
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
            manifest: pod.manifest.clone(),
            text: pod.text.to_string(),
            contents: pod.contents.iter().map(|document| document.text.to_string()).collect(),
        };
        let bytes = serde_json::to_vec(&record)?;
        Ok(self.records.save(RECORD_DIR, &name_of(pod), bytes).await?)
    }

    pub(super) async fn remove(&self, pod: &WantedPod) -> Result<()> {
        Ok(self.records.remove(RECORD_DIR, &name_of(pod)).await?)
    }
}

/// Names of pods and namespaces have no underscore.
fn name_of(pod: &WantedPod) -> String {
    format!("{}_{}.json", pod.namespace, pod.name)
}
