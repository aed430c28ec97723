//! Starts the tasks that run pods.
//!
//! Rule: wires the shell's own parts; the binary chooses the adapter of each port.

use crate::admission::Admissions;
use crate::call_limiter::CallLimiter;
use crate::certificates::{self, CertificateInputs};
use crate::clock::AgentClock;
use crate::cluster_node::{self, ClusterDependencies, ClusterNodeInputs};
use crate::cluster_pods::{
    self, ApiPodStore, ClusterObjectCaches, ClusterPodInputs, StatusReports,
};
use crate::contents::PodContentStore;
use crate::images::{
    ImagePuller, ImagePullerParts, NodeLogins, PodLogins, PullJobReceiver, PullLimits,
    PullSandboxes, PulledImageStore,
};
use crate::loop_heartbeats::LoopHeartbeats;
use crate::metrics::names;
use crate::observed::{ObservedPods, watch_pods};
use crate::plugins::{NodePlugins, PluginDependencies, PluginInputs};
use crate::pods::pod_workers::{ActivePods, run_pod_workers};
use crate::pods::{NodeState, PodContext, PodMemoryStore, PodPorts, PodSettings};
use crate::probes::{Probes, run_probes};
use crate::reserved_cgroups;
use crate::runtime_watch::RuntimeView;
use crate::sources::{self, MergeContext, WantedPods};
use crate::status_store::{AgentApi, StatusStore};
use crate::task_tree::TaskTree;
use crate::termination::TerminationMessages;
use crate::user_namespaces::UserNamespaceAllocator;
use crate::{
    cgroup_tree, garbage, images, log_rotation, node_checks, node_state, oom_counts, oom_kills,
};
use node_policy::admission::NodeCapacity;
use node_status::NodeObject;
use node_status::registration::node_without_status;
use pod_lifecycle::PodLifecycleSettings;
use pod_manifest::static_pod::SourceKind;
use ports::pod_host::{OomKillLog, PodCgroups};
use ports::pod_sources::ManifestSource;
use ports::{
    EventSink, HealthChecks, KubeletApi, KubeletEndpoint, LocalEndpoint, MetricSource, PodRuntime,
};
use std::num::NonZero;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, Notify, mpsc, watch};
use tracing::error;

/// Snapshots that may wait to be merged.
const SNAPSHOT_CAPACITY: usize = 4;
const SERVE_RETRY_DELAY: Duration = Duration::from_secs(5);

/// The dependencies of running pods.
pub struct PodDependencies {
    pub ports: PodPorts,
    pub settings: PodSettings,
    pub sources: Vec<Box<dyn ManifestSource>>,
    /// None if the kernel log cannot be read: then the cgroups' own counters are used.
    pub oom_kills: Option<Box<dyn OomKillLog>>,
    /// Another receiver of events, if any.
    pub events: Option<Arc<dyn EventSink>>,
    /// Further sources of metrics.
    pub metric_sources: Vec<Arc<dyn MetricSource>>,
    /// None if there is no local API.
    pub local: Option<Arc<dyn LocalEndpoint>>,
    /// None for a standalone node.
    pub cluster: Option<ClusterDependencies>,
    /// None if the kubelet's port is not served.
    pub port: Option<Arc<dyn KubeletEndpoint>>,
    /// None for an agent that takes no plugins.
    pub plugins: Option<PluginDependencies>,
    /// Once true, pods that end are killed instead of waiting for their grace periods.
    pub kill_now: watch::Receiver<bool>,
}

/// What the tasks take from the rest of the agent.
pub(crate) struct PodTaskInputs<'a> {
    pub(crate) runtime_view: &'a watch::Receiver<RuntimeView>,
    /// Notified when the runtime answers again.
    pub(crate) recheck: Arc<Notify>,
    pub(crate) clock: &'a AgentClock,
    pub(crate) loop_heartbeats: &'a LoopHeartbeats,
    pub(crate) checks: HealthChecks,
}

/// The image puller and what its owner task needs.
struct PullerSetup {
    puller: ImagePuller,
    jobs: PullJobReceiver,
    pulled_images: PulledImageStore,
}

fn image_puller(
    ports: &PodPorts,
    settings: &Arc<PodSettings>,
    clock: &AgentClock,
    status_store: &StatusStore,
    contents: &PodContentStore,
) -> PullerSetup {
    let pulled_images = PulledImageStore::new(
        settings.image_verification.clone(),
        ports.pull_records.clone(),
        ports.runtime.clone(),
        clock.clone(),
    );
    let logins = NodeLogins::new(
        ports.texts.clone(),
        &settings.root,
        ports.credential_programs.clone(),
        settings.credential_providers.clone(),
        status_store.metrics(),
    );
    let (puller, jobs) = ImagePuller::new(ImagePullerParts {
        runtime: ports.runtime.clone(),
        clock: clock.clone(),
        logins,
        sandboxes: PullSandboxes::new(settings.clone(), ports.cgroups.clone()),
        pulled_images: pulled_images.clone(),
        pod_logins: PodLogins::new(contents.clone(), ports.pull_records.clone()),
        metrics: status_store.metrics().clone(),
    });
    PullerSetup { puller, jobs, pulled_images }
}

/// Starts every task that running pods takes.
pub(crate) fn start(tree: &mut TaskTree, dependencies: PodDependencies, inputs: PodTaskInputs<'_>) {
    let PodTaskInputs { runtime_view, recheck, clock, loop_heartbeats, checks } = inputs;
    let PodDependencies {
        ports,
        settings,
        sources,
        oom_kills,
        events,
        mut metric_sources,
        local,
        cluster,
        port,
        plugins,
        kill_now,
    } = dependencies;
    let messages = TerminationMessages::new(ports.dirs.clone());
    let status_store = StatusStore::new(events, &settings.lifecycle.node_name);
    let observed = ObservedPods::new(
        ports.runtime.clone(),
        messages.clone(),
        clock.clone(),
        recheck,
        status_store.clone(),
    );
    let settings = Arc::new(settings);
    let contents = PodContentStore::new(ports.contents.clone(), settings.content_changes);
    let PullerSetup { puller, jobs, pulled_images } =
        image_puller(&ports, &settings, clock, &status_store, &contents);
    let node_object = watch::Sender::new(None);
    let (node_sender, node) = watch::channel(node_state::initial_state(&settings.lifecycle));
    let probes = Probes::new(ports.runtime.clone(), ports.prober.clone(), clock.now());
    set_lasting_metrics(&status_store, &settings.lifecycle.node_name, &*ports.cgroups);
    let (active_sender, active) = watch::channel(ActivePods::default());
    let inputs = plugin_inputs(clock, &status_store, cluster.as_ref(), &settings.lifecycle);
    let start = |plugins| NodePlugins::start(tree, plugins, inputs, &active);
    let plugins = plugins.map(start);
    metric_sources.extend(plugins.clone().map(|it| Arc::new(it) as Arc<dyn MetricSource>));
    let reading = settings.reading.clone();
    let pulls = settings.pulls.clone();
    let context = Arc::new(PodContext {
        clock: clock.clone(),
        observed: observed.clone(),
        images: puller,
        contents,
        probes: probes.clone(),
        admissions: admissions(&settings, cluster.as_ref(), plugins.as_ref(), &status_store),
        user_namespaces: user_namespaces(&ports, &settings),
        status_store: status_store.clone(),
        api_pods: ApiPodStore::new(clock.clone(), cluster.is_some()),
        reports: cluster.as_ref().map(|_| StatusReports::default()),
        objects: cluster.as_ref().map(|_| ClusterObjectCaches::new()),
        node_object: node_object.subscribe(),
        saved: PodMemoryStore::new(ports.records.clone(), status_store.clone()),
        call_limiter: CallLimiter::new(
            std::thread::available_parallelism().map_or(1, NonZero::get),
        ),
        node,
        devices: plugins.as_ref().map(|plugins| plugins.devices().clone()),
        kill_now,
        settings,
        ports: ports.clone(),
    });
    start_observation(tree, &context, runtime_view, node_sender, loop_heartbeats);
    start_image_pulls(tree, ports.runtime, jobs, pulled_images, pulls);
    tree.start("probes", move || run_probes(probes.clone()));
    start_upkeep(tree, &context);
    start_oom_watch(tree, &context, oom_kills, messages);
    let wanted = start_sources(tree, &context, sources, reading, loop_heartbeats);
    if let Some(plugins) = &plugins {
        plugins.serve_pod_resources(tree, &context.admissions);
    }
    start_workers(tree, &context, &wanted, active_sender, loop_heartbeats);
    let garbage_context = context.clone();
    tree.start("garbage", move || garbage::collect(garbage_context.clone(), active.clone()));
    if let Some(cluster) = cluster {
        let views = ClusterViews { runtime_view, wanted, node_object, plugins: plugins.clone() };
        metric_sources.extend(start_cluster(tree, cluster, &context, views));
    }
    let runtime = runtime_view.clone();
    let api = Arc::new(AgentApi { context: context.clone(), runtime, metric_sources, plugins });
    start_endpoints(tree, &api, checks, local, port);
}

/// Starts what follows the runtime: its pods, and its state.
fn start_observation(
    tree: &mut TaskTree,
    context: &PodContext,
    runtime_view: &watch::Receiver<RuntimeView>,
    node_sender: watch::Sender<NodeState>,
    loop_heartbeats: &LoopHeartbeats,
) {
    let (seen, beat) = (context.observed.clone(), loop_heartbeats.clone());
    tree.start("observed-pods", move || watch_pods(seen.clone(), beat.clone()));
    let (ports, view) = (context.ports.clone(), runtime_view.clone());
    tree.start("node-state", move || {
        node_state::update_node_state(ports.clone(), view.clone(), node_sender.clone())
    });
}

fn start_workers(
    tree: &mut TaskTree,
    context: &Arc<PodContext>,
    wanted: &watch::Receiver<WantedPods>,
    active: watch::Sender<ActivePods>,
    loop_heartbeats: &LoopHeartbeats,
) {
    let (context, wanted, beat) = (context.clone(), wanted.clone(), loop_heartbeats.clone());
    tree.start("pods", move || {
        run_pod_workers(context.clone(), wanted.clone(), active.clone(), beat.clone())
    });
}

fn start_image_pulls(
    tree: &mut TaskTree,
    runtime: Arc<dyn PodRuntime>,
    jobs: PullJobReceiver,
    pulled_images: PulledImageStore,
    limits: PullLimits,
) {
    let jobs = Arc::new(Mutex::new(jobs));
    tree.start("image-pulls", move || {
        images::run_pulls(runtime.clone(), pulled_images.clone(), jobs.clone(), limits.clone())
    });
}

/// What the tasks of a node of a cluster follow.
struct ClusterViews<'a> {
    runtime_view: &'a watch::Receiver<RuntimeView>,
    wanted: watch::Receiver<WantedPods>,
    node_object: watch::Sender<Option<Arc<NodeObject>>>,
    plugins: Option<NodePlugins>,
}

/// Starts the tasks of a node of a cluster; returns their metrics.
fn start_cluster(
    tree: &mut TaskTree,
    mut cluster: ClusterDependencies,
    context: &PodContext,
    views: ClusterViews<'_>,
) -> Vec<Arc<dyn MetricSource>> {
    let ClusterViews { runtime_view, wanted, node_object, plugins } = views;
    let api = cluster.api.clone();
    let node_name = cluster.settings.node.node_name.clone();
    let inputs = CertificateInputs {
        api: api.clone(),
        node_name: node_name.clone(),
        clock: context.clock.clone(),
        metrics: context.status_store.metrics().clone(),
        node_object: node_object.subscribe(),
    };
    let metrics = certificates::start(tree, std::mem::take(&mut cluster.certificates), inputs);
    let inputs = ClusterNodeInputs {
        clock: context.clock.clone(),
        status_store: context.status_store.clone(),
        ports: context.ports.clone(),
        runtime_view: runtime_view.clone(),
        node_state: context.node.clone(),
        observed: context.observed.clone(),
        admissions: context.admissions.clone(),
        node_object,
        plugins,
    };
    let node_feed = cluster_node::start(tree, cluster, inputs);
    let (Some(reports), Some(objects)) = (context.reports.clone(), context.objects.clone()) else {
        return metrics;
    };
    let inputs = ClusterPodInputs {
        api,
        node_name,
        node_feed,
        store: context.api_pods.clone(),
        reports,
        objects,
        status_store: context.status_store.clone(),
        wanted,
    };
    cluster_pods::start(tree, inputs);
    metrics
}

fn user_namespaces(ports: &PodPorts, settings: &PodSettings) -> UserNamespaceAllocator {
    let ranges = settings.user_namespace_ranges.clone();
    UserNamespaceAllocator::new(ports.dirs.clone(), &settings.root, ranges)
}

fn plugin_inputs(
    clock: &AgentClock,
    status_store: &StatusStore,
    cluster: Option<&ClusterDependencies>,
    node: &PodLifecycleSettings,
) -> PluginInputs {
    PluginInputs {
        clock: clock.clone(),
        node_name: node.node_name.clone(),
        api: cluster.map(|cluster| cluster.api.clone()),
        metrics: status_store.metrics().clone(),
    }
}

fn admissions(
    settings: &PodSettings,
    cluster: Option<&ClusterDependencies>,
    plugins: Option<&NodePlugins>,
    status_store: &StatusStore,
) -> Admissions {
    let capacity = initial_capacity(settings, cluster);
    let metrics = status_store.metrics().clone();
    let admissions = Admissions::new(capacity, settings.abilities.clone(), metrics);
    match plugins {
        Some(plugins) => admissions.with_device_resources(plugins.devices().resources()),
        None => admissions,
    }
}

/// What admission knows of the node before its Node object has come: as it would be registered.
fn initial_capacity(settings: &PodSettings, cluster: Option<&ClusterDependencies>) -> NodeCapacity {
    let of_machine = &settings.room;
    cluster.map_or_else(
        || of_machine.clone(),
        |cluster| of_machine.with_node(&node_without_status(&cluster.settings.node)),
    )
}

/// Starts the local socket and the authenticated port, if they are configured.
fn start_endpoints(
    tree: &mut TaskTree,
    api: &Arc<AgentApi>,
    checks: HealthChecks,
    local: Option<Arc<dyn LocalEndpoint>>,
    port: Option<Arc<dyn KubeletEndpoint>>,
) {
    if let Some(endpoint) = local {
        let api = api.clone();
        tree.start("local-endpoint", move || serve(endpoint.clone(), api.clone()));
    }
    if let Some(port) = port {
        let api = KubeletApi { checks, local: api.clone() };
        tree.start("node-port", move || serve_port(port.clone(), api.clone()));
    }
}

/// Sets the metrics that do not change while the agent runs.
fn set_lasting_metrics(status_store: &StatusStore, node_name: &str, cgroups: &dyn PodCgroups) {
    let metrics = status_store.metrics();
    metrics.set(&names::NODE_NAME, &[node_name], 1.0);
    let version = if cgroups.is_unified() { 2.0 } else { 1.0 };
    metrics.set(&names::CGROUP_VERSION, &[], version);
}

/// Starts the tasks beside the pods: cgroups above them, logs, checks of the machine.
fn start_upkeep(tree: &mut TaskTree, context: &Arc<PodContext>) {
    let checked = context.clone();
    tree.start("node-checks", move || node_checks::report_checks(checked.clone()));
    let tree_context = context.clone();
    tree.start("cgroups", move || cgroup_tree::reconcile(tree_context.clone()));
    let reserved = context.settings.cgroups.reserved.clone();
    if !reserved.is_empty() {
        let reserved_context = context.clone();
        tree.start("reserved-cgroups", move || {
            reserved_cgroups::enforce(reserved_context.clone(), reserved.clone())
        });
    }
    if let Some(logs) = context.settings.logs.clone() {
        let logs_context = context.clone();
        tree.start("log-rotation", move || {
            log_rotation::rotate_logs(logs_context.clone(), logs.clone())
        });
    }
}

/// The kernel log names the OOM-killed process; without it the cgroups count them.
fn start_oom_watch(
    tree: &mut TaskTree,
    context: &Arc<PodContext>,
    kills: Option<Box<dyn OomKillLog>>,
    messages: TerminationMessages,
) {
    let context = context.clone();
    if let Some(kills) = kills {
        let kills = Arc::new(Mutex::new(kills));
        tree.start("memory-kills", move || {
            oom_kills::listen(kills.clone(), messages.clone(), context.observed.clone())
        });
    } else if context.settings.cgroups.per_qos {
        tree.start("memory-kills", move || oom_counts::watch(context.clone(), messages.clone()));
    }
}

fn start_sources(
    tree: &mut TaskTree,
    context: &Arc<PodContext>,
    sources: Vec<Box<dyn ManifestSource>>,
    reading: pod_desired::ManifestOptions,
    loop_heartbeats: &LoopHeartbeats,
) -> watch::Receiver<WantedPods> {
    let kinds: Vec<SourceKind> = sources.iter().map(|source| source.kind()).collect();
    let (snapshot_sender, snapshots) = mpsc::channel(SNAPSHOT_CAPACITY);
    let (wanted_sender, wanted) = watch::channel(WantedPods::default());
    for (at, source) in sources.into_iter().enumerate() {
        let name = match source.kind() {
            SourceKind::Url => "source-url",
            SourceKind::File => "source-file",
        };
        let source = Arc::new(Mutex::new(source));
        let snapshot_sender = snapshot_sender.clone();
        tree.start(name, move || sources::listen(at, source.clone(), snapshot_sender.clone()));
    }
    // Without a source the sender is dropped and no snapshot ever comes, which is right.
    let merge_context = MergeContext {
        reading,
        kinds,
        records: context.ports.records.clone(),
        saved: context.saved.clone(),
        observed: context.observed.clone(),
        clock: context.clock.clone(),
        status_store: context.status_store.clone(),
        snapshots: Arc::new(Mutex::new(snapshots)),
        wanted: wanted_sender,
        loop_heartbeats: loop_heartbeats.clone(),
    };
    tree.start("sources", move || {
        let (merge_context, _open) = (merge_context.clone(), snapshot_sender.clone());
        async move {
            let _open = _open;
            sources::merge(merge_context).await;
        }
    });
    wanted
}

async fn serve_port(port: Arc<dyn KubeletEndpoint>, api: KubeletApi) {
    loop {
        let error = port.serve(api.clone()).await;
        error!(
            address = port.address(),
            err = %error,
            retry_in_seconds = SERVE_RETRY_DELAY.as_secs(),
            "Cannot serve the node's port"
        );
        tokio::time::sleep(SERVE_RETRY_DELAY).await;
    }
}

async fn serve(endpoint: Arc<dyn LocalEndpoint>, api: Arc<AgentApi>) {
    loop {
        let why = endpoint.serve(api.clone()).await;
        error!(
            address = endpoint.address(),
            err = why,
            retry_in_seconds = SERVE_RETRY_DELAY.as_secs(),
            "Cannot serve people at this machine"
        );
        tokio::time::sleep(SERVE_RETRY_DELAY).await;
    }
}

#[cfg(test)]
mod tests;
