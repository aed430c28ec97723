//! A faulty API server: a proxy before the real one that rejects every second write as a conflict,
//! lets every watch expire, and cuts connections after a write and before its response.
//!
//! Rule: what it passes on is the real API server's own. Faults depend on counts and times, not on
//! chance: of the writes to one object the first is rejected, the second goes through, and so on,
//! so that a client that retries succeeds. It counts the faults, so that a test can check that they
//! occurred.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::{Method, Request, Response, StatusCode};
use node_testkit::bed::Bed;
use node_testkit::start::CertificateSubject;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use super::api_server_proxy::{
    ApiServerProxy, ProxyBody, ReceivedFrames, RequestHandler, Upstream, is_watch, status,
    unchanged,
};
use super::cluster::{TestCluster, USER};
use super::watch_frames::{WatchEncoding, expired, expired_status};

/// How long a watch lasts before it expires.
const WATCH_LIFETIME: Duration = Duration::from_millis(700);
/// Every n-th watch expires before its first event.
const EXPIRE_EVERY: u32 = 3;
/// After every n-th accepted write the connection is cut instead of a response.
const CUT_EVERY: u32 = 5;

/// The faults that the proxy has injected.
#[derive(Debug, Default)]
pub struct InjectedFaults {
    /// The number of attempts to write each object.
    tries: Mutex<BTreeMap<String, u32>>,
    watches: AtomicU32,
    taken: AtomicU32,
    conflicts: AtomicU32,
    cuts: AtomicU32,
}

/// Number of faults of each kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FaultCounts {
    pub conflicts: u32,
    pub expired: u32,
    pub cuts: u32,
}

/// Starts such a proxy; it uses the controller's own credentials. Must be called within a tokio
/// runtime.
///
/// # Errors
/// When it cannot be started.
pub async fn open(bed: &Bed, cluster: &TestCluster) -> Result<(PathBuf, Arc<InjectedFaults>)> {
    let user = CertificateSubject { common_name: USER, ..CertificateSubject::default() };
    let files = cluster.plane.authority().issue("behind-faults", &user)?;
    let api_server_proxy = ApiServerProxy::open("faulty", cluster, &files).await?;
    let kubeconfig = api_server_proxy.kubeconfig(bed, cluster)?;
    let faults = Arc::new(InjectedFaults::default());
    tokio::spawn(api_server_proxy.serve(faults.clone()));
    Ok((kubeconfig, faults))
}

impl InjectedFaults {
    /// The faults so far.
    pub fn count(&self) -> FaultCounts {
        FaultCounts {
            conflicts: self.conflicts.load(Ordering::Relaxed),
            expired: self.watches.load(Ordering::Relaxed),
            cuts: self.cuts.load(Ordering::Relaxed),
        }
    }

    /// Whether this write of an object is one of those that are rejected.
    fn refuses(&self, object: &str) -> bool {
        let mut tries = self.tries.lock().unwrap_or_else(PoisonError::into_inner);
        let tried = tries.entry(object.to_owned()).or_default();
        *tried += 1;
        *tried % 2 == 1
    }
}

impl RequestHandler for InjectedFaults {
    async fn answer(
        self: Arc<Self>,
        mut upstream: Upstream,
        request: Request<Incoming>,
    ) -> Result<Option<Response<ProxyBody>>> {
        if request.method() != Method::GET {
            let object = request.uri().path().to_owned();
            if self.refuses(&object) {
                self.conflicts.fetch_add(1, Ordering::Relaxed);
                return Ok(Some(status(StatusCode::CONFLICT, &conflict(&object))));
            }
            let reply = upstream.ask(request).await?;
            if reply.status().is_success()
                && self.taken.fetch_add(1, Ordering::Relaxed) % CUT_EVERY == CUT_EVERY - 1
            {
                self.cuts.fetch_add(1, Ordering::Relaxed);
                return Ok(None);
            }
            return Ok(Some(unchanged(reply)));
        }
        if !is_watch(&request) {
            return Ok(Some(unchanged(upstream.ask(request).await?)));
        }
        if self.watches.fetch_add(1, Ordering::Relaxed) % EXPIRE_EVERY == EXPIRE_EVERY - 1 {
            return Ok(Some(status(StatusCode::GONE, &expired_status())));
        }
        let reply = upstream.ask(request).await?;
        if !reply.status().is_success() {
            return Ok(Some(unchanged(reply)));
        }
        let form = WatchEncoding::of(&reply);
        Ok(Some(reply.map(|body| expiring(body, form))))
    }
}

fn conflict(object: &str) -> serde_json::Value {
    let message = format!("{object}: the object has been modified");
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": "Conflict", "code": 409})
}

/// The real watch for a while, and then the status that its version has expired.
fn expiring(mut real: Incoming, form: WatchEncoding) -> ProxyBody {
    let (frames, received) = mpsc::channel::<Bytes>(256);
    let ends = Instant::now() + WATCH_LIFETIME;
    tokio::spawn(async move {
        let mut rest = BytesMut::new();
        while let Ok(Some(Ok(frame))) = timeout_at(ends, real.frame()).await {
            let Ok(data) = frame.into_data() else { continue };
            rest.extend_from_slice(&data);
            // Whole frames only: the last word must not fall into the middle of one.
            while let Some(length) = form.whole_frame(&rest) {
                if frames.send(rest.split_to(length).freeze()).await.is_err() {
                    return;
                }
            }
        }
        // The client may have closed the watch.
        let _ = frames.send(expired(form)).await;
    });
    ReceivedFrames(received).boxed()
}
