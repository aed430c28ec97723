//! A real control plane, hollow nodes and our controller, and the queries of the tests.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use node_testkit::bed::Bed;
use node_testkit::parts;
use node_testkit::start::RunningPart;
use ports::ClusterApi as _;
use ports::cluster_api::{Deletion, ObjectPath, Patch, PatchKind};
use ports::cluster_objects::{Lease, Node, Pod};
use real_tests::node_controller::audit::Audit;
use real_tests::node_controller::cluster::{TestCluster, USER};
use real_tests::node_controller::hollow::{HollowNodePool, NewNode, now};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

pub(crate) const GRACE: Duration = Duration::from_secs(6);
/// The heartbeat interval of hollow nodes, and the one for shorter grace periods.
const BEAT: Duration = Duration::from_secs(1);
const QUICK_BEAT: Duration = Duration::from_millis(500);

/// The taints of a lost node.
pub(crate) const LOST: [&str; 2] = ["unreachable:NoExecute", "unreachable:NoSchedule"];

/// Flags with short periods.
pub(crate) const QUICK: &[&str] = &[
    "--node-monitor-period=1s",
    "--node-monitor-grace-period=6s",
    "--node-startup-grace-period=8s",
    "--node-eviction-rate=5",
    "--kube-api-qps=200",
    "--kube-api-burst=400",
    "--leader-elect-lease-duration=6s",
    "--leader-elect-renew-deadline=4s",
    "--leader-elect-retry-period=1s",
];

pub(crate) struct ClusterTest<'a> {
    bed: &'a Bed,
    keelson: PathBuf,
    pub(crate) cluster: TestCluster,
    pub(crate) hollow: HollowNodePool,
    pub(crate) runtime: Runtime,
}

impl<'a> ClusterTest<'a> {
    pub(crate) fn new(bed: &'a Bed, keelson: &Path) -> Result<Self> {
        Self::with(bed, keelson, BEAT, || TestCluster::start(bed))
    }

    /// The same, with an audit log of these users' writes, and a short heartbeat interval.
    pub(crate) fn audited(bed: &'a Bed, keelson: &Path, users: &[String]) -> Result<Self> {
        Self::with(bed, keelson, QUICK_BEAT, || TestCluster::start_audited(bed, users))
    }

    fn with(
        bed: &'a Bed,
        keelson: &Path,
        heartbeat: Duration,
        start: impl FnOnce() -> Result<TestCluster>,
    ) -> Result<Self> {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let cluster = runtime.block_on(async { start() })?;
        let hollow = HollowNodePool::new(cluster.client.clone(), heartbeat);
        runtime.spawn(hollow.clone().heartbeat());
        Ok(Self { bed, keelson: keelson.to_owned(), cluster, hollow, runtime })
    }

    pub(crate) fn join(&self, nodes: &[&str], zone: &str) -> Result<()> {
        let forms = nodes.iter().map(|name| NewNode::in_zone(name, zone)).collect();
        self.runtime.block_on(self.hollow.register(forms))
    }

    /// Starts a controller; its name distinguishes its log and its socket.
    pub(crate) fn controller(&self, name: &str, flags: &[&str]) -> Result<RunningPart> {
        self.controller_by(name, &self.cluster.plane.user_kubeconfig(USER)?, flags)
    }

    /// The same with its own kubeconfig.
    pub(crate) fn controller_by(
        &self,
        name: &str,
        kubeconfig: &Path,
        flags: &[&str],
    ) -> Result<RunningPart> {
        RunningPart::start(self.bed, name, &mut self.command(name, kubeconfig, flags))
    }

    /// A controller that dies at a crash point.
    pub(crate) fn dying_controller(
        &self,
        name: &str,
        flags: &[&str],
        point: &str,
    ) -> Result<RunningPart> {
        let kubeconfig = self.cluster.plane.user_kubeconfig(USER)?;
        let mut command = self.command(name, &kubeconfig, flags);
        RunningPart::start(self.bed, name, command.env("KEELSON_CRASH_AT", point))
    }

    fn command(&self, name: &str, kubeconfig: &Path, flags: &[&str]) -> Command {
        let mut command = Command::new(&self.keelson);
        command
            .arg("node-controller")
            .arg("--secure-port=0")
            .arg(format!("--explain-socket={}", self.socket(name).display()))
            .arg(format!("--kubeconfig={}", kubeconfig.display()))
            .args(QUICK)
            .args(flags);
        command
    }

    /// Starts the real kube-controller-manager with the administrator's permissions.
    pub(crate) fn reference(&self, name: &str, flags: &[&str]) -> Result<RunningPart> {
        let program = "kube-controller-manager";
        let mut command = Command::new(parts::program(program, program)?);
        let kubeconfig = self.cluster.plane.admin_kubeconfig();
        command.arg(format!("--kubeconfig={}", kubeconfig.display())).arg("--secure-port=0");
        RunningPart::start(self.bed, name, command.args(flags))
    }

    pub(crate) fn audit(&self) -> Result<&Audit> {
        self.cluster.audit.as_ref().context("nobody writes down what is written")
    }

    fn socket(&self, name: &str) -> PathBuf {
        self.bed.dir().join(format!("{name}.sock"))
    }

    /// A controller's `explain` output for a node.
    pub(crate) fn explain(&self, controller: &str, node: &str) -> Result<String> {
        let mut command = Command::new(&self.keelson);
        command.args(["node-controller", "explain", node, "--explain-socket"]);
        let output = command.arg(self.socket(controller)).output()?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8(output.stdout)?)
    }

    /// The names of all nodes.
    pub(crate) fn all_nodes(&self) -> Result<Vec<String>> {
        let names = self.cluster.plane.kubectl(&["get", "nodes", "--output", "name"])?;
        Ok(names.lines().map(|name| name.trim_start_matches("node/").to_owned()).collect())
    }

    pub(crate) fn node(&self, name: &str) -> Result<Node> {
        self.read(&ObjectPath::node(name))
    }

    pub(crate) fn pod(&self, name: &str) -> Result<Option<Pod>> {
        match self.runtime.block_on(self.cluster.client.read(&ObjectPath::pod("default", name))) {
            Ok(stored) => Ok(Some(serde_json::from_slice(&stored.json)?)),
            Err(ports::ClusterApiError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn read<T: serde::de::DeserializeOwned>(&self, path: &ObjectPath) -> Result<T> {
        let stored = self.runtime.block_on(self.cluster.client.read(path))?;
        Ok(serde_json::from_slice(&stored.json)?)
    }

    pub(crate) fn lease(&self, namespace: &str, name: &str) -> Result<Lease> {
        Ok(self.runtime.block_on(self.cluster.client.read_lease(namespace, name))?)
    }

    pub(crate) fn holder(&self) -> String {
        let lease = self.lease("kube-system", "keelson-node-controller");
        lease.ok().and_then(|lease| lease.spec.holder_identity).unwrap_or_default()
    }

    pub(crate) fn ready(&self, name: &str) -> Result<String> {
        let node = self.node(name)?;
        let ready = node.status.conditions.into_iter().find(|it| it.kind == "Ready");
        Ok(ready.context("no Ready condition")?.status)
    }

    /// Taints as `key:effect`, without the node.kubernetes.io prefix, sorted.
    pub(crate) fn taints(&self, name: &str) -> Result<Vec<String>> {
        let node = self.node(name)?;
        let mut taints: Vec<String> = node
            .spec
            .taints
            .iter()
            .map(|taint| {
                let key = taint.key.trim_start_matches("node.kubernetes.io/");
                format!("{key}:{}", taint.effect)
            })
            .collect();
        taints.sort();
        Ok(taints)
    }

    /// A pod on a node with a Ready status, as if a kubelet ran it.
    pub(crate) fn run_pod(&self, name: &str, node: &str, tolerations: &Value) -> Result<()> {
        let path = ObjectPath::pod("default", name);
        let body = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {
                "nodeName": node,
                "terminationGracePeriodSeconds": 3600,
                "containers": [{"name": "c", "image": "nothing"}],
                "tolerations": tolerations,
            },
        });
        let client = &self.cluster.client;
        self.runtime.block_on(client.create(&path, body.to_string().into_bytes()))?;
        let at = now().to_seconds_text();
        let status = json!({"status": {"phase": "Running", "conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": at},
        ]}});
        self.patch(&path, true, &status)
    }

    /// A pod that was never bound to a node, and whose deletion waits for a finalizer.
    pub(crate) fn end_unbound_pod(&self, name: &str) -> Result<()> {
        let path = ObjectPath::pod("default", name);
        let body = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "default", "finalizers": ["example.com/hold"]},
            "spec": {"containers": [{"name": "c", "image": "nothing"}]},
        });
        let client = &self.cluster.client;
        self.runtime.block_on(client.create(&path, body.to_string().into_bytes()))?;
        Ok(self.runtime.block_on(client.delete(&path, Deletion::default()))?)
    }

    pub(crate) fn patch(&self, path: &ObjectPath, status: bool, body: &Value) -> Result<()> {
        let patch = Patch {
            kind: PatchKind::StrategicMerge,
            subresource: status.then_some("status".into()),
            body: body.to_string().into_bytes(),
        };
        self.runtime.block_on(self.cluster.client.patch(path, patch))?;
        Ok(())
    }

    /// Adds a taint with kubectl.
    pub(crate) fn taint(&self, node: &str, taint: &str) -> Result<()> {
        self.cluster.plane.kubectl(&["taint", "nodes", node, taint]).map(|_| ())
    }

    /// Creates objects with kubectl.
    pub(crate) fn make(&self, name: &str, objects: &Value) -> Result<()> {
        let file = self.file(&format!("{name}.json"));
        std::fs::write(&file, objects.to_string())?;
        self.cluster.plane.kubectl(&["create", "--filename", &file.to_string_lossy()]).map(|_| ())
    }

    /// A file in the test's own directory.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.bed.dir().join(name)
    }

    /// A node without heartbeats, with this spec.
    pub(crate) fn mute_node(&self, name: &str, spec: &Value) -> Result<()> {
        let body = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": spec,
        });
        let path = ObjectPath::node(name);
        self.runtime.block_on(self.cluster.client.create(&path, body.to_string().into_bytes()))?;
        Ok(())
    }

    pub(crate) fn delete_node(&self, name: &str) -> Result<()> {
        let path = ObjectPath::node(name);
        Ok(self.runtime.block_on(self.cluster.client.delete(&path, Deletion::default()))?)
    }

    /// Whether a pod exists and is not being deleted.
    pub(crate) fn is_kept(&self, name: &str) -> Result<bool> {
        let pod = self.pod(name)?;
        Ok(pod.is_some_and(|pod| pod.metadata.deletion_timestamp.is_none()))
    }

    /// Whether a pod's status is Ready.
    pub(crate) fn is_pod_ready(&self, name: &str) -> Result<bool> {
        let conditions = self.pod(name)?.context("no such pod")?.status.conditions;
        Ok(conditions.iter().any(|it| it.kind == "Ready" && it.status == "True"))
    }

    /// Reasons of events about an object.
    pub(crate) fn reasons(&self, name: &str) -> Result<String> {
        let selector = format!("--field-selector=involvedObject.name={name}");
        let path = "jsonpath={range .items[*]}{.reason}{\"\\n\"}{end}";
        let plane = &self.cluster.plane;
        plane.kubectl(&["get", "events", "--all-namespaces", &selector, "--output", path])
    }

    /// Waits until the condition holds; returns how long that took.
    pub(crate) fn until(
        &self,
        what: &str,
        limit: Duration,
        holds: impl Fn() -> Result<bool>,
    ) -> Result<Duration> {
        // Nothing is shown by being quick here, and a slow machine is no failure.
        let limit = limit.max(Duration::from_secs(30));
        let began = Instant::now();
        loop {
            // A question that fails meanwhile is asked again: the API server may be away.
            let answer = holds();
            if matches!(answer, Ok(true)) {
                return Ok(began.elapsed());
            }
            if began.elapsed() > limit {
                bail!("{what}: not within {limit:?}; the last answer was {answer:?}");
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Checks that the condition holds for the whole time.
    pub(crate) fn stays(
        &self,
        what: &str,
        span: Duration,
        holds: impl Fn() -> Result<bool>,
    ) -> Result<()> {
        let began = Instant::now();
        while began.elapsed() < span {
            ensure!(holds()?, "{what}: no longer after {:?}", began.elapsed());
            std::thread::sleep(Duration::from_millis(200));
        }
        Ok(())
    }
}

pub(crate) fn signal(process: &RunningPart, signal: Signal) -> Result<()> {
    let id = Pid::from_raw(i32::try_from(process.process_id())?).context("a process")?;
    Ok(kill_process(id, signal)?)
}

pub(crate) fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// A toleration of every NoExecute taint for this long.
pub(crate) fn bears(seconds: Option<i64>) -> Value {
    let mut all = json!({"operator": "Exists", "effect": "NoExecute"});
    if let Some(seconds) = seconds {
        all["tolerationSeconds"] = json!(seconds);
    }
    json!([all])
}
