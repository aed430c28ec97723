//! Hollow nodes: nodes that are only a Node object, a status and a lease.
//!
//! Rule: they behave exactly as a kubelet's heartbeat does as an API server sees it (a lease
//! renewed every period, a status when something changed), from one process with few tasks, so that
//! a thousand of them cost the machine as little as possible. They run no pods. On command they
//! stop and resume their heartbeats.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use apiserver_client::ApiClient;
use ports::cluster_api::{ObjectPath, Patch, PatchKind};
use ports::cluster_objects::{Lease, LeaseSpec, ObjectMeta};
use ports::{ApiTime, ClusterApi, ClusterApiError};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Instant;

const LEASE_NAMESPACE: &str = "kube-node-lease";
/// Maximum number of concurrent requests.
const AT_ONCE: usize = 24;
/// Number of steps that the renewals of a period are spread over.
const SLICES: u32 = 20;

/// One node's heartbeat.
#[derive(Debug, Clone)]
struct HeartbeatState {
    is_active: bool,
    /// When the lease was last renewed.
    last: Option<Instant>,
    /// By how many seconds its clock is ahead of the host's.
    clock_offset: i64,
}

/// A set of hollow nodes. Clones share it.
#[derive(Debug, Clone)]
pub struct HollowNodePool {
    client: ApiClient,
    period: Duration,
    heartbeats: Arc<Mutex<BTreeMap<String, HeartbeatState>>>,
}

/// The properties of a new node.
#[derive(Debug, Clone, Default)]
pub struct NewNode {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    /// Whether it posts a status and has a lease; a node without never had a heartbeat.
    pub speaks: bool,
}

impl NewNode {
    /// A node with heartbeats in a zone.
    pub fn in_zone(name: &str, zone: &str) -> Self {
        let labels = [
            ("kubernetes.io/hostname", name),
            ("kubernetes.io/os", "linux"),
            ("kubernetes.io/arch", "amd64"),
            ("topology.kubernetes.io/region", "r"),
            ("topology.kubernetes.io/zone", zone),
        ];
        let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
        Self { name: name.to_owned(), labels: labels.into(), speaks: true }
    }
}

/// The current time in the API's format.
pub fn now() -> ApiTime {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    ApiTime::from_nanos(i64::try_from(since.as_nanos()).unwrap_or(i64::MAX))
}

impl HollowNodePool {
    /// An empty set; leases will be renewed once per period.
    pub fn new(client: ApiClient, period: Duration) -> Self {
        Self { client, period, heartbeats: Arc::default() }
    }

    /// Creates nodes, several at a time.
    ///
    /// # Errors
    /// When the API server rejects one.
    pub async fn register(&self, forms: Vec<NewNode>) -> Result<()> {
        let turns = Arc::new(Semaphore::new(AT_ONCE));
        let mut tasks = JoinSet::new();
        for form in forms {
            let (this, turns) = (self.clone(), turns.clone());
            tasks.spawn(async move {
                let _turn = turns.acquire().await?;
                this.register_one(form).await
            });
        }
        while let Some(done) = tasks.join_next().await {
            done??;
        }
        Ok(())
    }

    async fn register_one(&self, form: NewNode) -> Result<()> {
        let NewNode { name, labels, speaks } = form;
        let body = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "labels": labels},
        });
        let path = ObjectPath::node(&name);
        self.client.create(&path, body.to_string().into_bytes()).await.context("make a node")?;
        if !speaks {
            return Ok(());
        }
        self.post(&name, &READY).await?;
        let lease = Lease {
            metadata: ObjectMeta {
                name: name.clone(),
                namespace: LEASE_NAMESPACE.to_owned(),
                ..ObjectMeta::default()
            },
            spec: LeaseSpec {
                holder_identity: Some(name.clone()),
                lease_duration_seconds: Some(40),
                renew_time: Some(now()),
                ..LeaseSpec::default()
            },
        };
        match self.client.create_lease(&lease).await {
            Ok(_) | Err(ClusterApiError::AlreadyExists { .. }) => {}
            Err(error) => return Err(error).context("make a lease"),
        }
        self.heartbeats().insert(
            name,
            HeartbeatState { is_active: true, last: Some(Instant::now()), clock_offset: 0 },
        );
        Ok(())
    }

    fn heartbeats(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, HeartbeatState>> {
        self.heartbeats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets a node's clock: this many seconds ahead of the host's, or behind it.
    pub fn set_clock(&self, node: &str, clock_offset: i64) {
        if let Some(heart) = self.heartbeats().get_mut(node) {
            heart.clock_offset = clock_offset;
        }
    }

    /// The current time by a node's own clock.
    fn time_of(&self, node: &str) -> ApiTime {
        let clock_offset = self.heartbeats().get(node).map_or(0, |heart| heart.clock_offset);
        ApiTime::from_nanos(
            now().nanos().saturating_add(clock_offset.saturating_mul(1_000_000_000)),
        )
    }

    /// Posts conditions, as a kubelet does; those that are not named stay.
    ///
    /// # Errors
    /// When the API server rejects it.
    pub async fn post(&self, node: &str, conditions: &[(&str, &str)]) -> Result<()> {
        let time = self.time_of(node).to_seconds_text();
        let conditions: Vec<Value> = conditions
            .iter()
            .map(|(kind, status)| {
                let reason = if *kind == "Ready" { "KubeletPosts" } else { "KubeletHas" };
                json!({"type": kind, "status": status, "reason": reason, "message": "hollow",
                    "lastHeartbeatTime": time, "lastTransitionTime": time})
            })
            .collect();
        let body = json!({"status": {
            "conditions": conditions,
            "capacity": {"cpu": "4", "memory": "8Gi", "pods": "110"},
            "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"},
        }});
        let patch = Patch {
            kind: PatchKind::StrategicMerge,
            subresource: Some("status".into()),
            body: body.to_string().into_bytes(),
        };
        self.client.patch(&ObjectPath::node(node), patch).await.context("post a status")?;
        Ok(())
    }

    /// Stops the heartbeats of these nodes. Returns the time of each node's last one.
    pub fn stop_heartbeats(&self, nodes: &[&str]) -> BTreeMap<String, Instant> {
        let mut heartbeats = self.heartbeats();
        let mut last = BTreeMap::new();
        for node in nodes {
            if let Some(heart) = heartbeats.get_mut(*node) {
                heart.is_active = false;
                last.extend(heart.last.map(|at| ((*node).to_owned(), at)));
            }
        }
        last
    }

    /// Resumes the heartbeats of these nodes: a lease renewal at once, and a status that reports
    /// all conditions well.
    ///
    /// # Errors
    /// When the API server rejects it.
    pub async fn resume_heartbeats(&self, nodes: &[&str]) -> Result<()> {
        for node in nodes {
            if let Some(heart) = self.heartbeats().get_mut(*node) {
                heart.is_active = true;
            }
        }
        for node in nodes {
            self.renew((*node).to_owned()).await?;
            self.post(node, &READY).await?;
        }
        Ok(())
    }

    /// The nodes with heartbeats in one of `of` equal shares.
    pub(super) fn share(&self, share: u32, of: u32) -> Vec<String> {
        let heartbeats = self.heartbeats();
        let all = heartbeats.iter().skip(share as usize).step_by(of as usize);
        all.filter(|(_, heart)| heart.is_active).map(|(name, _)| name.clone()).collect()
    }

    /// Records that a node's heartbeat was sent by other means.
    pub(super) fn mark_heartbeat(&self, node: &str) {
        if let Some(heart) = self.heartbeats().get_mut(node) {
            heart.last = Some(Instant::now());
        }
    }

    /// How many nodes have heartbeats.
    pub fn beating(&self) -> usize {
        self.heartbeats().values().filter(|heart| heart.is_active).count()
    }

    async fn renew(&self, node: String) -> Result<(), ClusterApiError> {
        let body = json!({"spec": {"renewTime": self.time_of(&node).to_micros_text()}});
        let patch = Patch {
            kind: PatchKind::Merge,
            subresource: None,
            body: body.to_string().into_bytes(),
        };
        self.client.patch(&ObjectPath::lease(LEASE_NAMESPACE, &node), patch).await?;
        if let Some(heart) = self.heartbeats().get_mut(&node) {
            heart.last = Some(Instant::now());
        }
        Ok(())
    }

    /// Renews leases until it is dropped, spread over the period.
    pub async fn heartbeat(self) {
        let turns = Arc::new(Semaphore::new(AT_ONCE));
        let mut slices = tokio::time::interval(self.period / SLICES);
        let mut tasks = JoinSet::new();
        loop {
            slices.tick().await;
            while tasks.try_join_next().is_some() {}
            let due: Vec<String> = self
                .heartbeats()
                .iter()
                .filter(|(_, heart)| heart.is_active && heart.is_due(self.period))
                .map(|(name, _)| name.clone())
                .collect();
            // What is due within one slice, and no more: the rest comes in the next.
            let share = self.heartbeats().len().div_ceil(SLICES as usize) * 2;
            for node in due.into_iter().take(share.max(1)) {
                if let Some(heart) = self.heartbeats().get_mut(&node) {
                    heart.last = Some(Instant::now());
                }
                let (this, turns) = (self.clone(), turns.clone());
                tasks.spawn(async move {
                    if let Ok(_turn) = turns.acquire().await
                        && let Err(error) = this.renew(node).await
                    {
                        eprintln!("hollow: {error}");
                    }
                });
            }
        }
    }
}

impl HeartbeatState {
    fn is_due(&self, period: Duration) -> bool {
        self.last.is_none_or(|last| last.elapsed() + period / SLICES / 2 >= period)
    }
}

/// The conditions of a node without problems.
pub const READY: [(&str, &str); 5] = [
    ("Ready", "True"),
    ("MemoryPressure", "False"),
    ("DiskPressure", "False"),
    ("PIDPressure", "False"),
    ("NetworkUnavailable", "False"),
];
