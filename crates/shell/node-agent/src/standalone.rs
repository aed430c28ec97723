//! Starts the tasks that run pods.
//!
//! Rule: wires the shell's own parts; the binary chooses the adapter of each port.

use crate::admission::Admissions;
use crate::board::{Board, LocalStatus};
use crate::clock::Clock;
use crate::cluster_node::{self, ClusterParts};
use crate::images::{Images, NodeLogins, PullOrders, PullSandboxes, PulledImages};
use crate::loop_beats::LoopBeats;
use crate::metrics::names;
use crate::observed::{Observed, watch_pods};
use crate::own_users::OwnUsers;
use crate::pods::supervisor::{ActivePods, supervise};
use crate::pods::{PodContext, PodPorts, PodSettings, SavedMemories};
use crate::probes::{Probes, turn_wheel};
use crate::reserved_cgroups;
use crate::runtime_watch::RuntimeView;
use crate::sources::{self, Merging, WantedPods};
use crate::task_tree::TaskTree;
use crate::termination::TerminationMessages;
use crate::turns::Turns;
use crate::{
    cgroup_tree, counted_kills, garbage, images, log_rotation, memory_kills, node_checks,
    node_state,
};
use pod_manifest::static_pod::SourceKind;
use ports::pod_host::{MemoryKills, PodCgroups};
use ports::pod_sources::ManifestSource;
use ports::{EventSink, HealthChecks, KubeletApi, KubeletEndpoint, LocalEndpoint, MetricSource};
use std::num::NonZero;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, Notify, mpsc, watch};
use tracing::error;

/// Snapshots that may wait to be merged.
const TELLINGS: usize = 4;
const SERVE_AGAIN: Duration = Duration::from_secs(5);

/// The dependencies of running pods.
pub struct PodParts {
    pub ports: PodPorts,
    pub settings: PodSettings,
    pub sources: Vec<Box<dyn ManifestSource>>,
    /// None if the kernel log cannot be read: then the cgroups' own counters are used.
    pub memory_kills: Option<Box<dyn MemoryKills>>,
    /// Another receiver of events, if any.
    pub events: Option<Arc<dyn EventSink>>,
    /// Further sources of metrics.
    pub metric_sources: Vec<Arc<dyn MetricSource>>,
    /// None if there is no local API.
    pub local: Option<Arc<dyn LocalEndpoint>>,
    /// None for a standalone node.
    pub cluster: Option<ClusterParts>,
    /// None if the kubelet's port is not served.
    pub port: Option<Arc<dyn KubeletEndpoint>>,
    /// Once true, pods that end are killed instead of waiting for their grace periods.
    pub kill_now: watch::Receiver<bool>,
}

/// Starts every task that running pods takes. `look_again` is notified when the runtime answers
/// again.
pub(crate) fn start(
    tree: &mut TaskTree,
    parts: PodParts,
    runtime: (&watch::Receiver<RuntimeView>, Arc<Notify>),
    beats: &LoopBeats,
    checks: HealthChecks,
) {
    start_with_clock(tree, parts, runtime, (&Clock::system(), beats), checks);
}

fn make_images(
    ports: &PodPorts,
    settings: &Arc<PodSettings>,
    clock: &Clock,
    board: &Board,
) -> (Images, PullOrders, PulledImages) {
    let programs = (ports.credential_programs.clone(), settings.credential_providers.clone());
    let pulled = PulledImages::new(
        settings.image_verification.clone(),
        ports.pull_records.clone(),
        ports.runtime.clone(),
        clock.clone(),
    );
    let logins = NodeLogins::new(ports.texts.clone(), &settings.root, programs, board.metrics());
    let (images, orders) = images::images(
        ports.runtime.clone(),
        clock.clone(),
        (logins, PullSandboxes::new(settings.clone(), ports.cgroups.clone())),
        (pulled.clone(), board.metrics().clone()),
    );
    (images, orders, pulled)
}

fn start_with_clock(
    tree: &mut TaskTree,
    parts: PodParts,
    (view, look_again): (&watch::Receiver<RuntimeView>, Arc<Notify>),
    (clock, beats): (&Clock, &LoopBeats),
    checks: HealthChecks,
) {
    let PodParts {
        ports,
        settings,
        sources,
        memory_kills,
        events,
        metric_sources,
        local,
        cluster,
        port,
        kill_now,
    } = parts;
    let messages = TerminationMessages::new(ports.folders.clone());
    let board = Board::new(events, &settings.lifecycle.node_name);
    let times = (clock.clone(), look_again);
    let observed = Observed::new(ports.runtime.clone(), messages.clone(), times, board.clone());
    let settings = Arc::new(settings);
    let (images, orders, pulled) = make_images(&ports, &settings, clock, &board);
    let (node_sender, node) = watch::channel(node_state::unknown(&settings.lifecycle));
    let probes = Probes::new(ports.runtime.clone(), ports.prober.clone(), clock.now());
    set_lasting_metrics(&board, &settings.lifecycle.node_name, &*ports.cgroups);
    let reading = settings.reading.clone();
    let pulls = settings.pulls.clone();
    let context = Arc::new(PodContext {
        clock: clock.clone(),
        observed: observed.clone(),
        images,
        probes: probes.clone(),
        admissions: Admissions::new(
            settings.room.clone(),
            settings.abilities.clone(),
            board.metrics().clone(),
        ),
        own_users: OwnUsers::new(
            ports.folders.clone(),
            &settings.root,
            settings.user_ranges.clone(),
        ),
        board: board.clone(),
        saved: SavedMemories::new(ports.records.clone(), board.clone()),
        turns: Turns::new(std::thread::available_parallelism().map_or(1, NonZero::get)),
        node,
        kill_now,
        settings,
        ports: ports.clone(),
    });
    let (seen, beat) = (observed.clone(), beats.clone());
    tree.start("observed-pods", move || watch_pods(seen.clone(), beat.clone()));
    let (state_ports, node_view) = (ports.clone(), view.clone());
    tree.start("node-state", move || {
        node_state::follow(state_ports.clone(), node_view.clone(), node_sender.clone())
    });
    let (runtime, orders) = (ports.runtime.clone(), Arc::new(Mutex::new(orders)));
    tree.start("image-pulls", move || {
        images::run_pulls((runtime.clone(), pulled.clone()), orders.clone(), pulls.clone())
    });
    tree.start("probes", move || turn_wheel(probes.clone()));
    start_upkeep(tree, &context);
    start_memory_kills(tree, &context, memory_kills, messages);
    let wanted = start_sources(tree, &context, (sources, reading), beats);
    let (active_sender, active) = watch::channel(ActivePods::default());
    let (pods_context, beat) = (context.clone(), beats.clone());
    tree.start("pods", move || {
        let wanted = wanted.clone();
        supervise(pods_context.clone(), wanted, active_sender.clone(), beat.clone())
    });
    let garbage_context = context.clone();
    tree.start("garbage", move || garbage::collect(garbage_context.clone(), active.clone()));
    if let Some(cluster) = cluster {
        let shared = (clock.clone(), board.clone(), context.ports.clone());
        cluster_node::start(tree, cluster, shared, (view.clone(), context.node.clone()));
    }
    let runtime = view.clone();
    let api = Arc::new(LocalStatus { context: context.clone(), runtime, metric_sources });
    start_endpoints(tree, &api, checks, local, port);
}

/// Starts the local socket and the authenticated port, if they are configured.
fn start_endpoints(
    tree: &mut TaskTree,
    api: &Arc<LocalStatus>,
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
fn set_lasting_metrics(board: &Board, node_name: &str, cgroups: &dyn PodCgroups) {
    let metrics = board.metrics();
    metrics.set(&names::NODE_NAME, &[node_name], 1.0);
    let version = if cgroups.is_unified() { 2.0 } else { 1.0 };
    metrics.set(&names::CGROUP_VERSION, &[], version);
}

/// Starts the tasks beside the pods: cgroups above them, logs, checks of the machine.
fn start_upkeep(tree: &mut TaskTree, context: &Arc<PodContext>) {
    let checked = context.clone();
    tree.start("node-checks", move || node_checks::tell(checked.clone()));
    let tree_context = context.clone();
    tree.start("cgroups", move || cgroup_tree::keep(tree_context.clone()));
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
            log_rotation::keep_small(logs_context.clone(), logs.clone())
        });
    }
}

/// The kernel log names the OOM-killed process; without it the cgroups count them.
fn start_memory_kills(
    tree: &mut TaskTree,
    context: &Arc<PodContext>,
    kills: Option<Box<dyn MemoryKills>>,
    messages: TerminationMessages,
) {
    let context = context.clone();
    if let Some(kills) = kills {
        let kills = Arc::new(Mutex::new(kills));
        tree.start("memory-kills", move || {
            memory_kills::listen(kills.clone(), messages.clone(), context.observed.clone())
        });
    } else if context.settings.cgroups.per_qos {
        tree.start("memory-kills", move || counted_kills::watch(context.clone(), messages.clone()));
    }
}

fn start_sources(
    tree: &mut TaskTree,
    context: &Arc<PodContext>,
    (sources, reading): (Vec<Box<dyn ManifestSource>>, pod_desired::Reading),
    beats: &LoopBeats,
) -> watch::Receiver<WantedPods> {
    let kinds = sources.iter().map(|source| match source.kind() {
        "http" => SourceKind::Url,
        _ => SourceKind::File,
    });
    let kinds: Vec<SourceKind> = kinds.collect();
    let (tell, tellings) = mpsc::channel(TELLINGS);
    let (wanted_sender, wanted) = watch::channel(WantedPods::default());
    for (at, source) in sources.into_iter().enumerate() {
        let name = if source.kind() == "http" { "source-url" } else { "source-file" };
        let source = Arc::new(Mutex::new(source));
        let tell = tell.clone();
        tree.start(name, move || sources::listen(at, source.clone(), tell.clone()));
    }
    // Without a source the sender is dropped and no snapshot ever comes, which is right.
    let merging = Merging {
        reading,
        kinds,
        records: context.ports.records.clone(),
        saved: context.saved.clone(),
        observed: context.observed.clone(),
        clock: context.clock.clone(),
        board: context.board.clone(),
        tellings: Arc::new(Mutex::new(tellings)),
        wanted: wanted_sender,
        beats: beats.clone(),
    };
    tree.start("sources", move || {
        let (merging, _open) = (merging.clone(), tell.clone());
        async move {
            let _open = _open;
            sources::merge(merging).await;
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
            retry_in_seconds = SERVE_AGAIN.as_secs(),
            "Cannot serve the node's port"
        );
        tokio::time::sleep(SERVE_AGAIN).await;
    }
}

async fn serve(endpoint: Arc<dyn LocalEndpoint>, api: Arc<LocalStatus>) {
    loop {
        let why = endpoint.serve(api.clone()).await;
        error!(
            address = endpoint.address(),
            err = why,
            retry_in_seconds = SERVE_AGAIN.as_secs(),
            "Cannot serve people at this machine"
        );
        tokio::time::sleep(SERVE_AGAIN).await;
    }
}

#[cfg(test)]
mod tests;
