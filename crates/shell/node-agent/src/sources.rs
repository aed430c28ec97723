//! From snapshots of manifest sources to pods with UIDs.
//!
//! Rules: `pod-desired` decides what is merged, kept and removed; here records are written before
//! anything that depends on them is published. A pod whose name never had a UID waits until the
//! runtime was listed once and any pod of its name was read, because a running pod may lend its
//! UID; until then pods of its name are kept, and no others. No pod is dropped before every source
//! has been read and the pod is on disk as ending: an agent killed in between, or a manifest
//! removed while no agent runs, costs no pod its grace period and hooks. A record that cannot be
//! written is reported and retried, after a delay that depends on the error.

use crate::clock::AgentClock;
use crate::keyed_tasks::{KeyedTasks, Panicked};
use crate::loop_heartbeats::LoopHeartbeats;
use crate::observed::ObservedPods;
use crate::pods::PodMemoryStore;
use crate::status_store::{PodOrigin, PodWithoutUid, SourcesState, StatusStore};
use pod_desired::{
    IdentifiedPod, IdentityContext, MANIFESTS_DIR, ManifestOptions, Manifests, Notice,
    PodCandidate, PodIdentities, RecordChange, UIDS_DIR, WaitingPods,
};
use pod_lifecycle::WaitReason;
use pod_manifest::static_pod::SourceKind;
use pod_model::pod::{Container, Pod, container_hash};
use ports::pod_host::{AgentRecords, HostError};
use ports::pod_sources::{ManifestSource, SourceSnapshot};
use ports::runtime_objects::RuntimePods;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, mpsc, watch};
use tokio::time::Instant;
use tracing::{error, info, warn};

const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// Retry delay of a record.
const WRITE_RETRY_DELAY: Duration = Duration::from_secs(5);
/// After a refused write: the administrator must change something first.
const REFUSED_WRITE_RETRY_DELAY: Duration = Duration::from_secs(300);

/// The pods that this node should run.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct WantedPods {
    pub(crate) pods: Vec<IdentifiedPod>,
    /// Desired too, without a UID yet.
    pub(crate) waiting: WaitingPods,
    /// Every source has been read: pods that are not here may be removed.
    pub(crate) is_complete: bool,
}

impl WantedPods {
    /// Whether a pod of this name with an undesired UID may be removed.
    pub(crate) fn may_remove(&self, namespace: &str, name: &str) -> bool {
        self.is_complete && !self.waiting.may_adopt(namespace, name)
    }
}

/// A source behind a lock, so that its task can restart after a panic.
pub(crate) type SharedSource = Arc<Mutex<Box<dyn ManifestSource>>>;

/// Passes on the snapshots of one source, for ever.
pub(crate) async fn listen(
    at: usize,
    source: SharedSource,
    snapshots: mpsc::Sender<(usize, SourceSnapshot)>,
) {
    let mut source = source.lock().await;
    loop {
        let snapshot = source.next().await;
        if snapshots.send((at, snapshot)).await.is_err() {
            return;
        }
    }
}

/// The inputs of the merging task.
#[derive(Clone)]
pub(crate) struct MergeContext {
    pub(crate) reading: ManifestOptions,
    /// Ordered by source number.
    pub(crate) kinds: Vec<SourceKind>,
    pub(crate) records: Arc<dyn AgentRecords>,
    pub(crate) saved: PodMemoryStore,
    pub(crate) observed: ObservedPods,
    pub(crate) clock: AgentClock,
    pub(crate) status_store: StatusStore,
    pub(crate) snapshots: Arc<Mutex<mpsc::Receiver<(usize, SourceSnapshot)>>>,
    pub(crate) wanted: watch::Sender<WantedPods>,
    pub(crate) loop_heartbeats: LoopHeartbeats,
}

/// Merges for ever.
pub(crate) async fn merge(merge_context: MergeContext) {
    let (snapshots, loop_heartbeats) =
        (merge_context.snapshots.clone(), merge_context.loop_heartbeats.clone());
    let mut snapshots = snapshots.lock().await;
    let mut merge = SourceMerger {
        manifests: Manifests::new(merge_context.reading.clone(), &merge_context.kinds),
        identities: PodIdentities::default(),
        identified: BTreeMap::new(),
        recalled: BTreeMap::new(),
        pending_records: Vec::new(),
        failed_writes: BTreeMap::new(),
        write_retry_at: None,
        merge_context,
    };
    merge.restore().await;
    let mut inventory = merge.merge_context.observed.inventory();
    let mut has_listed = inventory.borrow_and_update().is_some();
    let mut is_waiting = merge.publish(has_listed).await;
    loop {
        tokio::select! {
            snapshot = snapshots.recv() => {
                let Some((at, snapshot)) = snapshot else { return };
                merge.on_snapshot(at, &snapshot);
            }
            () = until(merge.write_retry_at) => {
                merge.retry_writes().await;
            }
            changed = inventory.changed(), if is_waiting => {
                if changed.is_err() {
                    return;
                }
                has_listed = inventory.borrow_and_update().is_some();
            }
            () = loop_heartbeats.beat_while_waiting("sources") => {}
        }
        is_waiting = merge.publish(has_listed).await;
    }
}

struct SourceMerger {
    merge_context: MergeContext,
    manifests: Manifests,
    identities: PodIdentities,
    /// What was published, by full name.
    identified: BTreeMap<String, (PodCandidate, IdentifiedPod)>,
    /// Pods of an earlier agent that no source has listed yet, by full name.
    recalled: BTreeMap<String, Arc<Pod>>,
    /// Records of the last snapshots, not written yet.
    pending_records: Vec<RecordChange>,
    /// Records that could not be written, by directory and name.
    failed_writes: BTreeMap<(&'static str, String), FailedWrite>,
    write_retry_at: Option<Instant>,
}

struct FailedWrite {
    record: RecordChange,
    /// It will fail again until the administrator changes something.
    is_refused: bool,
}

/// The result of merging all offers.
#[derive(Default)]
struct MergeResult {
    pods: Vec<IdentifiedPod>,
    without_uid: Vec<PodWithoutUid>,
    /// Pods that are not desired any more, or under another UID, as they were.
    ended: Vec<Arc<Pod>>,
    records: Vec<RecordChange>,
}

impl SourceMerger {
    async fn restore(&mut self) {
        let manifests = self.load(MANIFESTS_DIR).await;
        log_notices(self.manifests.restore(&manifests));
        let uids = self.load(UIDS_DIR).await;
        log_notices(self.identities.restore(&uids));
        for (full_name, manifest) in self.identities.owners() {
            self.manifests.restore_owner(full_name, manifest);
        }
        let known = self.manifests.all().filter_map(|offer| self.identities.recorded(offer));
        self.recalled = known.map(|pod| (pod.full_name(), pod)).collect();
    }

    async fn load(&self, dir: &'static str) -> Vec<(String, Vec<u8>)> {
        match self.merge_context.records.load(dir).await {
            Ok(loaded) => {
                for why in loaded.unreadable {
                    warn!(err = why, "Cannot read a record");
                }
                loaded.records
            }
            Err(error) => {
                error!(err = %error, dir, "Cannot read records");
                Vec::new()
            }
        }
    }

    fn on_snapshot(&mut self, at: usize, snapshot: &SourceSnapshot) {
        let update = self.manifests.apply_snapshot(at, snapshot);
        log_notices(update.notices);
        self.pending_records.extend(update.records);
    }

    /// Writes records; a failed write is reported, and the pods go on.
    async fn write(&mut self, records: Vec<RecordChange>) {
        for record in records {
            let RecordChange { dir, name, content } = record.clone();
            let store = &self.merge_context.records;
            let write = async {
                match content {
                    Some(content) => store.save(dir, &name, content).await,
                    None => store.remove(dir, &name).await,
                }
            };
            let (why, is_refused) = match tokio::time::timeout(WRITE_TIMEOUT, write).await {
                Ok(Ok(())) => {
                    crate::crash_points::reached("uid-saved");
                    self.failed_writes.remove(&(dir, name.clone()));
                    self.merge_context.status_store.record_written(dir, &name);
                    continue;
                }
                Ok(Err(error)) => (error.to_string(), matches!(error, HostError::Permanent(_))),
                Err(_) => (format!("not written within {WRITE_TIMEOUT:?}"), false),
            };
            self.merge_context.status_store.record_write_failed(dir, &name, &why);
            let failed_write = FailedWrite { record, is_refused };
            let known = self.failed_writes.insert((dir, name.clone()), failed_write);
            if known.is_none() {
                error!(dir, name, err = why, "Cannot write a record; a restart would forget it");
            }
        }
        let all_refused = self.failed_writes.values().all(|each| each.is_refused);
        let pause = if all_refused { REFUSED_WRITE_RETRY_DELAY } else { WRITE_RETRY_DELAY };
        let at = Instant::now() + pause;
        let sooner = self.write_retry_at.map_or(at, |known| known.min(at));
        self.write_retry_at = (!self.failed_writes.is_empty()).then_some(sooner);
    }

    async fn retry_writes(&mut self) {
        self.write_retry_at = None;
        let records = self.failed_writes.values().map(|each| each.record.clone()).collect();
        self.write(records).await;
    }

    /// Whether pods wait for the runtime.
    async fn publish(&mut self, has_listed: bool) -> bool {
        let (candidates, notices) = self.manifests.candidates();
        log_notices(notices);
        let is_complete = self.manifests.all_sources_reported();
        let mut merge_result = MergeResult::default();
        let mut present = BTreeSet::new();
        for offer in candidates {
            present.insert(offer.pod.full_name());
            self.resolve_uid(offer, has_listed, &mut merge_result);
        }
        self.drop_absent(&present, &mut merge_result);
        let MergeResult { pods, without_uid, ended, records: of_uids } = merge_result;
        self.save_ending_pods(ended).await;
        let mut records = std::mem::take(&mut self.pending_records);
        records.extend(of_uids);
        if is_complete {
            records.extend(self.identities.retain_names(&present));
        }
        self.write(records).await;
        let state = SourcesState {
            all_have_spoken: is_complete,
            source_errors: self.manifests.source_errors(),
        };
        self.merge_context.status_store.set_sources_state(state);
        let waiting = WaitingPods::new(without_uid.iter().map(|each| &*each.pod));
        let is_waiting = !waiting.is_empty();
        let wanted = WantedPods { pods, waiting, is_complete };
        self.merge_context.status_store.set_without_uid(without_uid, &present);
        self.merge_context.wanted.send_if_modified(|known| {
            let changed = *known != wanted;
            if changed {
                *known = wanted;
            }
            changed
        });
        is_waiting || !has_listed
    }

    /// Finds the UID of an offered pod, or makes the pod wait for one.
    fn resolve_uid(
        &mut self,
        offer: PodCandidate,
        has_listed: bool,
        merge_result: &mut MergeResult,
    ) {
        let full_name = offer.pod.full_name();
        let known = self.identified.get(&full_name);
        if let Some((known, identified)) = known
            && *known == offer
        {
            merge_result.pods.push(identified.clone());
            return;
        }
        let meta = &offer.pod.metadata;
        let may_lend =
            !has_listed || self.merge_context.observed.is_unread(&meta.namespace, &meta.name);
        if may_lend && self.identities.may_adopt_running_uid(&offer) {
            let origin =
                PodOrigin { source: offer.source.into(), manifest: offer.manifest.clone() };
            let waiting = has_listed.then(waiting_for_same_name);
            merge_result.without_uid.push(PodWithoutUid { pod: offer.pod, origin, waiting });
            return;
        }
        let known = known.map(|(_, identified)| identified.pod.clone());
        let recalled = self.recalled.remove(&full_name);
        let before = known.or(recalled);
        let mut identified = self.identify(full_name, offer);
        let uid = &identified.pod.metadata.uid;
        merge_result.ended.extend(before.filter(|pod| pod.metadata.uid != *uid));
        merge_result.records.extend(identified.record.take());
        merge_result.pods.push(identified);
    }

    /// Drops pods that have no manifest any more.
    fn drop_absent(&mut self, present: &BTreeSet<String>, merge_result: &mut MergeResult) {
        self.identified.retain(|full_name, (_, identified)| {
            let stays = present.contains(full_name);
            if !stays {
                merge_result.ended.push(identified.pod.clone());
            }
            stays
        });
        if self.recalled.is_empty() {
            return;
        }
        // A source that has not been read yet may still have a manifest.
        let offered: BTreeSet<String> =
            self.manifests.all().map(|offer| offer.pod.full_name()).collect();
        self.recalled.retain(|full_name, pod| {
            let stays = offered.contains(full_name);
            if !stays {
                merge_result.ended.push(pod.clone());
            }
            stays
        });
    }

    /// Saves pods that end; after that their specifications may be dropped.
    async fn save_ending_pods(&self, ended: Vec<Arc<Pod>>) {
        let mut writes: KeyedTasks<String, ()> = KeyedTasks::default();
        for pod in ended {
            let saved = self.merge_context.saved.clone();
            let uid = pod.metadata.uid.to_string();
            writes.start(uid, "the record of a pod that ends", async move {
                saved.save_ending(&pod).await;
            });
        }
        while !writes.is_empty() {
            if let (uid, Err(Panicked(why))) = writes.next().await {
                error!(pod_uid = uid, panic = why, "Writing down a pod that ends panicked");
            }
        }
    }

    fn identify(&mut self, full_name: String, offer: PodCandidate) -> IdentifiedPod {
        let running = RuntimePods {
            sandboxes: self.running(|pod| pod.sandboxes.to_vec()),
            containers: self
                .running(|pod| pod.containers.iter().map(|c| c.record.clone()).collect()),
            ..RuntimePods::default()
        };
        let hash = |container: &Container| format!("{:x}", container_hash(container));
        let now = self.merge_context.clock.now();
        let at = IdentityContext { now, running: &running, container_hash: &hash };
        let identified = self.identities.identify(&offer, &at);
        info!(
            pod = full_name,
            pod_uid = %identified.pod.metadata.uid,
            manifest = offer.manifest,
            adopted = identified.adopted,
            "Pod is wanted"
        );
        let kept = IdentifiedPod { record: None, ..identified.clone() };
        self.identified.insert(full_name, (offer, kept));
        identified
    }

    fn running<T>(&self, part: impl Fn(&pod_lifecycle::ObservedPod) -> Vec<T>) -> Vec<T> {
        self.merge_context.observed.all().iter().flat_map(|(_, pod)| part(pod)).collect()
    }
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// The reason of a pod that waits until a pod of its name can be read.
fn waiting_for_same_name() -> WaitReason {
    WaitReason {
        why: "the container runtime has a pod of this name that cannot be read; it may be this one"
            .to_owned(),
        next_step: "it goes on by itself once that pod can be read from the container runtime"
            .to_owned(),
    }
}

fn log_notices(notices: Vec<Notice>) {
    for notice in notices {
        match &notice {
            Notice::Error(text) => error!("{text}"),
            Notice::Warning(text) => warn!("{text}"),
            Notice::Information(text) => info!("{text}"),
        }
    }
}
