//! Frames of a watch as the API server writes them, a line of JSON or a length and a protobuf
//! message: a renewed lease, and the status that a version has expired.
//!
//! Rule: names and numbers of the fields are the API's; a frame has only fields that the real one
//! has. The version of a lease grows with each renewal.

use std::sync::atomic::{AtomicU64, Ordering};

use bytes::{BufMut as _, Bytes, BytesMut};
use ports::ApiTime;
use prost::Message;
use serde_json::json;

/// The encoding of a watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WatchEncoding {
    Json,
    Protobuf,
}

impl WatchEncoding {
    /// The encoding of a response.
    pub(super) fn of<T>(reply: &hyper::Response<T>) -> Self {
        let kind = reply.headers().get("content-type").and_then(|it| it.to_str().ok());
        match kind.is_some_and(|kind| kind.contains("protobuf")) {
            true => Self::Protobuf,
            false => Self::Json,
        }
    }

    /// The length of the first frame, if it is complete.
    pub(super) fn whole_frame(self, bytes: &[u8]) -> Option<usize> {
        match self {
            Self::Json => bytes.iter().position(|byte| *byte == b'\n').map(|at| at + 1),
            Self::Protobuf => {
                let head: [u8; 4] = bytes.get(..4)?.try_into().ok()?;
                let whole = 4 + usize::try_from(u32::from_be_bytes(head)).ok()?;
                (bytes.len() >= whole).then_some(whole)
            }
        }
    }
}

/// Versions of replayed leases: far above those of a test's etcd.
static VERSION: AtomicU64 = AtomicU64::new(1_000_000_000);

#[derive(Clone, PartialEq, Message)]
struct WatchEvent {
    #[prost(string, tag = "1")]
    kind: String,
    #[prost(message, optional, tag = "2")]
    object: Option<RawExtension>,
}

#[derive(Clone, PartialEq, Message)]
struct RawExtension {
    #[prost(bytes = "vec", tag = "1")]
    raw: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct Unknown {
    #[prost(message, optional, tag = "1")]
    type_meta: Option<TypeMeta>,
    #[prost(bytes = "vec", tag = "2")]
    raw: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct TypeMeta {
    #[prost(string, tag = "1")]
    api_version: String,
    #[prost(string, tag = "2")]
    kind: String,
}

#[derive(Clone, PartialEq, Message)]
struct Lease {
    #[prost(message, optional, tag = "1")]
    metadata: Option<ObjectMeta>,
    #[prost(message, optional, tag = "2")]
    spec: Option<LeaseSpec>,
}

#[derive(Clone, PartialEq, Message)]
struct ObjectMeta {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "3")]
    namespace: String,
    #[prost(string, tag = "5")]
    uid: String,
    #[prost(string, tag = "6")]
    resource_version: String,
}

#[derive(Clone, PartialEq, Message)]
struct LeaseSpec {
    #[prost(string, tag = "1")]
    holder_identity: String,
    #[prost(int32, tag = "2")]
    lease_duration_seconds: i32,
    #[prost(message, optional, tag = "4")]
    renew_time: Option<MicroTime>,
}

#[derive(Clone, PartialEq, Message)]
struct MicroTime {
    #[prost(int64, tag = "1")]
    seconds: i64,
    #[prost(int32, tag = "2")]
    nanos: i32,
}

/// One renewal of a node's lease, at this time.
pub(super) fn renewal(form: WatchEncoding, node: &str, time: ApiTime) -> Bytes {
    let version = VERSION.fetch_add(1, Ordering::Relaxed).to_string();
    match form {
        WatchEncoding::Json => {
            let event = json!({"type": "MODIFIED", "object": {
                "kind": "Lease", "apiVersion": "coordination.k8s.io/v1",
                "metadata": {"name": node, "namespace": "kube-node-lease",
                    "uid": uid(node), "resourceVersion": version},
                "spec": {"holderIdentity": node, "leaseDurationSeconds": 40,
                    "renewTime": time.to_micros_text()},
            }});
            Bytes::from(format!("{event}\n"))
        }
        WatchEncoding::Protobuf => protobuf(node, version, time),
    }
}

/// The UID of a node's lease, the same in every renewal.
fn uid(node: &str) -> String {
    format!("00000000-0000-4000-8000-{node:0>12}")
}

fn protobuf(node: &str, resource_version: String, time: ApiTime) -> Bytes {
    let nanos = time.nanos();
    let lease = Lease {
        metadata: Some(ObjectMeta {
            name: node.to_owned(),
            namespace: "kube-node-lease".to_owned(),
            uid: uid(node),
            resource_version,
        }),
        spec: Some(LeaseSpec {
            holder_identity: node.to_owned(),
            lease_duration_seconds: 40,
            renew_time: Some(MicroTime {
                seconds: nanos.div_euclid(1_000_000_000),
                nanos: i32::try_from(nanos.rem_euclid(1_000_000_000) / 1000 * 1000).unwrap_or(0),
            }),
        }),
    };
    framed("MODIFIED", ("coordination.k8s.io/v1", "Lease"), lease.encode_to_vec())
}

/// A `Status` with the fields that describe an error.
#[derive(Clone, PartialEq, Message)]
struct Status {
    #[prost(string, tag = "2")]
    status: String,
    #[prost(string, tag = "3")]
    message: String,
    #[prost(string, tag = "4")]
    reason: String,
    #[prost(int32, tag = "6")]
    code: i32,
}

/// Also the body of the response to a request whose version is already too old.
pub(super) fn expired_status() -> serde_json::Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "too old resource version", "reason": "Expired", "code": 410})
}

/// The last frame of a watch whose version the API server no longer keeps.
pub(super) fn expired(form: WatchEncoding) -> Bytes {
    match form {
        WatchEncoding::Json => {
            let event = json!({"type": "ERROR", "object": expired_status()});
            Bytes::from(format!("{event}\n"))
        }
        WatchEncoding::Protobuf => {
            let status = Status {
                status: "Failure".to_owned(),
                message: "too old resource version".to_owned(),
                reason: "Expired".to_owned(),
                code: 410,
            };
            framed("ERROR", ("v1", "Status"), status.encode_to_vec())
        }
    }
}

/// An object in its envelope.
fn framed(event: &str, (api_version, kind): (&str, &str), raw: Vec<u8>) -> Bytes {
    let type_meta = TypeMeta { api_version: api_version.to_owned(), kind: kind.to_owned() };
    let unknown = Unknown { type_meta: Some(type_meta), raw };
    // Stored and sent objects begin with four bytes that name the form.
    let mut raw = b"k8s\0".to_vec();
    raw.extend(unknown.encode_to_vec());
    let event =
        WatchEvent { kind: event.to_owned(), object: Some(RawExtension { raw }) }.encode_to_vec();
    let mut frame = BytesMut::with_capacity(event.len() + 4);
    frame.put_u32(u32::try_from(event.len()).unwrap_or(0));
    frame.extend_from_slice(&event);
    frame.freeze()
}
