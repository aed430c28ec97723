//! What a background agent must find again after it was killed: the manifests of its pods.
//!
//! Rule: on disk before a pod is started, gone from disk before one is ended on request; so that an
//! agent that is started again runs what was wanted, no more and no less.

use super::household::WantedPod;
use anyhow::{Context, Result, bail};
use host_files::HostRecords;
use ports::pod_host::Records;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::Arc;

const FOLDER: &str = "background";
const VERSION: u32 = 1;

#[derive(Clone)]
pub(super) struct KeptPods {
    records: Arc<dyn Records>,
}

#[derive(Serialize, Deserialize)]
struct Record {
    version: u32,
    namespace: String,
    name: String,
    manifest: String,
    text: String,
}

impl KeptPods {
    pub(super) fn below(agent_root: &Path) -> Self {
        Self { records: Arc::new(HostRecords::new(agent_root)) }
    }

    pub(super) async fn load(&self) -> Result<Vec<WantedPod>> {
        let loaded = self.records.load(FOLDER).await?;
        if let Some(why) = loaded.unreadable.first() {
            bail!("a record of the background agent: {why}");
        }
        let mut pods = Vec::new();
        for (name, bytes) in loaded.records {
            let record: Record =
                serde_json::from_slice(&bytes).with_context(|| format!("the record {name}"))?;
            if record.version != VERSION {
                bail!("the record {name} has version {}; expected {VERSION}", record.version);
            }
            let Record { namespace, name, manifest, text, .. } = record;
            pods.push(WantedPod { namespace, name, manifest, text, instead_of: None });
        }
        Ok(pods)
    }

    pub(super) async fn save(&self, pod: &WantedPod) -> Result<()> {
        let record = Record {
            version: VERSION,
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
            manifest: pod.manifest.clone(),
            text: pod.text.clone(),
        };
        let bytes = serde_json::to_vec(&record)?;
        Ok(self.records.save(FOLDER, &name_of(pod), bytes).await?)
    }

    pub(super) async fn remove(&self, pod: &WantedPod) -> Result<()> {
        Ok(self.records.remove(FOLDER, &name_of(pod)).await?)
    }
}

/// Names of pods and namespaces have no underscore.
fn name_of(pod: &WantedPod) -> String {
    format!("{}_{}.json", pod.namespace, pod.name)
}
