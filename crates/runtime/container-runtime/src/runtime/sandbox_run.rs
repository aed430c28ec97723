//! RunPodSandbox: from a request to a pod with namespaces and a network.
//!
//! Order: name, record, the planned network in the record, supervisor with namespaces, network,
//! ready. If a step fails, all earlier ones are taken back; if the process dies, the next one does
//! it.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use cri_wire::v1;
use cri_wire::v1::ContainerEventType as Kind;

use super::Runtime;
use crate::clock::nanoseconds;
use crate::crash_points::reached;
use crate::failure::{CallContext as _, CriError, Result};
use crate::identity;
use crate::network::PodNetwork;
use crate::record_store::{Sandbox, sandbox_name};
use crate::records::{SandboxStage, StoredSandbox};
use crate::specification::{cgroup_of, pod_spec};

impl Runtime {
    pub async fn run_pod_sandbox(&self, request: v1::RunPodSandboxRequest) -> Result<String> {
        let runtime = self.clone();
        self.run_to_completion(async move { Box::pin(runtime.run_sandbox(request)).await }).await
    }

    async fn run_sandbox(&self, request: v1::RunPodSandboxRequest) -> Result<String> {
        let config = request.config.unwrap_or_default();
        if config.metadata.is_none() {
            return Err(CriError::plain("sandbox config must include metadata"));
        }
        let id = identity::fresh()?;
        self.check_handler(&request.runtime_handler, &config)
            .doing(format!("unable to get OCI runtime for sandbox {id:?}"))?;
        let record = StoredSandbox {
            id: id.clone(),
            cgroup: cgroup_of(self.settings.cgroup_driver, &config, &id)?.path,
            config: Some(config),
            runtime_handler: request.runtime_handler,
            created_at: nanoseconds(),
            ..Default::default()
        };
        let name = sandbox_name(&record);
        let shown = name.trim_start_matches("sandbox/").to_owned();
        self.record_store
            .reserve(&name, &id)
            .doing(format!("failed to reserve sandbox name {shown:?}"))?;
        let sandbox = match self.record_store.add_sandbox(record).await {
            Ok(sandbox) => sandbox,
            Err(failure) => {
                self.record_store.release(&id);
                return Err(failure);
            }
        };
        let _guard = sandbox.exclusive_lock.lock().await;
        reached("sandbox-recorded");
        match self.create_sandbox(&sandbox).await {
            Ok(()) => {
                self.send_event(&id, &id, Kind::ContainerCreatedEvent).await;
                self.send_event(&id, &id, Kind::ContainerStartedEvent).await;
                Ok(id)
            }
            Err(failure) => {
                if let Err(after) = self.discard(&sandbox).await {
                    tracing::error!(sandbox = id, %after, "cleaning up a failed sandbox");
                }
                Err(failure)
            }
        }
    }

    async fn create_sandbox(&self, sandbox: &Arc<Sandbox>) -> Result<()> {
        let id = &sandbox.id;
        let record = sandbox.record();
        let config = record.config.clone().unwrap_or_default();
        let pod = PodNetwork::of(&record);
        let pin = self.network.namespace_path(id);
        let spec = pod_spec(self.settings.cgroup_driver, id, &config, &pin)?;
        let with_network = !spec.network_pin.is_empty();
        if with_network {
            let plan = self
                .network
                .plan(&pod)
                .await
                .doing(format!("failed to setup network for sandbox {id:?}"))?;
            self.record_store.change_sandbox(sandbox, |record| record.network = Some(plan)).await?;
            reached("network-planned");
        }
        self.create_pod_files(id, &config).await?;
        let supervisor = self.launch(sandbox).await?;
        reached("supervisor-launched");
        supervisor
            .client
            .create_pod(spec)
            .await
            .doing(format!("failed to start sandbox {id:?}"))?;
        reached("pod-made");
        let mut network = sandbox.record().network;
        if with_network && let Some(plan) = network.clone() {
            let namespace = File::open(&pin)
                .map(OwnedFd::from)
                .doing(format!("opening the network namespace {}", pin.display()))?;
            let made = self
                .network
                .set_up(&pod, plan, namespace)
                .await
                .doing(format!("failed to setup network for sandbox {id:?}"))?;
            reached("network-made");
            network = Some(made);
        }
        self.record_store
            .change_sandbox(sandbox, |record| {
                record.network = network;
                record.created_at = nanoseconds();
                record.set_stage(SandboxStage::Ready);
            })
            .await
            .map(drop)
    }
}
