//! Containers in list and status responses.
//!
//! upstream: containerd internal/cri/server/container_list.go, container_status.go

use std::collections::BTreeMap;

use cri_wire::v1;
use image_store::StoredImage;
use serde_json::json;

use super::Runtime;
use crate::failure::{CallContext as _, Result};
use crate::filters;
use crate::images::short_name;
use crate::record_store::Container;
use crate::records::{ContainerStage, StoredContainer};
use crate::signals;

pub(super) fn state_of(record: &StoredContainer) -> v1::ContainerState {
    match record.stage() {
        ContainerStage::Creating | ContainerStage::Created => v1::ContainerState::ContainerCreated,
        // Start requested, and not running yet.
        ContainerStage::Started if record.started_at == 0 => v1::ContainerState::ContainerCreated,
        ContainerStage::Started => v1::ContainerState::ContainerRunning,
        ContainerStage::Exited => v1::ContainerState::ContainerExited,
        // Being removed: shown with its earlier state.
        ContainerStage::Removing if record.finished_at == 0 => v1::ContainerState::ContainerCreated,
        ContainerStage::Removing => v1::ContainerState::ContainerExited,
        ContainerStage::Unknown => v1::ContainerState::ContainerUnknown,
    }
}

impl Runtime {
    pub fn list_containers(&self, filter: Option<v1::ContainerFilter>) -> Vec<v1::Container> {
        let filter = filter.unwrap_or_default();
        // Prefixes of ids are resolved.
        let id =
            self.record_store.container(&filter.id).map_or(filter.id.clone(), |it| it.id.clone());
        let sandbox = self
            .record_store
            .sandbox(&filter.pod_sandbox_id)
            .map_or(filter.pod_sandbox_id.clone(), |it| it.id.clone());
        self.record_store
            .containers()
            .iter()
            .map(|container| container.record())
            .filter(|record| record.stage() != ContainerStage::Creating)
            .map(|record| {
                let state = state_of(&record).into();
                let config = record.config.unwrap_or_default();
                v1::Container {
                    id: record.id,
                    pod_sandbox_id: record.sandbox_id,
                    metadata: config.metadata,
                    image: config.image,
                    image_ref: record.image_id.clone(),
                    state,
                    created_at: record.created_at,
                    labels: config.labels,
                    annotations: config.annotations,
                    image_id: record.image_id,
                }
            })
            .filter(|container| filters::container_matches(container, &filter, (&id, &sandbox)))
            .collect()
    }

    pub async fn container_status(
        &self,
        request: &v1::ContainerStatusRequest,
    ) -> Result<v1::ContainerStatusResponse> {
        let id = &request.container_id;
        let container = self
            .record_store
            .container(id)
            .doing(format!("an error occurred when try to find container {id:?}"))?;
        let image_id = container.record().image_id;
        // The image may have been removed since.
        let image = self.images.resolve(&image_id).await.ok();
        let status = self.container_status_of(&container, image.as_ref());
        let info = match request.verbose {
            true => self.container_info(&container).await,
            false => BTreeMap::new(),
        };
        Ok(v1::ContainerStatusResponse { status: Some(status), info })
    }

    pub(crate) fn container_status_of(
        &self,
        container: &Container,
        image: Option<&StoredImage>,
    ) -> v1::ContainerStatus {
        let record = container.record();
        let state = state_of(&record);
        let over = matches!(
            state,
            v1::ContainerState::ContainerExited | v1::ContainerState::ContainerUnknown
        );
        let reason = match (over, record.reason.as_str(), record.exit_code) {
            (true, "", 0) => "Completed".to_owned(),
            (true, "", _) => "Error".to_owned(),
            (_, reason, _) => reason.to_owned(),
        };
        let config = record.config.unwrap_or_default();
        let shown =
            image.and_then(short_name).map(|image| v1::ImageSpec { image, ..Default::default() });
        let reference = image.and_then(|image| image.digests.first().cloned());
        v1::ContainerStatus {
            id: record.id,
            metadata: config.metadata,
            state: state.into(),
            created_at: record.created_at,
            started_at: record.started_at,
            finished_at: record.finished_at,
            exit_code: record.exit_code,
            image: shown.or(config.image),
            image_ref: reference.unwrap_or_else(|| record.image_id.clone()),
            reason,
            message: record.message,
            labels: config.labels,
            annotations: config.annotations,
            mounts: config.mounts,
            log_path: record.log_path,
            resources: record
                .resources
                .map(|linux| v1::ContainerResources { linux: Some(linux), windows: None }),
            image_id: record.image_id,
            user: Some(v1::ContainerUser { linux: record.user }),
            stop_signal: signals::to_cri(record.stop_signal).into(),
        }
    }

    async fn container_info(&self, container: &Container) -> BTreeMap<String, String> {
        let pid = self.first_process(container).await.unwrap_or(0);
        let record = container.record();
        let text = json!({
            "sandboxID": record.sandbox_id,
            "pid": pid,
            "removing": record.stage() == ContainerStage::Removing,
            "snapshotKey": record.id,
            "snapshotter": "overlayfs",
            "runtimeType": "keelson",
            "cgroup": record.cgroup,
        });
        BTreeMap::from([("info".to_owned(), text.to_string())])
    }

    /// None if it does not run, or the supervisor cannot be asked.
    async fn first_process(&self, container: &Container) -> Option<u32> {
        if state_of(&container.record()) != v1::ContainerState::ContainerRunning {
            return None;
        }
        let supervisor =
            self.record_store.sandbox(&container.sandbox_id).ok()?.require_supervisor().ok()?;
        let pod = supervisor.client.list().await.ok()?;
        pod.containers.iter().find(|one| one.id == container.id).map(|one| one.pid)
    }
}
