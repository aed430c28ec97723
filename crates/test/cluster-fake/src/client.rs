//! One client's view of the fake cluster, with its own faults and rate limit.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ports::cluster_api::{
    ApiFuture, ClusterEvent, Deletion, ObjectPath, ObjectSelector, Patch, PatchKind, Repetition,
    StoredEvent, StoredObject,
};
use ports::cluster_objects::{Lease, Node, Pod, Renewal, RuntimeClass, Service};
use ports::node_object::NodeObject;
use ports::{ApiPod, ClusterApi, ClusterApiError, ObjectFeed};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::cluster::{ApiVerb, FakeCluster, LoggedRequest, named};
use crate::faults::ClientFaultSwitch;
use crate::feed::FakeFeed;
use crate::patching::{merge, strategic_merge};
use crate::subresources::create_subresource;

/// A client of the fake cluster. Clones share its state.
#[derive(Clone, Debug)]
pub struct FakeClient {
    cluster: FakeCluster,
    name: String,
    /// What goes wrong for this client.
    pub faults: ClientFaultSwitch,
    writes: Arc<AtomicU32>,
    rate_limit: Option<Arc<Mutex<ClientRateLimit>>>,
}

/// A client-side rate limit: a burst, then one request per interval, in order of arrival.
#[derive(Debug)]
struct ClientRateLimit {
    interval: Duration,
    burst: u32,
    /// The time up to which the rate is used up, without the burst.
    used_until: Instant,
}

impl ClientRateLimit {
    /// Reserves the next request's slot and returns how long that request waits for it.
    fn reserve(&mut self) -> Duration {
        let now = Instant::now();
        self.used_until = self.used_until.max(now) + self.interval;
        let credit = self.interval * self.burst;
        self.used_until.saturating_duration_since(now).saturating_sub(credit)
    }
}

type ObjectResult = Result<Value, ClusterApiError>;

impl FakeClient {
    pub(crate) fn new(cluster: FakeCluster, name: &str, faults: ClientFaultSwitch) -> Self {
        Self { cluster, name: name.to_owned(), faults, writes: Arc::default(), rate_limit: None }
    }

    /// The same client with a rate limit of its own, which its clones share. The original keeps its
    /// limit.
    #[must_use]
    pub fn with_rate_limit(&self, per_second: u32, burst: u32) -> Self {
        let interval = Duration::from_secs(1) / per_second.max(1);
        let rate_limit = ClientRateLimit { interval, burst, used_until: Instant::now() };
        Self { rate_limit: Some(Arc::new(Mutex::new(rate_limit))), ..self.clone() }
    }

    /// Waits for the rate limit and the latency; fails if a fault keeps the request from the
    /// cluster.
    async fn deliver(&self, path: &ObjectPath) -> Result<(), ClusterApiError> {
        if let Some(rate_limit) = &self.rate_limit {
            let wait = rate_limit.lock().unwrap_or_else(PoisonError::into_inner).reserve();
            sleep(wait).await;
        }
        let faults = self.faults.now();
        if !faults.turn_in.is_zero() {
            let rate_limit_delay = faults.turn_in;
            return Err(ClusterApiError::RateLimited { request: named(path), rate_limit_delay });
        }
        if faults.away {
            let cause = "injected outage".to_owned();
            return Err(ClusterApiError::Unreachable { request: named(path), cause });
        }
        if faults.unauthenticated {
            let message = "injected rejection of the credentials".to_owned();
            return Err(ClusterApiError::Unauthenticated { request: named(path), message });
        }
        if !faults.latency.is_zero() {
            sleep(faults.latency).await;
        }
        if faults.hangs {
            std::future::pending::<()>().await;
        }
        Ok(())
    }

    fn log_request(&self, verb: ApiVerb, path: &ObjectPath, succeeded: bool, body: Option<Value>) {
        self.cluster.log_request(LoggedRequest {
            at: Instant::now(),
            client: self.name.clone(),
            verb,
            path: path.clone(),
            succeeded,
            body,
        });
    }

    async fn fetch(&self, path: &ObjectPath) -> ObjectResult {
        self.deliver(path).await?;
        let found = self.cluster.read(path);
        self.log_request(ApiVerb::Read, path, found.is_ok(), None);
        found
    }

    /// Performs a write with the faults that are injected for it.
    async fn write(
        &self,
        verb: ApiVerb,
        path: &ObjectPath,
        body: Option<Value>,
        operation: impl FnOnce(&FakeCluster) -> ObjectResult + Send + 'static,
    ) -> ObjectResult {
        self.deliver(path).await?;
        let faults = self.faults.now();
        let number = self.writes.fetch_add(1, Ordering::Relaxed) + 1;
        let every = |count: u32| count > 0 && number.is_multiple_of(count);
        if every(faults.conflict_every) {
            self.log_request(verb, path, false, body);
            let message = "injected conflict".to_owned();
            return Err(ClusterApiError::Conflict { request: named(path), message });
        }
        if faults.refused.contains(&path.name) {
            self.log_request(verb, path, false, body);
            return Err(refused(path, "injected rejection"));
        }
        let client = self.clone();
        let target = path.clone();
        let execute = move || {
            let outcome = operation(&client.cluster);
            client.log_request(verb, &target, outcome.is_ok(), body);
            outcome
        };
        let outcome = if faults.late.is_zero() {
            execute()
        } else {
            // The write arrives even if the caller has stopped waiting.
            let late = tokio::spawn(async move {
                sleep(faults.late).await;
                execute()
            });
            late.await.unwrap_or_else(|_| {
                let cause = "the delayed write ended".to_owned();
                Err(ClusterApiError::NoResponse { request: "write".to_owned(), cause })
            })
        };
        if every(faults.lose_answer_every) {
            let cause = "injected loss of the response".to_owned();
            return Err(ClusterApiError::NoResponse { request: named(path), cause });
        }
        if outcome.is_ok() && every(faults.unreadable_every) {
            let cause = "injected unreadable response".to_owned();
            return Err(ClusterApiError::Unreadable { request: named(path), cause });
        }
        outcome
    }
}

fn stored(object: &Value) -> StoredObject {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
    StoredObject {
        uid: text("uid"),
        resource_version: text("resourceVersion"),
        json: object.to_string().into_bytes(),
    }
}

pub(crate) fn refused(path: &ObjectPath, message: &str) -> ClusterApiError {
    ClusterApiError::Refused {
        request: named(path),
        status: 422,
        reason: "Invalid".to_owned(),
        message: message.to_owned(),
    }
}

fn parse(path: &ObjectPath, body: &[u8]) -> Result<Value, ClusterApiError> {
    serde_json::from_slice(body).map_err(|error| refused(path, &error.to_string()))
}

fn lease_of(object: Value) -> Result<Lease, ClusterApiError> {
    serde_json::from_value(object).map_err(|error| ClusterApiError::Unreadable {
        request: "lease".to_owned(),
        cause: error.to_string(),
    })
}

/// Applies a patch as the API server does: a patch of the status subresource leaves the spec as it
/// was, any other patch leaves the status.
fn apply(
    path: &ObjectPath,
    patch: &Patch,
    body: &Value,
    object: &mut Value,
) -> Result<(), ClusterApiError> {
    let before = object.clone();
    match patch.kind {
        PatchKind::Merge => merge(object, body),
        PatchKind::StrategicMerge => strategic_merge(object, body),
        PatchKind::Json | PatchKind::Apply { .. } => {
            return Err(refused(path, "the fake does not know this kind of patch"));
        }
    }
    let has_status = ["nodes", "pods"].contains(&path.resource.plural);
    match patch.subresource.as_deref() {
        Some("status") => {
            object["spec"] = before["spec"].clone();
        }
        Some(other) => return Err(refused(path, &format!("no subresource {other}"))),
        None if has_status => object["status"] = before["status"].clone(),
        None => {}
    }
    // As upstream: podCIDR can be set once and not changed.
    let (old, new) = (&before["spec"]["podCIDR"], &object["spec"]["podCIDR"]);
    if old.as_str().is_some_and(|old| !old.is_empty()) && old != new {
        return Err(refused(path, "podCIDR may not be changed"));
    }
    Ok(())
}

impl ClusterApi for FakeClient {
    fn rate_limit_delay(&self) -> Duration {
        self.faults.now().turn_in
    }

    fn watch_nodes(&self, selection: ObjectSelector) -> Box<dyn ObjectFeed<Node>> {
        Box::new(FakeFeed::new(self.cluster.clone(), self.faults.clone(), selection))
    }

    fn watch_own_node(&self, name: &str) -> Box<dyn ObjectFeed<NodeObject>> {
        let selection = ObjectSelector::by_fields(&format!("metadata.name={name}"));
        Box::new(FakeFeed::new(self.cluster.clone(), self.faults.clone(), selection))
    }

    fn watch_pods(&self, selection: ObjectSelector) -> Box<dyn ObjectFeed<Pod>> {
        Box::new(FakeFeed::new(self.cluster.clone(), self.faults.clone(), selection))
    }

    fn watch_node_pods(&self, node: &str) -> Box<dyn ObjectFeed<ApiPod>> {
        let selection = ObjectSelector::by_fields(&format!("spec.nodeName={node}"));
        Box::new(FakeFeed::new(self.cluster.clone(), self.faults.clone(), selection))
    }

    fn watch_services(&self) -> Box<dyn ObjectFeed<Service>> {
        let selection = ObjectSelector::default();
        Box::new(FakeFeed::new(self.cluster.clone(), self.faults.clone(), selection))
    }

    fn watch_runtime_classes(&self) -> Box<dyn ObjectFeed<RuntimeClass>> {
        let selection = ObjectSelector::default();
        Box::new(FakeFeed::new(self.cluster.clone(), self.faults.clone(), selection))
    }

    fn watch_renewals(&self, selection: ObjectSelector) -> Box<dyn ObjectFeed<Renewal>> {
        Box::new(FakeFeed::new(self.cluster.clone(), self.faults.clone(), selection))
    }

    fn read<'a>(&'a self, object: &'a ObjectPath) -> ApiFuture<'a, StoredObject> {
        Box::pin(async move { Ok(stored(&self.fetch(object).await?)) })
    }

    fn create<'a>(&'a self, object: &'a ObjectPath, body: Vec<u8>) -> ApiFuture<'a, StoredObject> {
        Box::pin(async move {
            let body = parse(object, &body)?;
            let path = object.clone();
            let create = {
                let body = body.clone();
                move |cluster: &FakeCluster| cluster.create(&path, body)
            };
            Ok(stored(&self.write(ApiVerb::Create, object, Some(body), create).await?))
        })
    }

    fn create_subresource<'a>(
        &'a self,
        object: &'a ObjectPath,
        subresource: &'a str,
        body: Vec<u8>,
    ) -> ApiFuture<'a, StoredObject> {
        Box::pin(async move {
            let body = parse(object, &body)?;
            let (path, name, content) = (object.clone(), subresource.to_owned(), body.clone());
            let act =
                move |cluster: &FakeCluster| create_subresource(cluster, &path, &name, content);
            Ok(stored(&self.write(ApiVerb::Create, object, Some(body), act).await?))
        })
    }

    fn patch<'a>(&'a self, object: &'a ObjectPath, patch: Patch) -> ApiFuture<'a, StoredObject> {
        Box::pin(async move {
            let body = parse(object, &patch.body)?;
            let path = object.clone();
            let sent = body.clone();
            let act = move |cluster: &FakeCluster| {
                let precondition = |field: &str| {
                    body["metadata"].get(field).and_then(Value::as_str).map(str::to_owned)
                };
                let (uid, version) = (precondition("uid"), precondition("resourceVersion"));
                cluster.write(&path, (uid.as_deref(), version.as_deref()), |object| {
                    apply(&path, &patch, &body, object)
                })
            };
            Ok(stored(&self.write(ApiVerb::Patch, object, Some(sent), act).await?))
        })
    }

    fn delete<'a>(&'a self, object: &'a ObjectPath, deletion: Deletion) -> ApiFuture<'a, ()> {
        Box::pin(async move {
            let path = object.clone();
            let body = json!({"gracePeriodSeconds": deletion.grace_seconds});
            let act =
                move |cluster: &FakeCluster| cluster.delete(&path, &deletion).map(|()| Value::Null);
            self.write(ApiVerb::Delete, object, Some(body), act).await.map(|_| ())
        })
    }

    fn read_lease<'a>(&'a self, namespace: &'a str, name: &'a str) -> ApiFuture<'a, Lease> {
        Box::pin(async move { lease_of(self.fetch(&ObjectPath::lease(namespace, name)).await?) })
    }

    fn create_lease<'a>(&'a self, lease: &'a Lease) -> ApiFuture<'a, Lease> {
        Box::pin(async move {
            let path = ObjectPath::lease(&lease.metadata.namespace, &lease.metadata.name);
            let body = json!({"spec": lease.spec});
            let (target, content) = (path.clone(), body.clone());
            let act = move |cluster: &FakeCluster| cluster.create(&target, content);
            lease_of(self.write(ApiVerb::Create, &path, Some(body), act).await?)
        })
    }

    fn update_lease<'a>(&'a self, lease: &'a Lease) -> ApiFuture<'a, Lease> {
        Box::pin(async move {
            let path = ObjectPath::lease(&lease.metadata.namespace, &lease.metadata.name);
            let spec = json!(lease.spec);
            let (target, metadata) = (path.clone(), lease.metadata.clone());
            let body = json!({"spec": spec});
            let act = move |cluster: &FakeCluster| {
                let preconditions =
                    (Some(metadata.uid.as_str()), Some(metadata.resource_version.as_str()));
                cluster.write(&target, preconditions, |object| {
                    object["spec"] = spec;
                    Ok(())
                })
            };
            lease_of(self.write(ApiVerb::Patch, &path, Some(body), act).await?)
        })
    }

    fn create_event<'a>(&'a self, event: &'a ClusterEvent) -> ApiFuture<'a, StoredEvent> {
        Box::pin(async move {
            // The path only names the request in errors.
            let path = ObjectPath::node("event");
            self.deliver(&path).await?;
            if !self.cluster.store_event(event.clone()) {
                return Err(ClusterApiError::AlreadyExists { request: named(&path) });
            }
            Ok(StoredEvent {
                namespace: event.about.namespace.clone(),
                name: format!("{}.{:x}", event.about.name, event.at.nanos()),
            })
        })
    }

    fn repeat_event<'a>(
        &'a self,
        _stored: &'a StoredEvent,
        _again: Repetition<'a>,
    ) -> ApiFuture<'a, ()> {
        Box::pin(async move { self.deliver(&ObjectPath::node("event")).await })
    }
}
