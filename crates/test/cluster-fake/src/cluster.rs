//! The cluster's stored objects, an ordered log of changes, and a log of the requests of each
//! client.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ports::cluster_api::{ClusterEvent, Deletion, ObjectPath, Resource};
use ports::cluster_objects::{Lease, Node, Pod};
use ports::{ApiTime, ClusterApiError};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::client::FakeClient;
use crate::faults::ClientFaultSwitch;

/// The verb of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApiVerb {
    Read,
    Create,
    Patch,
    Delete,
}

/// One request that reached the cluster.
#[derive(Clone, Debug)]
pub struct LoggedRequest {
    pub at: Instant,
    pub client: String,
    pub verb: ApiVerb,
    pub path: ObjectPath,
    /// Whether the request succeeded.
    pub succeeded: bool,
    pub body: Option<Value>,
}

#[derive(Clone, Debug)]
pub(crate) struct StoredChange {
    pub(crate) version: u64,
    pub(crate) resource: Resource,
    pub(crate) object: Arc<Value>,
    pub(crate) deleted: bool,
}

type ObjectKey = (&'static str, String, String);

#[derive(Debug, Default)]
struct ObjectStore {
    objects: BTreeMap<ObjectKey, Arc<Value>>,
    version: u64,
    uids: u64,
    history: Vec<StoredChange>,
    /// Changes up to this version have been compacted away.
    compacted: u64,
    events: Vec<ClusterEvent>,
    log: Vec<LoggedRequest>,
}

#[derive(Debug)]
struct ClusterShared {
    store: Mutex<ObjectStore>,
    changed: watch::Sender<u64>,
    started: Instant,
    epoch: ApiTime,
}

/// A cluster's API server. Clones share state.
#[derive(Clone, Debug)]
pub struct FakeCluster(Arc<ClusterShared>);

fn key(path: &ObjectPath) -> ObjectKey {
    (path.resource.plural, path.namespace.clone().unwrap_or_default(), path.name.clone())
}

pub(crate) fn named(path: &ObjectPath) -> String {
    format!("{} {}/{}", path.resource.plural, path.namespace.as_deref().unwrap_or(""), path.name)
}

impl FakeCluster {
    /// An empty cluster whose clock starts at this time.
    #[must_use]
    pub fn new(epoch: ApiTime) -> Self {
        Self(Arc::new(ClusterShared {
            store: Mutex::new(ObjectStore { version: 1000, ..ObjectStore::default() }),
            changed: watch::Sender::new(0),
            started: Instant::now(),
            epoch,
        }))
    }

    fn lock(&self) -> MutexGuard<'_, ObjectStore> {
        self.0.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A client with its own faults.
    #[must_use]
    pub fn client(&self, name: &str) -> FakeClient {
        FakeClient::new(self.clone(), name, ClientFaultSwitch::default())
    }

    /// The cluster's clock.
    #[must_use]
    pub fn wall(&self) -> ApiTime {
        let passed = i64::try_from(self.0.started.elapsed().as_nanos()).unwrap_or(i64::MAX);
        ApiTime::from_nanos(self.0.epoch.nanos().saturating_add(passed))
    }

    /// The cluster's clock, advanced by `span`.
    #[must_use]
    pub fn wall_in(&self, span: Duration) -> ApiTime {
        let span = i64::try_from(span.as_nanos()).unwrap_or(i64::MAX);
        ApiTime::from_nanos(self.wall().nanos().saturating_add(span))
    }

    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.0.changed.subscribe()
    }

    /// Creates an object, or replaces everything but its identity. Returns its UID.
    pub fn put(&self, path: &ObjectPath, mut object: Value) -> String {
        let uid = {
            let mut store = self.lock();
            let known = store.objects.get(&key(path)).cloned();
            let uid = match known.as_deref().and_then(|it| it.pointer("/metadata/uid")) {
                Some(uid) => uid.as_str().unwrap_or_default().to_owned(),
                None => {
                    store.uids += 1;
                    format!("00000000-0000-4000-8000-{:012x}", store.uids)
                }
            };
            let created = known
                .as_deref()
                .and_then(|it| it.pointer("/metadata/creationTimestamp").cloned())
                .unwrap_or_else(|| json!(self.wall().to_seconds_text()));
            if !object.get("metadata").is_some_and(Value::is_object) {
                object["metadata"] = json!({});
            }
            let metadata = &mut object["metadata"];
            metadata["name"] = json!(path.name);
            if let Some(namespace) = &path.namespace {
                metadata["namespace"] = json!(namespace);
            }
            metadata["uid"] = json!(uid);
            metadata["creationTimestamp"] = created;
            store.store_object(path, object);
            uid
        };
        self.notify_watches();
        uid
    }

    /// Changes an object without preconditions and without an entry in the request log.
    pub fn edit(&self, path: &ObjectPath, change: impl FnOnce(&mut Value)) {
        {
            let mut store = self.lock();
            let Some(object) = store.objects.get(&key(path)).cloned() else { return };
            let mut object = (*object).clone();
            change(&mut object);
            store.store_object(path, object);
        }
        self.notify_watches();
    }

    /// Removes an object at once.
    pub fn remove(&self, path: &ObjectPath) {
        self.lock().drop_object(path);
        self.notify_watches();
    }

    /// Compacts all past changes: watches that are behind have to list again.
    pub fn compact(&self) {
        let mut store = self.lock();
        store.compacted = store.version;
        store.history.clear();
    }

    fn notify_watches(&self) {
        self.0.changed.send_modify(|count| *count += 1);
    }

    #[must_use]
    pub fn get(&self, path: &ObjectPath) -> Option<Value> {
        self.lock().objects.get(&key(path)).map(|object| (**object).clone())
    }

    /// A node as the controller reads it.
    #[must_use]
    pub fn node(&self, name: &str) -> Option<Node> {
        serde_json::from_value(self.get(&ObjectPath::node(name))?).ok()
    }

    #[must_use]
    pub fn pod(&self, namespace: &str, name: &str) -> Option<Pod> {
        serde_json::from_value(self.get(&ObjectPath::pod(namespace, name))?).ok()
    }

    #[must_use]
    pub fn lease(&self, namespace: &str, name: &str) -> Option<Lease> {
        serde_json::from_value(self.get(&ObjectPath::lease(namespace, name))?).ok()
    }

    /// All recorded events, in order.
    #[must_use]
    pub fn events(&self) -> Vec<ClusterEvent> {
        self.lock().events.clone()
    }

    /// The reasons of the events about the object of this name.
    #[must_use]
    pub fn reasons(&self, name: &str) -> Vec<String> {
        let events = self.events();
        let about = events.iter().filter(|event| event.about.name == name);
        about.map(|event| event.reason.clone()).collect()
    }

    /// Records an event; returns false if one of that name (object and timestamp) exists.
    pub(crate) fn store_event(&self, event: ClusterEvent) -> bool {
        let mut store = self.lock();
        let name = |event: &ClusterEvent| {
            (event.about.namespace.clone(), event.about.name.clone(), event.at)
        };
        let is_new = store.events.iter().rev().all(|known| name(known) != name(&event));
        if is_new {
            store.events.push(event);
        }
        is_new
    }

    /// Every request that reached the cluster.
    #[must_use]
    pub fn log(&self) -> Vec<LoggedRequest> {
        self.lock().log.clone()
    }

    pub(crate) fn log_request(&self, logged: LoggedRequest) {
        self.lock().log.push(logged);
    }

    /// All objects of a kind, and the resource version of the list.
    pub(crate) fn list(&self, resource: Resource) -> (Vec<Arc<Value>>, u64) {
        let store = self.lock();
        let of_kind = store.objects.iter().filter(|((plural, ..), _)| *plural == resource.plural);
        (of_kind.map(|(_, object)| object.clone()).collect(), store.version)
    }

    /// Changes of a kind after a version; `None` if they have been compacted.
    pub(crate) fn since(&self, resource: Resource, version: u64) -> Option<Vec<StoredChange>> {
        let store = self.lock();
        if version < store.compacted {
            return None;
        }
        let first = store.history.partition_point(|change| change.version <= version);
        let changes = store.history.get(first..).unwrap_or_default();
        Some(changes.iter().filter(|it| it.resource == resource).cloned().collect())
    }

    /// Creates what does not exist.
    pub(crate) fn create(&self, path: &ObjectPath, body: Value) -> Result<Value, ClusterApiError> {
        if self.lock().objects.contains_key(&key(path)) {
            return Err(ClusterApiError::AlreadyExists { request: named(path) });
        }
        self.put(path, body);
        self.read(path)
    }

    pub(crate) fn read(&self, path: &ObjectPath) -> Result<Value, ClusterApiError> {
        self.get(path).ok_or_else(|| ClusterApiError::NotFound { request: named(path) })
    }

    /// Changes an object if its preconditions hold.
    pub(crate) fn write(
        &self,
        path: &ObjectPath,
        (uid, version): (Option<&str>, Option<&str>),
        change: impl FnOnce(&mut Value) -> Result<(), ClusterApiError>,
    ) -> Result<Value, ClusterApiError> {
        let result = {
            let mut store = self.lock();
            let known = store.guarded(path, uid, version)?;
            let mut object = (*known).clone();
            change(&mut object)?;
            object["metadata"] = metadata_with_identity(&known, &object);
            if object == *known { object } else { store.store_object(path, object) }
        };
        self.notify_watches();
        Ok(result)
    }

    /// Deletes an object if its preconditions hold; a bound pod with a grace period is only marked.
    pub(crate) fn delete(
        &self,
        path: &ObjectPath,
        deletion: &Deletion,
    ) -> Result<(), ClusterApiError> {
        let grace = deletion.grace_seconds.unwrap_or(30);
        let span = Duration::from_secs(u64::try_from(grace).unwrap_or(0));
        let until = self.wall_in(span).to_seconds_text();
        {
            let mut store = self.lock();
            let guards = (deletion.uid.as_deref(), deletion.resource_version.as_deref());
            let object = store.guarded(path, guards.0, guards.1)?;
            let bound = object.pointer("/spec/nodeName").and_then(Value::as_str);
            let graceful = path.resource == Resource::PODS
                && bound.is_some_and(|node| !node.is_empty())
                && deletion.grace_seconds != Some(0);
            if graceful {
                let mut object = (*object).clone();
                let known = object["metadata"]["deletionGracePeriodSeconds"].as_i64();
                if known.is_none_or(|known| grace < known) {
                    object["metadata"]["deletionTimestamp"] = json!(until);
                    object["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
                    store.store_object(path, object);
                }
            } else {
                store.drop_object(path);
            }
        }
        self.notify_watches();
        Ok(())
    }
}

/// A patch cannot change an object's identity.
fn metadata_with_identity(known: &Value, object: &Value) -> Value {
    let mut metadata = object["metadata"].clone();
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        match known["metadata"].get(field) {
            Some(value) => metadata[field] = value.clone(),
            None => {
                if let Some(metadata) = metadata.as_object_mut() {
                    metadata.remove(field);
                }
            }
        }
    }
    metadata
}

impl ObjectStore {
    fn guarded(
        &self,
        path: &ObjectPath,
        uid: Option<&str>,
        version: Option<&str>,
    ) -> Result<Arc<Value>, ClusterApiError> {
        let found = self.objects.get(&key(path));
        let object =
            found.ok_or_else(|| ClusterApiError::NotFound { request: named(path) })?.clone();
        for (field, wanted) in [("uid", uid), ("resourceVersion", version)] {
            let has = object["metadata"][field].as_str();
            if wanted.is_some_and(|wanted| Some(wanted) != has) {
                return Err(ClusterApiError::Conflict {
                    request: named(path),
                    message: format!("{field} is {has:?}, not {wanted:?}"),
                });
            }
        }
        Ok(object)
    }

    fn store_object(&mut self, path: &ObjectPath, mut object: Value) -> Value {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let object = Arc::new(object);
        self.objects.insert(key(path), object.clone());
        self.history.push(StoredChange {
            version: self.version,
            resource: path.resource,
            object: object.clone(),
            deleted: false,
        });
        (*object).clone()
    }

    fn drop_object(&mut self, path: &ObjectPath) {
        let Some(object) = self.objects.remove(&key(path)) else { return };
        self.version += 1;
        let mut object = (*object).clone();
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.history.push(StoredChange {
            version: self.version,
            resource: path.resource,
            object: Arc::new(object),
            deleted: true,
        });
    }
}
