//! The client as the port that the rest of the project uses: [`ClusterApi`].
//!
//! Rule: one call, one request. A lease is written by a merge patch with the resourceVersion that
//! it was made from, so a concurrent change is never overwritten. Writes and events go at once,
//! over the connection that is read in batches: many responses arrive together. Lists, reads and
//! leader leases, which have a caller waiting, go over another; so do subresources that are created.

use std::time::Duration;

use ports::cluster_api::{
    ApiFuture, ClusterEvent, Deletion, ObjectPath, ObjectSelector, Patch, PatchKind, Repetition,
    Resource, StoredEvent, StoredObject,
};
use ports::cluster_objects::{Lease, Node, Pod, Renewal, RuntimeClass, Service};
use ports::node_object::NodeObject;
use ports::{ApiPod, ClusterApi, ClusterApiError, ObjectFeed, ObjectWatch};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::client::ApiClient;
use crate::event_body::{event_body, repetition};
use crate::object_watch::SingleObjectWatch;
use crate::request::ApiRequest;
use crate::watch::Watch;

#[derive(Deserialize, Default)]
#[serde(default)]
struct Stored {
    metadata: StoredMeta,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct StoredMeta {
    uid: String,
    resource_version: String,
}

impl ApiClient {
    pub(crate) async fn request_stored(
        &self,
        request: ApiRequest,
    ) -> Result<StoredObject, ClusterApiError> {
        let json = self.request_object(&request).await?;
        let stored: Stored = decode(&json, &request.description)?;
        Ok(StoredObject {
            uid: stored.metadata.uid,
            resource_version: stored.metadata.resource_version,
            json: json.into(),
        })
    }

    async fn request_lease(&self, request: ApiRequest) -> Result<Lease, ClusterApiError> {
        decode(&self.request_object(&request).await?, &request.description)
    }
}

fn decode<T: DeserializeOwned>(json: &[u8], request: &str) -> Result<T, ClusterApiError> {
    serde_json::from_slice(json).map_err(|error| ClusterApiError::Unreadable {
        request: request.to_owned(),
        cause: error.to_string(),
    })
}

fn lease_path(lease: &Lease) -> ObjectPath {
    ObjectPath::lease(&lease.metadata.namespace, &lease.metadata.name)
}

impl ClusterApi for ApiClient {
    fn rate_limit_delay(&self) -> Duration {
        self.rate_limit_wait()
    }

    fn watch_nodes(&self, selection: ObjectSelector) -> Box<dyn ObjectFeed<Node>> {
        Box::new(Watch::start_batched(self, selection))
    }

    fn watch_own_node(&self, name: &str) -> Box<dyn ObjectFeed<NodeObject>> {
        Box::new(Watch::start(self, ObjectSelector::by_fields(&format!("metadata.name={name}"))))
    }

    fn watch_pods(&self, selection: ObjectSelector) -> Box<dyn ObjectFeed<Pod>> {
        Box::new(Watch::start(self, selection))
    }

    fn watch_node_pods(&self, node: &str) -> Box<dyn ObjectFeed<ApiPod>> {
        let selection = ObjectSelector::by_fields(&format!("spec.nodeName={node}"));
        Box::new(Watch::start(self, selection))
    }

    fn watch_services(&self) -> Box<dyn ObjectFeed<Service>> {
        Box::new(Watch::start(self, ObjectSelector::default()))
    }

    fn watch_runtime_classes(&self) -> Box<dyn ObjectFeed<RuntimeClass>> {
        Box::new(Watch::start(self, ObjectSelector::default()))
    }

    fn watch_renewals(&self, selection: ObjectSelector) -> Box<dyn ObjectFeed<Renewal>> {
        Box::new(Watch::start_batched(self, selection))
    }

    fn watch_object(&self, object: &ObjectPath) -> Box<dyn ObjectWatch> {
        Box::new(SingleObjectWatch::new(self, object))
    }

    fn read<'a>(&'a self, object: &'a ObjectPath) -> ApiFuture<'a, StoredObject> {
        Box::pin(async move { self.request_stored(ApiRequest::read(object)?).await })
    }

    fn create<'a>(&'a self, object: &'a ObjectPath, body: Vec<u8>) -> ApiFuture<'a, StoredObject> {
        Box::pin(async move {
            let request = ApiRequest::create(object, body, &self.options().field_manager)?;
            self.batched().request_stored(request).await
        })
    }

    fn create_subresource<'a>(
        &'a self,
        object: &'a ObjectPath,
        subresource: &'a str,
        body: Vec<u8>,
    ) -> ApiFuture<'a, StoredObject> {
        Box::pin(async move {
            let manager = &self.options().field_manager;
            let request = ApiRequest::create_subresource(object, subresource, body, manager)?;
            self.request_stored(request).await
        })
    }

    fn patch<'a>(&'a self, object: &'a ObjectPath, patch: Patch) -> ApiFuture<'a, StoredObject> {
        Box::pin(async move {
            let request = ApiRequest::patch(object, patch, &self.options().field_manager)?;
            self.batched().request_stored(request).await
        })
    }

    fn delete<'a>(&'a self, object: &'a ObjectPath, deletion: Deletion) -> ApiFuture<'a, ()> {
        Box::pin(async move {
            self.batched().request_object(&ApiRequest::delete(object, &deletion)?).await?;
            Ok(())
        })
    }

    fn read_lease<'a>(&'a self, namespace: &'a str, name: &'a str) -> ApiFuture<'a, Lease> {
        Box::pin(async move {
            self.request_lease(ApiRequest::read(&ObjectPath::lease(namespace, name))?).await
        })
    }

    fn create_lease<'a>(&'a self, lease: &'a Lease) -> ApiFuture<'a, Lease> {
        Box::pin(async move {
            let body = serde_json::json!({
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {
                    "namespace": lease.metadata.namespace,
                    "name": lease.metadata.name,
                    "ownerReferences": lease.metadata.owner_references,
                },
                "spec": lease.spec,
            });
            let body = body.to_string().into_bytes();
            let manager = &self.options().field_manager;
            self.request_lease(ApiRequest::create(&lease_path(lease), body, manager)?).await
        })
    }

    fn update_lease<'a>(&'a self, lease: &'a Lease) -> ApiFuture<'a, Lease> {
        Box::pin(async move {
            let body = serde_json::json!({
                "metadata": {
                    "uid": lease.metadata.uid,
                    "resourceVersion": lease.metadata.resource_version,
                    "ownerReferences": lease.metadata.owner_references,
                },
                "spec": lease.spec,
            });
            let body = body.to_string().into_bytes();
            let patch = Patch { kind: PatchKind::Merge, subresource: None, body };
            let manager = &self.options().field_manager;
            self.request_lease(ApiRequest::patch(&lease_path(lease), patch, manager)?).await
        })
    }

    fn create_event<'a>(&'a self, event: &'a ClusterEvent) -> ApiFuture<'a, StoredEvent> {
        Box::pin(async move {
            let (namespace, name, body) = event_body(event);
            let path = ObjectPath::namespaced(Resource::EVENTS, &namespace, &name);
            let request = ApiRequest::create(&path, body, &self.options().field_manager)?;
            self.batched().request_object(&request).await?;
            Ok(StoredEvent { namespace, name })
        })
    }

    fn repeat_event<'a>(
        &'a self,
        stored: &'a StoredEvent,
        again: Repetition<'a>,
    ) -> ApiFuture<'a, ()> {
        Box::pin(async move {
            let path = ObjectPath::namespaced(Resource::EVENTS, &stored.namespace, &stored.name);
            let body = repetition(again);
            let patch = Patch { kind: PatchKind::StrategicMerge, subresource: None, body };
            let request = ApiRequest::patch(&path, patch, &self.options().field_manager)?;
            self.batched().request_object(&request).await?;
            Ok(())
        })
    }
}
