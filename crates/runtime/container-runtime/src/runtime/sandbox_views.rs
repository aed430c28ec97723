//! Sandboxes in list and status responses.

use std::collections::BTreeMap;

use cri_wire::v1;
use serde_json::json;

use super::Runtime;
use crate::failure::{CallContext as _, Result};
use crate::filters;
use crate::record_store::Sandbox;
use crate::records::{SandboxStage, StoredSandbox};

fn state_of(sandbox: &Sandbox, record: &StoredSandbox) -> v1::PodSandboxState {
    match record.stage() {
        SandboxStage::Ready if !sandbox.is_abandoned() => v1::PodSandboxState::SandboxReady,
        _ => v1::PodSandboxState::SandboxNotready,
    }
}

impl Runtime {
    pub fn list_pod_sandbox(&self, filter: Option<v1::PodSandboxFilter>) -> Vec<v1::PodSandbox> {
        let filter = filter.unwrap_or_default();
        // A prefix of an id is resolved.
        let id =
            self.record_store.sandbox(&filter.id).map_or(filter.id.clone(), |it| it.id.clone());
        self.record_store
            .sandboxes()
            .iter()
            .map(|sandbox| (sandbox, sandbox.record()))
            // A sandbox that is still being created is not listed.
            .filter(|(_, record)| record.stage() != SandboxStage::Creating)
            .map(|(sandbox, record)| {
                let state = state_of(sandbox, &record).into();
                let config = record.config.unwrap_or_default();
                v1::PodSandbox {
                    id: record.id,
                    metadata: config.metadata,
                    state,
                    created_at: record.created_at,
                    labels: config.labels,
                    annotations: config.annotations,
                    runtime_handler: record.runtime_handler,
                }
            })
            .filter(|sandbox| filters::sandbox_matches(sandbox, &filter, &id))
            .collect()
    }

    pub(crate) fn sandbox_status_of(&self, sandbox: &Sandbox) -> v1::PodSandboxStatus {
        let record = sandbox.record();
        let state = state_of(sandbox, &record).into();
        let config = record.config.unwrap_or_default();
        let open = record.network.filter(|network| !network.closed && network.complete);
        let mut addresses = open.map(|network| network.addresses).unwrap_or_default().into_iter();
        let network = v1::PodSandboxNetworkStatus {
            ip: addresses.next().unwrap_or_default(),
            additional_ips: addresses.map(|ip| v1::PodIp { ip }).collect(),
        };
        let linux = config.linux.unwrap_or_default();
        let options = linux.security_context.and_then(|security| security.namespace_options);
        v1::PodSandboxStatus {
            id: record.id,
            metadata: config.metadata,
            state,
            created_at: record.created_at,
            network: Some(network),
            linux: Some(v1::LinuxPodSandboxStatus { namespaces: Some(v1::Namespace { options }) }),
            labels: config.labels,
            annotations: config.annotations,
            runtime_handler: record.runtime_handler,
        }
    }

    pub fn pod_sandbox_status(
        &self,
        request: &v1::PodSandboxStatusRequest,
    ) -> Result<v1::PodSandboxStatusResponse> {
        let sandbox = self
            .record_store
            .sandbox(&request.pod_sandbox_id)
            .doing("an error occurred when try to find sandbox")?;
        let info = if request.verbose { sandbox_info(&sandbox) } else { BTreeMap::new() };
        Ok(v1::PodSandboxStatusResponse {
            status: Some(self.sandbox_status_of(&sandbox)),
            info,
            containers_statuses: Vec::new(),
            timestamp: 0,
        })
    }
}

fn sandbox_info(sandbox: &Sandbox) -> BTreeMap<String, String> {
    let record = sandbox.record();
    let pid = sandbox.supervisor().map_or(0, |supervisor| supervisor.pid);
    let network = record.network.clone().unwrap_or_default();
    let result: serde_json::Value = serde_json::from_slice(&network.cni_result).unwrap_or_default();
    let text = json!({
        "pid": pid,
        "processStatus": if pid == 0 { "deleted" } else { "running" },
        "netNamespaceClosed": network.closed,
        "networkNamespace": network.namespace,
        "runtimeHandler": record.runtime_handler,
        "cniResult": result,
    });
    BTreeMap::from([("info".to_owned(), text.to_string())])
}
