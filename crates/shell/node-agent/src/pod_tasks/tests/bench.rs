//! An agent on fakes that can be stopped and restarted over the same runtime and disk.

use super::super::{PodDependencies, PodTaskInputs, start};
use super::cluster::ClusterFixture;
use super::device_fake::FakeDevices;
use crate::clock::AgentClock;
use crate::contents::ContentChangeStrategy;
use crate::images::PullLimits;
use crate::log_rotation::LogRotation;
use crate::loop_heartbeats::LoopHeartbeats;
use crate::pods::{CgroupSettings, PodPorts, PodSettings, ReservedCgroup};
use crate::runtime_watch::{RuntimeView, watch_runtime};
use crate::task_tree::TaskTree;
use container_setup::inputs::NodeSetupInputs;
use node_policy::admission::{NodeCapacity, NodeSupport};
use node_policy::credential_providers::CredentialPlugin;
use node_policy::garbage::DeadContainerLimits;
use node_policy::image_access::Verification;
use pod_desired::ManifestOptions;
use pod_lifecycle::PodLifecycleSettings;
use pod_manifest::PodGates;
use ports::local_api::{LocalApi, LocalEndpoint, LocalPod, LocalPodDetail};
use ports::pod_sources::SourceKind;
use ports::{ApiTime, EventSink, PortFuture};
use runtime_fake::{
    FakeContents, FakeCredentialPrograms, FakeHost, FakeKernelLog, FakePeriodicTasks, FakeRuntime,
    ScriptedManifests,
};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

pub(super) const START: i64 = 1_700_000_000_000_000_000;

/// Hands the agent's local API to the test.
#[derive(Clone, Default)]
struct ApiCapture(Arc<Mutex<Option<Arc<dyn LocalApi>>>>);

impl LocalEndpoint for ApiCapture {
    fn address(&self) -> String {
        "window".to_owned()
    }
    fn serve(&self, api: Arc<dyn LocalApi>) -> PortFuture<'_, String> {
        *self.0.lock().unwrap() = Some(api);
        Box::pin(std::future::pending())
    }
}

pub(super) struct AgentBench {
    pub(super) runtime: FakeRuntime,
    pub(super) host: FakeHost,
    /// None where it cannot be read.
    pub(super) kernel_log: Option<FakeKernelLog>,
    pub(super) script: ScriptedManifests,
    pub(super) limits: PullLimits,
    pub(super) programs: FakeCredentialPrograms,
    pub(super) contents: FakeContents,
    pub(super) content_changes: ContentChangeStrategy,
    pub(super) providers: Vec<CredentialPlugin>,
    pub(super) verification: Option<Verification>,
    pub(super) gates: PodGates,
    pub(super) max_pods: i64,
    /// As in `keelson run`, not as in a kubelet.
    pub(super) waits_for_ending: bool,
    pub(super) dead: DeadContainerLimits,
    pub(super) logs: Option<LogRotation>,
    pub(super) reserved: Vec<ReservedCgroup>,
    /// The file of `resolvConf`; empty for none.
    pub(super) resolv_conf: String,
    pub(super) clock: AgentClock,
    pub(super) loop_heartbeats: LoopHeartbeats,
    pub(super) periodic_tasks: FakePeriodicTasks,
    pub(super) kill_now: watch::Sender<bool>,
    /// None for a standalone node.
    pub(super) cluster: Option<ClusterFixture>,
    /// None for an agent that takes no plugins.
    pub(super) devices: Option<FakeDevices>,
    tree: Option<TaskTree>,
    api_capture: ApiCapture,
}

impl AgentBench {
    pub(super) fn new() -> Self {
        let clock = AgentClock::starting_at(ApiTime::from_nanos(START));
        let time = clock.clone();
        let runtime = FakeRuntime::new(move || time.now().nanos());
        runtime.add_image("i:1");
        Self {
            runtime,
            host: FakeHost::default(),
            kernel_log: None,
            script: ScriptedManifests::default(),
            limits: PullLimits { max_parallel: Some(1), per_second: 5, burst: 10 },
            programs: FakeCredentialPrograms::default(),
            contents: FakeContents::default(),
            content_changes: ContentChangeStrategy::Watch,
            providers: Vec::new(),
            verification: Some(Verification::ExceptPreloaded),
            gates: PodGates::default(),
            max_pods: 110,
            waits_for_ending: false,
            dead: DeadContainerLimits::default(),
            logs: None,
            reserved: Vec::new(),
            resolv_conf: String::new(),
            clock,
            loop_heartbeats: LoopHeartbeats::default(),
            periodic_tasks: FakePeriodicTasks::default(),
            kill_now: watch::Sender::new(false),
            cluster: None,
            devices: None,
            tree: None,
            api_capture: ApiCapture::default(),
        }
    }

    /// Starts an agent with the script's manifests.
    pub(super) fn begin(&mut self) {
        let runtime = Arc::new(self.runtime.clone());
        let ports = self.ports(&runtime);
        let lifecycle =
            PodLifecycleSettings { node_name: "n".to_owned(), ..PodLifecycleSettings::default() };
        let settings = PodSettings {
            reading: ManifestOptions { node_name: "n".to_owned(), gates: self.gates },
            lifecycle,
            setup: NodeSetupInputs {
                pod_logs_directory: "/logs".to_owned(),
                ..NodeSetupInputs::default()
            },
            resolv_conf: self.resolv_conf.clone(),
            room: NodeCapacity {
                name: "n".to_owned(),
                pods: self.max_pods,
                waits_for_terminating_pods: self.waits_for_ending,
                ..NodeCapacity::default()
            },
            cgroups: CgroupSettings {
                per_qos: true,
                root: Vec::new(),
                enforced: None,
                reserved: self.reserved.clone(),
            },
            content_changes: self.content_changes,
            pulls: self.limits.clone(),
            credential_providers: self.providers.clone(),
            image_verification: self.verification.clone(),
            root: "/node".to_owned(),
            dead: self.dead.clone(),
            abilities: NodeSupport::default(),
            user_namespace_ranges: Err("this node has no users for pods".to_owned()),
            logs: self.logs.clone(),
        };
        let cluster = self.cluster.as_ref().map(ClusterFixture::parts);
        let parts = PodDependencies {
            ports,
            settings,
            sources: vec![self.script.source(SourceKind::File)],
            oom_kills: self.kernel_log.as_ref().map(FakeKernelLog::read),
            events: cluster.as_ref().map(|cluster| cluster.events.clone() as Arc<dyn EventSink>),
            metric_sources: Vec::new(),
            local: Some(Arc::new(self.api_capture.clone())),
            cluster,
            port: None,
            plugins: self.devices.as_ref().map(FakeDevices::dependencies),
            kill_now: self.kill_now.subscribe(),
        };
        let mut tree = TaskTree::default();
        let (sender, view) = watch::channel(RuntimeView::default());
        let recheck = Arc::new(Notify::new());
        let captured = recheck.clone();
        let periodic_tasks: Arc<dyn ports::PeriodicTasks> = Arc::new(self.periodic_tasks.clone());
        tree.start("runtime-watch", move || {
            watch_runtime(
                runtime.clone(),
                sender.clone(),
                captured.clone(),
                Some(periodic_tasks.clone()),
            )
        });
        let loop_heartbeats = LoopHeartbeats::default();
        let inputs = PodTaskInputs {
            runtime_view: &view,
            recheck,
            clock: &self.clock,
            loop_heartbeats: &loop_heartbeats,
            checks: Arc::new([]),
        };
        start(&mut tree, parts, inputs);
        self.loop_heartbeats = loop_heartbeats;
        self.tree = Some(tree);
    }

    fn ports(&self, runtime: &Arc<FakeRuntime>) -> PodPorts {
        let host = Arc::new(self.host.clone());
        PodPorts {
            runtime: runtime.clone(),
            dirs: host.clone(),
            cgroups: host.clone(),
            volumes: host.clone(),
            records: host.clone(),
            prober: host.clone(),
            texts: host.clone(),
            addresses: host.clone(),
            logs: host.clone(),
            credential_programs: Arc::new(self.programs.clone()),
            periodic_tasks: Arc::new(self.periodic_tasks.clone()),
            pull_records: host,
            contents: Arc::new(self.contents.clone()),
        }
    }

    /// Ends the agent as a kill does: it waits for nothing.
    pub(super) async fn kill(&mut self) {
        if let Some(tree) = self.tree.take() {
            tree.end().await;
        }
        *self.api_capture.0.lock().unwrap() = None;
    }

    pub(super) fn pods(&self) -> Vec<LocalPod> {
        let api = self.api_capture.0.lock().unwrap().clone();
        api.map(|api| api.pods().pods).unwrap_or_default()
    }

    pub(super) fn api(&self) -> Arc<dyn LocalApi> {
        self.api_capture.0.lock().unwrap().clone().unwrap()
    }

    /// The only pod.
    pub(super) fn pod(&self) -> Option<LocalPod> {
        let pods = self.pods();
        assert!(pods.len() < 2, "{pods:?}");
        pods.into_iter().next()
    }

    pub(super) fn detail(&self) -> LocalPodDetail {
        let uid = self.pod().unwrap().uid;
        self.api().pod(&uid).unwrap()
    }

    pub(super) fn detail_of(&self, uid: &str) -> LocalPodDetail {
        self.api().pod(uid).unwrap()
    }

    pub(super) fn reasons(&self) -> Vec<String> {
        self.detail().events.into_iter().map(|event| event.reason).collect()
    }

    /// Waits on the paused clock until `holds`; returns how long that took.
    pub(super) async fn until(&self, what: &str, mut holds: impl FnMut(&Self) -> bool) -> Duration {
        let began = Instant::now();
        while !holds(self) {
            assert!(
                began.elapsed() < Duration::from_secs(3600),
                "{what} did not come\ncalls {:#?}\npods {:#?}",
                self.runtime.calls(),
                self.pods()
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        began.elapsed()
    }

    pub(super) async fn until_running(&self) -> Duration {
        self.until("a running pod", |bench| bench.phase().as_deref() == Some("Running")).await
    }

    pub(super) fn phase(&self) -> Option<String> {
        let pod = self.pod()?;
        pod.object.pointer("/status/phase")?.as_str().map(str::to_owned)
    }

    /// Of the pod of that name; empty if there is none.
    pub(super) fn phase_of(&self, name: &str) -> String {
        let pods = self.pods();
        let found = pods.iter().find(|pod| pod.name == name);
        let phase = found.and_then(|pod| pod.object.pointer("/status/phase")?.as_str());
        phase.unwrap_or_default().to_owned()
    }

    /// A field of the only pod's status.
    pub(super) fn status(&self, pointer: &str) -> serde_json::Value {
        let pod = self.pod().map(|pod| pod.object).unwrap_or_default();
        pod.pointer(&format!("/status{pointer}")).cloned().unwrap_or_default()
    }

    /// Reason and message of each event of the node.
    pub(super) fn node_events(&self) -> Vec<String> {
        let events = self.api().node().events.into_iter();
        events.map(|event| format!("{} {}: {}", event.kind, event.reason, event.message)).collect()
    }

    /// The value of a line of the metrics, by all that stands before it; None if there is no such
    /// line.
    pub(super) fn metric(&self, line: &str) -> Option<f64> {
        let text = self.api().metrics();
        let value = text.lines().find_map(|sample| sample.strip_prefix(line)?.strip_prefix(' '));
        value.map(|value| value.parse().unwrap())
    }

    pub(super) fn calls_of(&self, call: &str) -> Vec<String> {
        self.runtime.calls().into_iter().filter(|made| made.starts_with(call)).collect()
    }
}

pub(super) fn pod(name: &str, rest: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  containers:\n  \
         - {{name: main, image: 'i:1', imagePullPolicy: IfNotPresent{rest}}}\n"
    )
}
