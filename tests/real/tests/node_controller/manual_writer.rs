//! A client that writes to nodes beside the controllers, and a check of its writes.
//!
//! Rule: it writes taints, since controllers replace those as a whole; one after the other on all
//! nodes, never the same twice, and never over a concurrent change.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use apiserver_client::ApiClient;
use ports::cluster_api::{ObjectPath, Patch, PatchKind};
use ports::{ClusterApi as _, ClusterApiError};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::stage::ClusterTest;

/// The key prefix of these taints.
pub(crate) const BY_HAND: &str = "example.com/";
const PAUSE: Duration = Duration::from_millis(200);

pub(crate) struct ManualWriter {
    ends: Arc<AtomicBool>,
    writing: JoinHandle<Result<Vec<(&'static str, String)>>>,
}

impl ManualWriter {
    pub(crate) fn start(stage: &ClusterTest<'_>, nodes: Vec<&'static str>) -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        let (client, end) = (stage.cluster.client.clone(), ends.clone());
        let writing = stage.runtime.spawn(async move {
            let mut written = Vec::new();
            for (number, node) in nodes.iter().copied().cycle().enumerate() {
                if end.load(Ordering::Relaxed) {
                    break;
                }
                let key = format!("{BY_HAND}{number}");
                set_taint(&client, node, &key).await?;
                written.push((node, key));
                tokio::time::sleep(PAUSE).await;
            }
            Ok(written)
        });
        Self { ends, writing }
    }

    /// Stops the writes; all that was written must exist.
    pub(crate) fn stop(self, stage: &ClusterTest<'_>) -> Result<()> {
        self.ends.store(true, Ordering::Relaxed);
        let written = stage.runtime.block_on(self.writing)??;
        for (node, key) in &written {
            let taints = stage.node(node)?.spec.taints;
            let found: BTreeSet<String> = taints.into_iter().map(|taint| taint.key).collect();
            ensure!(found.contains(key), "{node}: {key} was lost, there is only {found:?}");
        }
        println!("{} taints were set by hand, and all are there", written.len());
        Ok(())
    }
}

/// Adds a taint to the existing ones.
async fn set_taint(client: &ApiClient, node: &str, key: &str) -> Result<()> {
    let path = ObjectPath::node(node);
    loop {
        let stored = client.read(&path).await?;
        let object: Value = serde_json::from_slice(&stored.json)?;
        let mut taints = object["spec"]["taints"].as_array().cloned().unwrap_or_default();
        taints.push(json!({"key": key, "effect": "PreferNoSchedule"}));
        let body = json!({
            "metadata": {"resourceVersion": stored.resource_version},
            "spec": {"taints": taints},
        });
        let body = body.to_string().into_bytes();
        let patch = Patch { kind: PatchKind::Merge, subresource: None, body };
        match client.patch(&path, patch).await {
            Err(ClusterApiError::Conflict { .. }) => {}
            other => return other.map(drop).map_err(Into::into),
        }
    }
}
