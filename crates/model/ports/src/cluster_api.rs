//! The seam to a Kubernetes API server: feeds of objects, guarded writes, leases, events.
//!
//! Rule: every call ends, and its error says what a caller can do about it; nothing replaces a
//! whole object, since a client of another version would lose fields that it does not know. A feed
//! is level-triggered: what it told before a list begins may be forgotten, what it tells is enough
//! to be right. Does not decide what to write.

use std::borrow::Cow;
use std::fmt;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::PortFuture;
use crate::api_time::ApiTime;
use crate::cluster_objects::{Lease, Node, Pod, Renewal};
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

    pub fn namespaced(resource: Resource, namespace: &str, name: &str) -> Self {
        Self { resource, namespace: Some(namespace.to_owned()), name: name.to_owned() }
    }

    pub fn pod(namespace: &str, name: &str) -> Self {
        Self::namespaced(Resource::PODS, namespace, name)
    }

    pub fn lease(namespace: &str, name: &str) -> Self {
        Self::namespaced(Resource::LEASES, namespace, name)
    }
}

/// Which objects of a kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// None for all namespaces.
    pub namespace: Option<String>,
    /// Such as `app=web`; empty for all.
    pub labels: String,
    /// Such as `spec.nodeName=worker-1`; empty for all.
    pub fields: String,
}

impl Selection {
    pub fn in_namespace(namespace: &str) -> Self {
        Self { namespace: Some(namespace.to_owned()), ..Self::default() }
    }

    pub fn by_fields(fields: &str) -> Self {
        Self { fields: fields.to_owned(), ..Self::default() }
    }
}

/// What a feed tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FeedEvent<T> {
    /// All objects follow, page by page. A list may begin again before it has ended.
    ListBegan,
    /// A page of the list.
    Listed(Vec<T>),
    /// What was not in a page since the list last began is gone.
    ListEnded,
    /// There is such an object, in this version.
    Applied(T),
    /// The object is gone; this was its last state.
    Deleted(T),
    /// An object that cannot be read; `deleted`: it was its end that was told. The feed goes on
    /// without it.
    Unreadable { object: String, deleted: bool, cause: String },
    /// Nothing is heard any more, for this reason; the feed tries again by itself.
    Interrupted(ClusterApiError),
    /// Changes are heard again; those that were missed follow.
    Resumed,
}

/// Changes of objects of one kind, for ever.
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

/// How a patch is to be understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchKind {
    /// JSON merge patch: lists are replaced, `null` removes.
    Merge,
    /// Lists are merged by their keys, as the API's types say.
    StrategicMerge,
    /// A list of operations; a failed `test` among them refuses all.
    Json,
    /// Server-side apply; `force` takes fields over from other owners.
    Apply { force: bool },
}

/// A change to one object. Its content may be secret, so its debug form tells only the length.
#[derive(Clone, PartialEq, Eq)]
pub struct Patch {
    pub kind: PatchKind,
    /// `status`, for example; none for the object itself.
    pub subresource: Option<Cow<'static, str>>,
    /// JSON. With `metadata.resourceVersion` (and `metadata.uid`) in it, it is refused as a
    /// conflict when the object is another by now.
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

/// What must hold for a deletion, and how long the object may take.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Deletion {
    pub uid: Option<String>,
    pub resource_version: Option<String>,
    /// None: the object's own; zero: at once.
    pub grace_seconds: Option<i64>,
}

/// An object as the API server stores it. It may be a secret or a token, so its debug form tells
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

/// Whether an event tells of trouble.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
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

/// Something to tell people, kept by the API server for a while.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterEvent {
    pub about: ObjectReference,
    pub kind: EventKind,
    /// One word.
    pub reason: String,
    pub message: String,
    /// Who tells it, such as `node-controller`.
    pub component: String,
    /// On which node; may be empty.
    pub host: String,
    pub at: ApiTime,
}

/// An event that was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToldEvent {
    pub namespace: String,
    pub name: String,
}

/// An event that came again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repetition<'a> {
    /// How often by now.
    pub count: u32,
    pub last: ApiTime,
    /// The new message of an event that stands for several; absent where it is the same.
    pub message: Option<&'a str>,
}

/// An API server. No method retries a refusal; all wait when asked to slow down, within their
/// deadline.
pub trait ClusterApi: Send + Sync {
    fn watch_nodes(&self, selection: Selection) -> Box<dyn ObjectFeed<Node>>;
    /// The one Node of that name, with all of its status.
    fn watch_own_node(&self, name: &str) -> Box<dyn ObjectFeed<NodeObject>>;
    fn watch_pods(&self, selection: Selection) -> Box<dyn ObjectFeed<Pod>>;
    fn watch_renewals(&self, selection: Selection) -> Box<dyn ObjectFeed<Renewal>>;

    /// How long a request that is made now waits until our own rate lets it leave.
    fn turn_in(&self) -> Duration {
        Duration::ZERO
    }

    fn read<'a>(&'a self, object: &'a ObjectPath) -> ApiFuture<'a, StoredObject>;
    /// Makes an object; the body is its JSON, whose name and namespace must be those of the path.
    fn create<'a>(&'a self, object: &'a ObjectPath, body: Vec<u8>) -> ApiFuture<'a, StoredObject>;
    fn patch<'a>(&'a self, object: &'a ObjectPath, patch: Patch) -> ApiFuture<'a, StoredObject>;
    /// An object with a grace period or finalizers is still there afterwards, marked as deleted.
    fn delete<'a>(&'a self, object: &'a ObjectPath, deletion: Deletion) -> ApiFuture<'a, ()>;

    fn read_lease<'a>(&'a self, namespace: &'a str, name: &'a str) -> ApiFuture<'a, Lease>;
    /// Makes a lease with the name, namespace, owners and content given.
    fn create_lease<'a>(&'a self, lease: &'a Lease) -> ApiFuture<'a, Lease>;
    /// Writes a lease's content and owners; a conflict if it is no longer the version given.
    fn update_lease<'a>(&'a self, lease: &'a Lease) -> ApiFuture<'a, Lease>;

    fn tell_event<'a>(&'a self, event: &'a ClusterEvent) -> ApiFuture<'a, ToldEvent>;
    /// Records that an event came again.
    fn repeat_event<'a>(
        &'a self,
        stored: &'a ToldEvent,
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
    /// The object is another, or in another version, than the request was meant for.
    #[error("{request}: conflict: {message}")]
    Conflict { request: String, message: String },
    /// The version or page asked for is no longer kept: list again.
    #[error("{request}: expired: {message}")]
    Expired { request: String, message: String },
    /// The API server does not know who we are (any more).
    #[error("{request}: not authenticated: {message}")]
    Unauthenticated { request: String, message: String },
    /// Not allowed, not valid, not supported: the same request will be refused again.
    #[error("{request}: refused ({status} {reason}): {message}")]
    Refused { request: String, status: u16, reason: String, message: String },
    /// Too many requests: not before that time has passed.
    #[error("{request}: asked to come back in {retry_after:?}")]
    Throttled { request: String, retry_after: Duration },
    /// Our own rate would let it leave only after its deadline; nothing was sent, and it says nothing
    /// about the API server.
    #[error("{request}: not sent, our own rate allows it only in {turn_in:?}")]
    OutOfTurn { request: String, turn_in: Duration },
    /// The API server is in trouble; a write may or may not have happened.
    #[error("{request}: the API server is in trouble ({status}): {message}")]
    ServerTrouble { request: String, status: u16, message: String },
    /// Nothing was sent.
    #[error("{request}: cannot reach the API server: {cause}")]
    Unreachable { request: String, cause: String },
    /// Sent, and not answered: a write may or may not have happened.
    #[error("{request}: no answer: {cause}")]
    Unanswered { request: String, cause: String },
    #[error("{request}: the answer is longer than {limit} bytes")]
    TooLarge { request: String, limit: usize },
    #[error("{request}: cannot read the answer: {cause}")]
    Unreadable { request: String, cause: String },
    /// Our own credentials cannot be had; nothing was sent.
    #[error("{request}: no credentials: {cause}")]
    NoCredentials { request: String, cause: String },
}
