//! An object in protobuf and the same object in JSON decode to equal values. The bytes are written
//! by hand, field by field, so that a wrong field number is found.

use bytes::{BufMut as _, BytesMut};
use ports::cluster_objects::{Node, Pod, Renewal};

use crate::watch_line::{ListPage, WatchLine, read_frame, read_line, read_page};

use super::*;

/// Writes messages field by field.
#[derive(Default)]
struct Writer(BytesMut);

impl Writer {
    fn varint(mut self, field: u32, value: u64) -> Self {
        prost::encoding::encode_key(field, prost::encoding::WireType::Varint, &mut self.0);
        prost::encoding::encode_varint(value, &mut self.0);
        self
    }

    fn bytes(mut self, field: u32, value: impl AsRef<[u8]>) -> Self {
        let value = value.as_ref();
        prost::encoding::encode_key(field, prost::encoding::WireType::LengthDelimited, &mut self.0);
        prost::encoding::encode_varint(value.len() as u64, &mut self.0);
        self.0.put_slice(value);
        self
    }

    fn message(self, field: u32, value: Self) -> Self {
        self.bytes(field, value.0)
    }

    fn time(self, field: u32, seconds: u64, nanos: u64) -> Self {
        self.message(field, Self::default().varint(1, seconds).varint(2, nanos))
    }

    fn pair(self, field: u32, key: &str, value: &str) -> Self {
        self.message(field, Self::default().bytes(1, key).bytes(2, value))
    }
}

fn new() -> Writer {
    Writer::default()
}

fn enveloped(object: Writer) -> Bytes {
    let types = new().bytes(1, "v1").bytes(2, "Whatever");
    let mut whole = BytesMut::from(MAGIC);
    whole.put_slice(&new().message(1, types).message(2, object).bytes(3, "").bytes(4, "").0);
    whole.freeze()
}

fn event(kind: &str, object: Writer) -> Bytes {
    new().bytes(1, kind).message(2, new().bytes(1, enveloped(object))).0.freeze()
}

/// 2026-11-15T23:40:25Z
const TIMESTAMP: u64 = 1_794_786_025;

fn lease() -> Writer {
    let owner = new().bytes(1, "Node").bytes(3, "n").bytes(4, "nu").bytes(5, "v1").varint(6, 1);
    let managed = new().bytes(1, "kubelet").bytes(7, new().bytes(1, "{\"f:spec\":{}}").0);
    let meta = new()
        .bytes(1, "n")
        .bytes(3, "kube-node-lease")
        .bytes(5, "u")
        .bytes(6, "12")
        .varint(7, 3)
        .time(8, TIMESTAMP, 0)
        .pair(11, "a", "b")
        .message(13, owner)
        .message(17, managed);
    let spec = new()
        .bytes(1, "n")
        .varint(2, 40)
        .time(3, TIMESTAMP, 0)
        .time(4, TIMESTAMP, 123_456_000)
        .varint(5, 2)
        .bytes(6, "OldestEmulationVersion");
    new().message(1, meta).message(2, spec)
}

fn applied<T: WatchedObject>(frame: Bytes) -> T {
    match read_frame::<T>(frame) {
        Ok(WatchLine::Applied(object)) => object,
        other => panic!("{:?}", other.map(|_| "something else")),
    }
}

fn from_json<T: WatchedObject>(object: &str) -> T {
    let line = format!("{{\"type\":\"ADDED\",\"object\":{object}}}");
    match read_line::<T>(line.as_bytes()) {
        Ok(WatchLine::Applied(object)) => object,
        other => panic!("{:?}", other.map(|_| "something else")),
    }
}

#[test]
fn a_lease() {
    let same: Renewal = from_json(
        r#"{"metadata":{"name":"n","namespace":"kube-node-lease","uid":"u","resourceVersion":"12",
            "generation":3,"creationTimestamp":"2026-11-15T23:40:25Z","labels":{"a":"b"},
            "ownerReferences":[{"kind":"Node","name":"n","uid":"nu","apiVersion":"v1",
              "controller":true}]},
          "spec":{"holderIdentity":"n","leaseDurationSeconds":40,
            "acquireTime":"2026-11-15T23:40:25.000000Z","renewTime":"2026-11-15T23:40:25.123456Z",
            "leaseTransitions":2,"strategy":"OldestEmulationVersion"}}"#,
    );
    assert_eq!(applied::<Renewal>(event("MODIFIED", lease())), same);
    assert_eq!((same.name.as_str(), same.resource_version.as_str()), ("n", "12"));
    assert_eq!(
        same.renewed.map(ApiTime::to_micros_text).as_deref(),
        Some("2026-11-15T23:40:25.123456Z")
    );
    assert!(matches!(
        read_frame::<Renewal>(event("DELETED", lease())),
        Ok(WatchLine::Deleted(lease)) if lease == same
    ));
}

#[test]
fn a_node() {
    let meta = new()
        .bytes(1, "n")
        .bytes(5, "u")
        .bytes(6, "7")
        .time(8, TIMESTAMP, 0)
        .message(9, new())
        .pair(11, "topology.kubernetes.io/zone", "z")
        .pair(12, "note", "");
    let taint = new().bytes(1, "k").bytes(2, "v").bytes(3, "NoExecute").time(4, TIMESTAMP, 0);
    let spec = new()
        .bytes(1, "10.0.0.0/24")
        .bytes(3, "p")
        .varint(4, 1)
        .message(5, taint)
        .bytes(7, "10.0.0.0/24")
        .bytes(7, "fd00::/64");
    let condition = new()
        .bytes(1, "Ready")
        .bytes(2, "True")
        .time(3, TIMESTAMP, 0)
        .time(4, TIMESTAMP - 1, 0)
        .bytes(5, "KubeletReady")
        .bytes(6, "posting");
    let status = new()
        .message(1, new().pair(1, "cpu", "2"))
        .message(4, condition)
        .message(5, new().bytes(1, "InternalIP").bytes(2, "10.0.0.1"))
        .message(8, new().bytes(1, "an/image").varint(2, 5));
    let node = new().message(1, meta).message(2, spec).message(3, status);
    let same: Node = from_json(
        r#"{"metadata":{"name":"n","uid":"u","resourceVersion":"7",
            "creationTimestamp":"2026-11-15T23:40:25Z",
            "labels":{"topology.kubernetes.io/zone":"z"},"annotations":{"note":""}},
          "spec":{"podCIDR":"10.0.0.0/24","podCIDRs":["10.0.0.0/24","fd00::/64"],
            "providerID":"p","unschedulable":true,
            "taints":[{"key":"k","value":"v","effect":"NoExecute",
              "timeAdded":"2026-11-15T23:40:25Z"}]},
          "status":{"conditions":[{"type":"Ready","status":"True",
              "lastHeartbeatTime":"2026-11-15T23:40:25Z",
              "lastTransitionTime":"2026-11-15T23:40:24Z",
              "reason":"KubeletReady","message":"posting"}],
            "addresses":[{"type":"InternalIP","address":"10.0.0.1"}]}}"#,
    );
    assert_eq!(applied::<Node>(event("ADDED", node)), same);
}

#[test]
fn a_pod() {
    let meta = new()
        .bytes(1, "p")
        .bytes(3, "d")
        .bytes(5, "u")
        .bytes(6, "7")
        .time(8, TIMESTAMP, 0)
        .time(9, TIMESTAMP + 1, 0)
        .varint(10, 30);
    let toleration = new().bytes(1, "k").bytes(2, "Exists").bytes(4, "NoExecute").varint(5, 300);
    let odd = new().bytes(2, "Equal").bytes(3, "v").varint(5, (-1_i64).cast_unsigned());
    let spec = new()
        .message(2, new().bytes(1, "container"))
        .bytes(10, "n")
        .message(22, toleration)
        .message(22, odd);
    let condition = new()
        .bytes(1, "Ready")
        .bytes(2, "False")
        .time(3, 5, 0)
        .time(4, TIMESTAMP, 0)
        .bytes(5, "r")
        .bytes(6, "m")
        .varint(7, 1);
    let status = new().bytes(1, "Failed").message(2, condition).bytes(3, "no").bytes(4, "Evicted");
    let pod = new().message(1, meta).message(2, spec).message(3, status);
    let same: Pod = from_json(
        r#"{"metadata":{"name":"p","namespace":"d","uid":"u","resourceVersion":"7",
            "creationTimestamp":"2026-11-15T23:40:25Z",
            "deletionTimestamp":"2026-11-15T23:40:26Z","deletionGracePeriodSeconds":30},
          "spec":{"nodeName":"n","tolerations":[
            {"key":"k","operator":"Exists","effect":"NoExecute","tolerationSeconds":300},
            {"operator":"Equal","value":"v","tolerationSeconds":-1}]},
          "status":{"phase":"Failed","reason":"Evicted","message":"no","conditions":[
            {"type":"Ready","status":"False","lastTransitionTime":"2026-11-15T23:40:25Z",
             "reason":"r","message":"m"}]}}"#,
    );
    assert_eq!(applied::<Pod>(event("ADDED", pod)), same);
}

#[test]
fn invalid_envelopes_are_errors_and_undecodable_objects_are_unreadable() {
    let bookmark = event("BOOKMARK", new().message(1, new().bytes(6, "99")));
    assert!(matches!(
        read_frame::<Renewal>(bookmark),
        Ok(WatchLine::Bookmark { version }) if version == "99"
    ));
    let status = new().bytes(2, "Failure").bytes(3, "old").bytes(4, "Expired").varint(6, 410);
    let Ok(WatchLine::Failed(status)) = read_frame::<Renewal>(event("ERROR", status)) else {
        panic!("no failure")
    };
    let error = status.into_error("WATCH", 410, None);
    assert!(matches!(error, ports::ClusterApiError::Expired { message, .. } if message == "old"));
    // A varint where the spec belongs.
    let odd = new().message(1, new().bytes(1, "p").bytes(3, "d").bytes(6, "5")).varint(2, 7);
    let Ok(WatchLine::Unreadable { object, version, .. }) = read_frame::<Pod>(event("ADDED", odd))
    else {
        panic!("readable")
    };
    assert_eq!((object.as_str(), version.as_str()), ("pods/d/p", "5"));
    for garbage in [&b"garbage"[..], b"\x0a", b"", b"\x12\x02\x0a\x00", b"\xff\xff\xff\xff"] {
        assert!(read_frame::<Pod>(Bytes::from_static(garbage)).is_err(), "{garbage:?}");
    }
}

#[test]
fn a_page() {
    let broken = new().message(1, new().bytes(1, "b")).varint(2, 7);
    let meta = new().bytes(2, "8").bytes(3, "t").varint(4, 10);
    let list = new().message(1, meta).message(2, lease()).message(2, broken).message(2, lease());
    let page: ListPage<Renewal> = read_page(enveloped(list)).expect("a page");
    assert_eq!((page.version.as_str(), page.token.as_str()), ("8", "t"));
    let names: Vec<&str> = page.objects.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["n", "n"]);
    assert_eq!(page.unreadable[0].object, "leases/b");
    assert!(read_page::<Renewal>(Bytes::from_static(b"k8s\0\xff")).is_err());
}
