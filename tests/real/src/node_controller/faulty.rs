//! The real API server as it is on its worst day: a door before it that refuses every second write
//! as a conflict, lets every watch expire, and cuts connections after the write and before its
//! answer.
//!
//! Rule: what it lets through is the real API server's own. Faults come by count and by time, not by
//! chance: of the writes to one object the first is refused, the second goes through, and so on, so
//! that whoever tries again gets there. Counts what it did, so that a test can say that it did.

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
use node_testkit::start::Subject;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use super::cluster::{Cluster, USER};
use super::front::{Front, Keeper, ReceivedFrames, Reply, Upstream, is_watch, status, unchanged};
use super::watch_frames::{Form, expired, expired_status};

/// How long a watch lasts before it expires.
const WATCH_LASTS: Duration = Duration::from_millis(700);
/// Every so many watches expire before they begin.
const EXPIRED_AT_ONCE: u32 = 3;
/// After every so many writes that were taken the connection is cut instead of an answer.
const CUT: u32 = 5;

/// The door's faults so far.
#[derive(Debug, Default)]
pub struct Faults {
    /// How often each object was to be written.
    tries: Mutex<BTreeMap<String, u32>>,
    watches: AtomicU32,
    taken: AtomicU32,
    conflicts: AtomicU32,
    cuts: AtomicU32,
}

/// How many faults of each kind there were.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Count {
    pub conflicts: u32,
    pub expired: u32,
    pub cuts: u32,
}

/// Opens such a door; the controller's own rights are behind it. Needs tokio.
///
/// # Errors
/// When it cannot be opened.
pub async fn open(bed: &Bed, cluster: &Cluster) -> Result<(PathBuf, Arc<Faults>)> {
    let user = Subject { common_name: USER, ..Subject::default() };
    let files = cluster.plane.authority().issue("behind-faults", &user)?;
    let front = Front::open("faulty", cluster, &files).await?;
    let kubeconfig = front.kubeconfig(bed, cluster)?;
    let faults = Arc::new(Faults::default());
    tokio::spawn(front.serve(faults.clone()));
    Ok((kubeconfig, faults))
}

impl Faults {
    /// So far.
    pub fn count(&self) -> Count {
        Count {
            conflicts: self.conflicts.load(Ordering::Relaxed),
            expired: self.watches.load(Ordering::Relaxed),
            cuts: self.cuts.load(Ordering::Relaxed),
        }
    }

    /// Whether this write of an object is one of those that are refused.
    fn refuses(&self, object: &str) -> bool {
        let mut tries = self.tries.lock().unwrap_or_else(PoisonError::into_inner);
        let tried = tries.entry(object.to_owned()).or_default();
        *tried += 1;
        *tried % 2 == 1
    }
}

impl Keeper for Faults {
    async fn answer(
        self: Arc<Self>,
        mut upstream: Upstream,
        request: Request<Incoming>,
    ) -> Result<Option<Response<Reply>>> {
        if request.method() != Method::GET {
            let object = request.uri().path().to_owned();
            if self.refuses(&object) {
                self.conflicts.fetch_add(1, Ordering::Relaxed);
                return Ok(Some(status(StatusCode::CONFLICT, &conflict(&object))));
            }
            let reply = upstream.ask(request).await?;
            if reply.status().is_success()
                && self.taken.fetch_add(1, Ordering::Relaxed) % CUT == CUT - 1
            {
                self.cuts.fetch_add(1, Ordering::Relaxed);
                return Ok(None);
            }
            return Ok(Some(unchanged(reply)));
        }
        if !is_watch(&request) {
            return Ok(Some(unchanged(upstream.ask(request).await?)));
        }
        if self.watches.fetch_add(1, Ordering::Relaxed) % EXPIRED_AT_ONCE == EXPIRED_AT_ONCE - 1 {
            return Ok(Some(status(StatusCode::GONE, &expired_status())));
        }
        let reply = upstream.ask(request).await?;
        if !reply.status().is_success() {
            return Ok(Some(unchanged(reply)));
        }
        let form = Form::of(&reply);
        Ok(Some(reply.map(|body| expiring(body, form))))
    }
}

fn conflict(object: &str) -> serde_json::Value {
    let message = format!("{object}: the object has been modified");
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": "Conflict", "code": 409})
}

/// The real watch for a while, and then the word that its version has expired.
fn expiring(mut real: Incoming, form: Form) -> Reply {
    let (frames, received) = mpsc::channel::<Bytes>(256);
    let ends = Instant::now() + WATCH_LASTS;
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
        // Whoever watched may be gone.
        let _ = frames.send(expired(form)).await;
    });
    ReceivedFrames(received).boxed()
}
