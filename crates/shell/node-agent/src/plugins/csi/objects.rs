//! Reads and writes of the Node and the CSINode for CSI drivers.
//!
//! Rule: read, compute a patch, send it; where the object has changed meanwhile, all again. Each
//! request has a deadline.

use super::CsiRegistration;
use crate::back_off::ExponentialBackOff;
use plugin_registry::csi_node;
use ports::cluster_api::{ApiFuture, Deletion, ObjectPath, Patch, PatchKind, StoredObject};
use ports::plugins::CsiNodeInfo;
use ports::{ClusterApi, ClusterApiError};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tracing::{error, info};

const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Between attempts; upstream: nodeinfomanager.go (updateBackoff)
const PAUSES: [Duration; 4] = [
    Duration::from_millis(10),
    Duration::from_millis(50),
    Duration::from_millis(250),
    Duration::ZERO,
];
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// The objects of this node.
pub(super) struct CsiObjects {
    api: Arc<dyn ClusterApi>,
    node_name: String,
}

impl CsiObjects {
    pub(super) fn new(api: Arc<dyn ClusterApi>, node_name: &str) -> Self {
        Self { api, node_name: node_name.to_owned() }
    }

    /// Both objects get the driver.
    pub(super) async fn install(&self, driver: &str, info: &CsiNodeInfo) -> Result<(), String> {
        let node = self.change_node(|node| csi_node::node_patch(node, driver, info)).await;
        node.map_err(|why| format!("error updating Node object with CSI driver node info: {why}"))?;
        self.update(driver, info).await
    }

    /// The CSINode gets the driver.
    pub(super) async fn update(&self, driver: &str, info: &CsiNodeInfo) -> Result<(), String> {
        let changed =
            self.change_csi_node(|csi_node| csi_node::csi_node_patch(csi_node, driver, info));
        changed.await.map_err(|why| {
            format!("error updating CSINode object with CSI driver node info: {why}")
        })
    }

    /// Both objects lose the driver.
    pub(super) async fn uninstall(&self, driver: &str) -> Result<(), String> {
        let changed = self
            .change_csi_node(|csi_node| csi_node::csi_node_patch_without(csi_node, driver))
            .await;
        changed
            .map_err(|why| format!("error uninstalling CSI driver from CSINode object: {why}"))?;
        let changed = self.change_node(|node| csi_node::node_patch_without(node, driver)).await;
        changed
            .map_err(|why| format!("error removing CSI driver node info from Node object: {why}"))
    }

    /// `spec.nodeAllocatableUpdatePeriodSeconds` of the driver's CSIDriver.
    pub(super) async fn update_period(&self, driver: &str) -> Result<Option<Duration>, String> {
        let path = ObjectPath::csi_driver(driver);
        let object = match within(self.api.read(&path)).await {
            Ok(stored) => decode(&stored)?,
            Err(ClusterApiError::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(error.to_string()),
        };
        let seconds = object["spec"]["nodeAllocatableUpdatePeriodSeconds"].as_u64();
        Ok(seconds.map(Duration::from_secs))
    }

    async fn change_node(
        &self,
        patch: impl Fn(&Value) -> Result<Option<Value>, String>,
    ) -> Result<(), String> {
        let path = ObjectPath::node(&self.node_name);
        let mut last = String::new();
        for pause in PAUSES {
            let changed = async {
                let node = self.read(&path).await?;
                self.patch(&path, patch(&node)?).await
            };
            match changed.await {
                Ok(()) => return Ok(()),
                Err(why) => last = why,
            }
            tokio::time::sleep(pause).await;
        }
        Err(last)
    }

    async fn change_csi_node(&self, patch: impl Fn(&Value) -> Option<Value>) -> Result<(), String> {
        let path = ObjectPath::csi_node(&self.node_name);
        let mut last = String::new();
        for pause in PAUSES {
            let changed = async {
                let csi_node = self.own_csi_node().await?;
                self.patch(&path, patch(&csi_node)).await
            };
            match changed.await {
                Ok(()) => return Ok(()),
                Err(why) => last = why,
            }
            tokio::time::sleep(pause).await;
        }
        Err(last)
    }

    /// The CSINode of this node; created where there is none, or that of an earlier node.
    async fn own_csi_node(&self) -> Result<Value, String> {
        let node = self.read(&ObjectPath::node(&self.node_name)).await?;
        let node_uid = node["metadata"]["uid"].as_str().unwrap_or_default();
        let path = ObjectPath::csi_node(&self.node_name);
        match within(self.api.read(&path)).await {
            Ok(stored) => {
                let csi_node = decode(&stored)?;
                if csi_node::is_owned(&csi_node, &self.node_name, node_uid) {
                    return Ok(csi_node);
                }
                info!(
                    node = self.node_name,
                    "Removing the CSINode of an earlier node of this name"
                );
                let deletion = Deletion { uid: Some(stored.uid.clone()), ..Deletion::default() };
                within(self.api.delete(&path, deletion)).await.map_err(|it| it.to_string())?;
            }
            Err(ClusterApiError::NotFound { .. }) => {}
            Err(error) => return Err(error.to_string()),
        }
        let body = csi_node::new_csi_node(&self.node_name, node_uid).to_string().into_bytes();
        let created = within(self.api.create(&path, body)).await;
        decode(&created.map_err(|error| error.to_string())?)
    }

    async fn read(&self, path: &ObjectPath) -> Result<Value, String> {
        decode(&within(self.api.read(path)).await.map_err(|error| error.to_string())?)
    }

    async fn patch(&self, path: &ObjectPath, body: Option<Value>) -> Result<(), String> {
        let Some(body) = body else { return Ok(()) };
        let patch = Patch {
            kind: PatchKind::Merge,
            subresource: None,
            body: body.to_string().into_bytes(),
        };
        within(self.api.patch(path, patch)).await.map(drop).map_err(|error| error.to_string())
    }
}

/// Creates the CSINode, or completes one that is there; tries until that is done.
pub(in crate::plugins) async fn initialize_csi_node(csi: Arc<CsiRegistration>) {
    let Some(objects) = &csi.objects else { return };
    let mut back_off = ExponentialBackOff::new(FIRST_PAUSE, LONGEST_PAUSE);
    loop {
        let changed = {
            let _writing = csi.writing.lock().await;
            objects.change_csi_node(csi_node::migration_patch).await
        };
        match changed {
            Ok(()) => {
                csi.set_initialization_error(None);
                info!(v = 2, "CSINode is initialized");
                return;
            }
            Err(why) => {
                error!(err = why, "Failed to initialize CSINode");
                let error = format!("failed to initialize CSINode: {why}");
                csi.set_initialization_error(Some(error));
            }
        }
        tokio::time::sleep(back_off.pause()).await;
    }
}

async fn within<T>(request: ApiFuture<'_, T>) -> Result<T, ClusterApiError> {
    tokio::time::timeout(REQUEST_TIMEOUT, request).await.unwrap_or_else(|_| {
        let cause = format!("no answer within {REQUEST_TIMEOUT:?}");
        Err(ClusterApiError::NoResponse { request: "request for a CSI driver".to_owned(), cause })
    })
}

fn decode(stored: &StoredObject) -> Result<Value, String> {
    serde_json::from_slice(&stored.json).map_err(|error| error.to_string())
}
