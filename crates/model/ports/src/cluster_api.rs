//! The seam to a Kubernetes API server: feeds of objects, guarded writes, leases, events.
//!
//! Rule: every call ends, and its error tells the caller what it can do; nothing replaces a whole
//! object, since a client of another version would drop fields that it does not know. A feed is
//! level-triggered: a consumer may forget everything from before a list begins; the events after it
//! are sufficient. Does not decide what to write.

use std::borrow::Cow;
use std::fmt;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::PortFuture;
use crate::api_pod::ApiPod;
use crate::api_time::ApiTime;
use crate::cluster_objects::{Lease, Node, Pod, Renewal, RuntimeClass, Service};
use crate::node_object::NodeObject;

/// A kind of object, as the API's paths name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resource {
    /// Empty for the core group.
    pub group: &'static str,
    pub version: &'static str,
    pub plural: &'static str,
}

impl Resource {
    pub const NODES: Self = Self { group: "", version: "v1", plural: "nodes" };
    pub const PODS: Self = Self { group: "", version: "v1", plural: "pods" };
    pub const EVENTS: Self = Self { group: "", version: "v1", plural: "events" };
    pub const CONFIG_MAPS: Self = Self { group: "", version: "v1", plural: "configmaps" };
    pub const SECRETS: Self = Self { group: "", version: "v1", plural: "secrets" };
    pub const SERVICES: Self = Self { group: "", version: "v1", plural: "services" };
    pub const RUNTIME_CLASSES: Self =
        Self { group: "node.k8s.io", version: "v1", plural: "runtimeclasses" };
    pub const SERVICE_ACCOUNTS: Self = Self { group: "", version: "v1", plural: "serviceaccounts" };
    pub const SIGNING_REQUESTS: Self =
        Self { group: "certificates.k8s.io", version: "v1", plural: "certificatesigningrequests" };
    pub const CSI_NODES: Self = Self { group: "storage.k8s.io", version: "v1", plural: "csinodes" };
    pub const CSI_DRIVERS: Self =
        Self { group: "storage.k8s.io", version: "v1", plural: "csidrivers" };
    pub const LEASES: Self = Self { group: "coordination.k8s.io", version: "v1", plural: "leases" };
}

/// One object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectPath {
    pub resource: Resource,
    /// None for objects without a namespace.
    pub namespace: Option<String>,
    pub name: String,
}

impl ObjectPath {
    pub fn node(name: &str) -> Self {
        Self { resource: Resource::NODES, namespace: None, name: name.to_owned() }
    }

    pub fn csi_node(name: &str) -> Self {
        Self { resource: Resource::CSI_NODES, namespace: None, name: name.to_owned() }
    }

    pub fn csi_driver(name: &str) -> Self {
        Self { resource: Resource::CSI_DRIVERS, namespace: None, name: name.to_owned() }
    }

    pub fn namespaced(resource: Resource, namespace: &str, name: &str) -> Self {
        Self { resource, namespace: Some(namespace.to_owned()), name: name.to_owned() }
    }

    pub fn pod(namespace: &str, name: &str) -> Self {
        Self::namespaced(Resource::PODS, namespace, name)
    }

    pub fn service_account(namespace: &str, name: &str) -> Self {
        Self::namespaced(Resource::SERVICE_ACCOUNTS, namespace, name)
    }

    pub fn lease(namespace: &str, name: &str) -> Self {
        Self::namespaced(Resource::LEASES, namespace, name)
    }
}

/// Which objects of a kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectSelector {
    /// None for all namespaces.
    pub namespace: Option<String>,
    /// Such as `app=web`; empty for all.
    pub labels: String,
    /// Such as `spec.nodeName=worker-1`; empty for all.
    pub fields: String,
}

impl ObjectSelector {
    pub fn in_namespace(namespace: &str) -> Self {
        Self { namespace: Some(namespace.to_owned()), ..Self::default() }
    }

    pub fn by_fields(fields: &str) -> Self {
        Self { fields: fields.to_owned(), ..Self::default() }
    }
}

/// An event of a feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FeedEvent<T> {
    /// All objects follow, page by page. A list may begin again before it has ended.
    ListBegun,
    /// A page of the list.
    Listed(Vec<T>),
    /// Objects that were in no page since the last `ListBegun` are gone.
    ListEnded,
    /// The object was added or modified; this is its current version.
    Applied(T),
    /// The object is gone; this was its last state.
    Deleted(T),
    /// An object that cannot be decoded; `deleted`: the event was its deletion. The feed continues
    /// without it.
    Unreadable { object: String, deleted: bool, cause: String },
    /// The watch is interrupted, for this reason; the feed retries by itself.
    Interrupted(ClusterApiError),
    /// The watch works again; the changes that were missed follow.
    Resumed,
}

/// An endless stream of changes to objects of one kind.
pub trait ObjectFeed<T>: Send {
    /// Waits for the next event. May be dropped and called again without losing one.
    fn next(&mut self) -> PortFuture<'_, FeedEvent<T>>;

    /// What has already come, without waiting.
    fn ready(&mut self) -> Option<FeedEvent<T>> {
        match self.next().as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(event) => Some(event),
            Poll::Pending => None,
        }
    }
}

/// The states of one object, as they come: for kinds of which a node may watch single objects only.
/// Stops when dropped.
pub trait ObjectWatch: Send {
    /// Waits for the next state, which differs from the one before. `NotFound`: there is no such
    /// object now. Any other error: the state is not known; the watch retries by itself.
    /// May be dropped and called again without losing a state.
    fn next(&mut self) -> PortFuture<'_, Result<StoredObject, ClusterApiError>>;
}

/// The watch of an API that cannot watch single objects: one error, then nothing.
struct RefusedWatch(Option<ClusterApiError>);

impl ObjectWatch for RefusedWatch {
    fn next(&mut self) -> PortFuture<'_, Result<StoredObject, ClusterApiError>> {
        match self.0.take() {
            Some(error) => Box::pin(std::future::ready(Err(error))),
            None => Box::pin(std::future::pending()),
        }
    }
}

/// The type of a patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchKind {
    /// JSON merge patch: lists are replaced, `null` removes.
    Merge,
    /// Lists are merged by their keys, as the API's types say.
    StrategicMerge,
    /// A list of operations; a failed `test` among them fails the whole patch.
    Json,
    /// Server-side apply; `force` takes fields over from other owners.
    Apply { force: bool },
}

/// A change to one object. Its content may be secret, so its debug form shows only the length.
#[derive(Clone, PartialEq, Eq)]
pub struct Patch {
    pub kind: PatchKind,
    /// `status`, for example; none for the object itself.
    pub subresource: Option<Cow<'static, str>>,
    /// JSON. If it holds `metadata.resourceVersion` (and `metadata.uid`), the request fails with a
    /// conflict when the object has changed.
    pub body: Vec<u8>,
}

impl fmt::Debug for Patch {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Patch")
            .field("kind", &self.kind)
            .field("subresource", &self.subresource)
            .field("bytes", &self.body.len())
            .finish()
    }
}

/// Preconditions of a deletion, and its grace period.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Deletion {
    pub uid: Option<String>,
    pub resource_version: Option<String>,
    /// None: the object's own; zero: at once.
    pub grace_seconds: Option<i64>,
}

/// An object as the API server stores it. It may be a secret or a token, so its debug form shows
/// only the length.
#[derive(Clone, PartialEq, Eq)]
pub struct StoredObject {
    pub uid: String,
    pub resource_version: String,
    pub json: Vec<u8>,
}

impl fmt::Debug for StoredObject {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("StoredObject")
            .field("uid", &self.uid)
            .field("resource_version", &self.resource_version)
            .field("bytes", &self.json.len())
            .finish()
    }
}

/// The `type` of an event: `Normal` or `Warning`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClusterEventType {
    Normal,
    Warning,
}

/// What an event is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectReference {
    pub api_version: String,
    pub kind: String,
    /// Empty for objects without a namespace.
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub resource_version: String,
    pub field_path: String,
}

/// An event for operators, kept by the API server for a while.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterEvent {
    pub about: ObjectReference,
    pub kind: ClusterEventType,
    /// One word.
    pub reason: String,
    pub message: String,
    /// The component that reports it, such as `node-controller`.
    pub component: String,
    /// The node it was reported from; may be empty.
    pub host: String,
    pub at: ApiTime,
}

/// An event that the API server has stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredEvent {
    pub namespace: String,
    pub name: String,
}

/// A repetition of a stored event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repetition<'a> {
    /// The count so far.
    pub count: u32,
    pub last: ApiTime,
    /// The new message of an event that stands for several; absent where it is the same.
    pub message: Option<&'a str>,
}

/// An API server. No method retries an error that the server returned; all wait when asked to slow
/// down, within their deadline.
pub trait ClusterApi: Send + Sync {
    fn watch_nodes(&self, selection: ObjectSelector) -> Box<dyn ObjectFeed<Node>>;
    /// The one Node of that name, with all of its status.
    fn watch_own_node(&self, name: &str) -> Box<dyn ObjectFeed<NodeObject>>;
    fn watch_pods(&self, selection: ObjectSelector) -> Box<dyn ObjectFeed<Pod>>;
    /// The pods that are bound to a node, whole.
    fn watch_node_pods(&self, node: &str) -> Box<dyn ObjectFeed<ApiPod>>;
    /// The services of all namespaces.
    fn watch_services(&self) -> Box<dyn ObjectFeed<Service>>;
    fn watch_runtime_classes(&self) -> Box<dyn ObjectFeed<RuntimeClass>>;
    fn watch_renewals(&self, selection: ObjectSelector) -> Box<dyn ObjectFeed<Renewal>>;

    /// Watches one object by name.
    fn watch_object(&self, object: &ObjectPath) -> Box<dyn ObjectWatch> {
        let error = ClusterApiError::Refused {
            request: format!("WATCH {}/{}", object.resource.plural, object.name),
            status: 0,
            reason: "NotSupported".to_owned(),
            message: "single objects cannot be watched here".to_owned(),
        };
        Box::new(RefusedWatch(Some(error)))
    }

    /// How long a request made now would wait for the client-side rate limit.
    fn rate_limit_delay(&self) -> Duration {
        Duration::ZERO
    }

    fn read<'a>(&'a self, object: &'a ObjectPath) -> ApiFuture<'a, StoredObject>;
    /// Creates an object; the body is its JSON, whose name and namespace must be those of the path.
    fn create<'a>(&'a self, object: &'a ObjectPath, body: Vec<u8>) -> ApiFuture<'a, StoredObject>;
    /// Creates a subresource of an object: a pod's `binding` or `eviction`, a service account's
    /// `token`. The result is what the API server answers: an object of that kind, or a status.
    fn create_subresource<'a>(
        &'a self,
        object: &'a ObjectPath,
        subresource: &'a str,
        body: Vec<u8>,
    ) -> ApiFuture<'a, StoredObject>;
    fn patch<'a>(&'a self, object: &'a ObjectPath, patch: Patch) -> ApiFuture<'a, StoredObject>;
    /// An object with a grace period or finalizers is still there afterwards, marked as deleted.
    fn delete<'a>(&'a self, object: &'a ObjectPath, deletion: Deletion) -> ApiFuture<'a, ()>;

    fn read_lease<'a>(&'a self, namespace: &'a str, name: &'a str) -> ApiFuture<'a, Lease>;
    /// Creates a lease with the name, namespace, owners and content given.
    fn create_lease<'a>(&'a self, lease: &'a Lease) -> ApiFuture<'a, Lease>;
    /// Writes a lease's content and owners; a conflict if it is no longer the version given.
    fn update_lease<'a>(&'a self, lease: &'a Lease) -> ApiFuture<'a, Lease>;

    fn create_event<'a>(&'a self, event: &'a ClusterEvent) -> ApiFuture<'a, StoredEvent>;
    /// Records that an event came again.
    fn repeat_event<'a>(
        &'a self,
        stored: &'a StoredEvent,
        again: Repetition<'a>,
    ) -> ApiFuture<'a, ()>;
}

pub type ApiFuture<'a, T> = PortFuture<'a, Result<T, ClusterApiError>>;

/// Why a request did not do what it should: one variant for each thing that a caller can do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClusterApiError {
    #[error("{request}: there is no such object")]
    NotFound { request: String },
    #[error("{request}: there is such an object already")]
    AlreadyExists { request: String },
    /// The object is not the one, or not in the version, that the request was meant for.
    #[error("{request}: conflict: {message}")]
    Conflict { request: String, message: String },
    /// The version or page asked for is no longer kept: list again.
    #[error("{request}: expired: {message}")]
    Expired { request: String, message: String },
    /// The API server does not accept our credentials (any more).
    #[error("{request}: not authenticated: {message}")]
    Unauthenticated { request: String, message: String },
    /// Not allowed, not valid, not supported: the same request will be refused again.
    #[error("{request}: refused ({status} {reason}): {message}")]
    Refused { request: String, status: u16, reason: String, message: String },
    /// Too many requests: retry only after that time.
    #[error("{request}: asked to come back in {retry_after:?}")]
    Throttled { request: String, retry_after: Duration },
    /// The client-side rate limit would allow it only after its deadline; nothing was sent, and it
    /// means nothing about the API server.
    #[error("{request}: not sent, our own rate allows it only in {rate_limit_delay:?}")]
    RateLimited { request: String, rate_limit_delay: Duration },
    /// The API server returned an internal error; a write may or may not have happened.
    #[error("{request}: the API server is in trouble ({status}): {message}")]
    ServerError { request: String, status: u16, message: String },
    /// Nothing was sent.
    #[error("{request}: cannot reach the API server: {cause}")]
    Unreachable { request: String, cause: String },
    /// Sent, and not answered: a write may or may not have happened.
    #[error("{request}: no answer: {cause}")]
    NoResponse { request: String, cause: String },
    #[error("{request}: the answer is longer than {limit} bytes")]
    TooLarge { request: String, limit: usize },
    #[error("{request}: cannot read the answer: {cause}")]
    Unreadable { request: String, cause: String },
    /// Our own credentials cannot be read; nothing was sent.
    #[error("{request}: no credentials: {cause}")]
    NoCredentials { request: String, cause: String },
}
