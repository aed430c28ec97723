//! An agent on fakes that can be stopped and restarted over the same runtime and disk.

use super::super::{PodParts, start_with_clock};
use super::cluster::Joined;
use crate::clock::Clock;
use crate::images::PullLimits;
use crate::log_rotation::LogRotation;
use crate::loop_beats::LoopBeats;
use crate::pods::{CgroupSettings, PodPorts, PodSettings, ReservedCgroup};
use crate::runtime_watch::{RuntimeView, watch_runtime};
use crate::task_tree::TaskTree;
use container_setup::inputs::NodeFacts;
use node_policy::admission::{NodeAbilities, NodeRoom};
use node_policy::credential_providers::CredentialProvider;
use node_policy::garbage::DeadLimits;
use node_policy::image_access::Verification;
use pod_desired::Reading;
use pod_lifecycle::Settings;
use pod_manifest::PodGates;
use ports::local_api::{LocalApi, LocalEndpoint, LocalPod, LocalPodDetail};
use ports::{ApiTime, EventSink, PortFuture};
use runtime_fake::{
    FakeContents, FakeHost, FakeKernelLog, FakePrograms, FakeRounds, FakeRuntime, Script,
};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

pub(super) const START: i64 = 1_700_000_000_000_000_000;

/// Hands the agent's local API to the test.
#[derive(Clone, Default)]
struct Window(Arc<Mutex<Option<Arc<dyn LocalApi>>>>);

impl LocalEndpoint for Window {
    fn address(&self) -> String {
        "window".to_owned()
    }
    fn serve(&self, api: Arc<dyn LocalApi>) -> PortFuture<'_, String> {
        *self.0.lock().unwrap() = Some(api);
        Box::pin(std::future::pending())
    }
}

pub(super) struct Bench {
    pub(super) runtime: FakeRuntime,
    pub(super) host: FakeHost,
    /// None where it cannot be read.
    pub(super) kernel_log: Option<FakeKernelLog>,
    pub(super) script: Script,
    pub(super) limits: PullLimits,
    pub(super) programs: FakePrograms,
    pub(super) contents: FakeContents,
    pub(super) providers: Vec<CredentialProvider>,
    pub(super) verification: Option<Verification>,
    pub(super) gates: PodGates,
    pub(super) max_pods: i64,
    /// As in `keelson run`, not as in a kubelet.
    pub(super) waits_for_ending: bool,
    pub(super) dead: DeadLimits,
    pub(super) logs: Option<LogRotation>,
    pub(super) reserved: Vec<ReservedCgroup>,
    /// The file of `resolvConf`; empty for none.
    pub(super) resolv_conf: String,
    pub(super) clock: Clock,
    pub(super) beats: LoopBeats,
    pub(super) rounds: FakeRounds,
    pub(super) kill_now: watch::Sender<bool>,
    /// None for a standalone node.
    pub(super) cluster: Option<Joined>,
    tree: Option<TaskTree>,
    window: Window,
}

impl Bench {
    pub(super) fn new() -> Self {
        let clock = Clock::starting_at(ApiTime::from_nanos(START));
        let time = clock.clone();
        let runtime = FakeRuntime::new(move || time.now().nanos());
        runtime.add_image("i:1");
        Self {
            runtime,
            host: FakeHost::default(),
            kernel_log: None,
            script: Script::default(),
            limits: PullLimits { side_by_side: Some(1), per_second: 5, burst: 10 },
            programs: FakePrograms::default(),
            contents: FakeContents::default(),
            providers: Vec::new(),
            verification: Some(Verification::NotForPreloaded),
            gates: PodGates::default(),
            max_pods: 110,
            waits_for_ending: false,
            dead: DeadLimits::default(),
            logs: None,
            reserved: Vec::new(),
            resolv_conf: String::new(),
            clock,
            beats: LoopBeats::default(),
            rounds: FakeRounds::default(),
            kill_now: watch::Sender::new(false),
            cluster: None,
            tree: None,
            window: Window::default(),
        }
    }

    /// Starts an agent with the script's manifests.
    pub(super) fn begin(&mut self) {
        let host = Arc::new(self.host.clone());
        let runtime = Arc::new(self.runtime.clone());
        let ports = PodPorts {
            runtime: runtime.clone(),
            folders: host.clone(),
            cgroups: host.clone(),
            volumes: host.clone(),
            records: host.clone(),
            prober: host.clone(),
            texts: host.clone(),
            addresses: host.clone(),
            logs: host.clone(),
            credential_programs: Arc::new(self.programs.clone()),
            rounds: Arc::new(self.rounds.clone()),
            pull_records: host,
            contents: Arc::new(self.contents.clone()),
        };
        let lifecycle = Settings { node_name: "n".to_owned(), ..Settings::default() };
        let settings = PodSettings {
            reading: Reading { node_name: "n".to_owned(), gates: self.gates },
            lifecycle,
            setup: NodeFacts { pod_logs_directory: "/logs".to_owned(), ..NodeFacts::default() },
            resolv_conf: self.resolv_conf.clone(),
            room: NodeRoom {
                name: "n".to_owned(),
                pods: self.max_pods,
                waits_for_ending: self.waits_for_ending,
                ..NodeRoom::default()
            },
            cgroups: CgroupSettings {
                per_qos: true,
                root: Vec::new(),
                enforced: None,
                reserved: self.reserved.clone(),
            },
            pulls: self.limits.clone(),
            credential_providers: self.providers.clone(),
            image_verification: self.verification.clone(),
            root: "/node".to_owned(),
            dead: self.dead.clone(),
            abilities: NodeAbilities::default(),
            user_ranges: Err("this node has no users for pods".to_owned()),
            logs: self.logs.clone(),
        };
        let cluster = self.cluster.as_ref().map(Joined::parts);
        let parts = PodParts {
            ports,
            settings,
            sources: vec![self.script.source("file")],
            memory_kills: self.kernel_log.as_ref().map(FakeKernelLog::read),
            events: cluster.as_ref().map(|cluster| cluster.events.clone() as Arc<dyn EventSink>),
            metric_sources: Vec::new(),
            local: Some(Arc::new(self.window.clone())),
            cluster,
            port: None,
            kill_now: self.kill_now.subscribe(),
        };
        let mut tree = TaskTree::default();
        let (sender, view) = watch::channel(RuntimeView::default());
        let look_again = Arc::new(Notify::new());
        let heard = look_again.clone();
        let rounds: Arc<dyn ports::Rounds> = Arc::new(self.rounds.clone());
        tree.start("runtime-watch", move || {
            watch_runtime(runtime.clone(), sender.clone(), heard.clone(), Some(rounds.clone()))
        });
        let beats = LoopBeats::default();
        start_with_clock(
            &mut tree,
            parts,
            (&view, look_again),
            (&self.clock, &beats),
            Arc::new([]),
        );
        self.beats = beats;
        self.tree = Some(tree);
    }

    /// Ends the agent as a kill does: it waits for nothing.
    pub(super) async fn kill(&mut self) {
        if let Some(tree) = self.tree.take() {
            tree.end().await;
        }
        *self.window.0.lock().unwrap() = None;
    }

    pub(super) fn pods(&self) -> Vec<LocalPod> {
        let api = self.window.0.lock().unwrap().clone();
        api.map(|api| api.pods().pods).unwrap_or_default()
    }

    pub(super) fn api(&self) -> Arc<dyn LocalApi> {
        self.window.0.lock().unwrap().clone().unwrap()
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
        let value = text.lines().find_map(|told| told.strip_prefix(line)?.strip_prefix(' '));
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
