//! An API server with replayed heartbeats: a proxy in front of the real one that adds lease
//! renewals to the watches of leases.
//!
//! Rule: everything else is the real API server's own: lists, watches of nodes and pods, writes.
//! The renewals are as the real one would send them, in JSON or protobuf as the client requested,
//! one per node in each period. So thousands of nodes cost the machine no etcd and no writes. The
//! proxy authenticates as the administrator for all clients.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::{Method, Request, Response};
use node_testkit::bed::Bed;
use ports::ApiTime;
use serde_json::json;
use tokio::sync::mpsc;

use super::api_server_proxy::{
    ApiServerProxy, ProxyBody, ReceivedFrames, RequestHandler, Upstream, is_watch, unchanged, whole,
};
use super::cluster::{ControllerUnderTest, TestCluster};
use super::hollow::{HollowNodePool, NewNode, now};
use super::load::{ControllerBenchResult, HeartbeatLoad};
use super::watch_frames::{WatchEncoding, renewal};

const ZONES: usize = 10;
const PODS_PER_NODE: usize = 1;
const HEARTBEAT: Duration = Duration::from_secs(10);
/// Number of steps of a period.
const SLICES: u32 = 100;

type RenewTimes = Arc<Mutex<BTreeMap<String, ApiTime>>>;

/// Runs both controllers behind the proxy.
///
/// # Errors
/// When a part fails.
pub async fn run(
    bed: &Bed,
    subjects: &[ControllerUnderTest; 2],
    count: usize,
) -> Result<[ControllerBenchResult; 2]> {
    let mut cluster = TestCluster::start(bed)?;
    let hollow = HollowNodePool::new(cluster.client.clone(), HEARTBEAT);
    let forms = (0..count)
        .map(|number| NewNode::in_zone(&format!("n{number}"), &format!("z{}", number % ZONES)));
    eprintln!("making {count} nodes");
    hollow.register(forms.collect()).await?;
    let load = HeartbeatLoad::new(&cluster, hollow.clone(), ZONES);
    load.make_pods(count, PODS_PER_NODE).await?;
    load.settle(bed, &cluster, &subjects[0]).await?;
    let api_server_proxy =
        ApiServerProxy::open("replay", &cluster, cluster.plane.admin_files()).await?;
    cluster.through = Some(api_server_proxy.kubeconfig(bed, &cluster)?);
    tokio::spawn(
        api_server_proxy.serve(Arc::new(Replay { hollow, renew_times: RenewTimes::default() })),
    );
    let mut numbers = Vec::new();
    for subject in subjects {
        numbers.push(load.measure(bed, &cluster, subject).await.context(subject.name())?);
    }
    let numbers: Result<[ControllerBenchResult; 2], _> = numbers.try_into();
    numbers.ok().context("two subjects")
}

struct Replay {
    hollow: HollowNodePool,
    /// The last replayed renewal of each node, for clients that GET a lease.
    renew_times: RenewTimes,
}

impl RequestHandler for Replay {
    async fn answer(
        self: Arc<Self>,
        mut upstream: Upstream,
        request: Request<Incoming>,
    ) -> Result<Option<Response<ProxyBody>>> {
        let (file, watches) = (request.uri().path().to_owned(), is_watch(&request));
        // A leader's own lease is watched by name.
        let by_name = request.uri().query().is_some_and(|it| it.contains("metadata.name"));
        let leases = file.ends_with("/leases") && !by_name;
        let read = (request.method() == Method::GET)
            .then(|| file.split_once("/kube-node-lease/leases/").map(|(_, node)| node.to_owned()))
            .flatten();
        let reply = upstream.ask(request).await?;
        if let Some(node) = read {
            return self.as_replayed(reply, &node).await.map(Some);
        }
        if !(watches && leases && reply.status().is_success()) {
            return Ok(Some(unchanged(reply)));
        }
        let form = WatchEncoding::of(&reply);
        let (hollow, renew_times) = (self.hollow.clone(), self.renew_times.clone());
        Ok(Some(reply.map(|body| splice(hollow, renew_times, body, form))))
    }
}

impl Replay {
    /// The response to a GET of a lease, as if the replayed renewals had been written.
    async fn as_replayed(
        &self,
        reply: Response<Incoming>,
        node: &str,
    ) -> Result<Response<ProxyBody>> {
        let renew_times =
            self.renew_times.lock().unwrap_or_else(PoisonError::into_inner).get(node).copied();
        let (mut head, body) = reply.into_parts();
        let bytes = body.collect().await?.to_bytes();
        let bytes = match (renew_times, serde_json::from_slice::<serde_json::Value>(&bytes)) {
            (Some(time), Ok(mut lease)) => {
                lease["spec"]["renewTime"] = json!(time.to_micros_text());
                Bytes::from(lease.to_string())
            }
            // Not one of our nodes, or not JSON: the controllers do not request this.
            _ => bytes,
        };
        head.headers.remove("content-length");
        Ok(Response::from_parts(head, whole(bytes)))
    }
}

/// The real watch with renewals between its frames.
fn splice(
    hollow: HollowNodePool,
    renew_times: RenewTimes,
    mut real: Incoming,
    form: WatchEncoding,
) -> ProxyBody {
    let (frames, received) = mpsc::channel::<Bytes>(256);
    let renewals = frames.clone();
    tokio::spawn(async move {
        let mut rest = BytesMut::new();
        while let Some(Ok(frame)) = real.frame().await {
            let Ok(data) = frame.into_data() else { continue };
            rest.extend_from_slice(&data);
            // Whole frames only, so that a renewal never falls into the middle of one.
            while let Some(length) = form.whole_frame(&rest) {
                if frames.send(rest.split_to(length).freeze()).await.is_err() {
                    return;
                }
            }
        }
    });
    tokio::spawn(replay(hollow, renew_times, renewals, form));
    ReceivedFrames(received).boxed()
}

/// Sends one renewal per node and period, evenly, until the receiver is dropped.
async fn replay(
    hollow: HollowNodePool,
    renew_times: RenewTimes,
    frames: mpsc::Sender<Bytes>,
    form: WatchEncoding,
) {
    let mut slices = tokio::time::interval(HEARTBEAT / SLICES);
    // What was listed must be known before it changes.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let mut slice = 0;
    loop {
        slices.tick().await;
        let nodes = hollow.share(slice, SLICES);
        slice = (slice + 1) % SLICES;
        for node in nodes {
            let time = now();
            let frame = renewal(form, &node, time);
            renew_times.lock().unwrap_or_else(PoisonError::into_inner).insert(node.clone(), time);
            if frames.send(frame).await.is_err() {
                return;
            }
            hollow.mark_heartbeat(&node);
        }
    }
}
