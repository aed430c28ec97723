//! From snapshots of manifest sources to pods with UIDs.
//!
//! Rules: `pod-desired` decides what is merged, kept and removed; here records are written before
//! anything that depends on them is published. A pod whose name never had a UID waits until the
//! runtime was listed once and any pod of its name was read, because a running pod may lend its
//! UID; until then pods of its name are kept, and no others. No pod is dropped before every source
//! has been read and the pod is on disk as ending: an agent killed in between, or a manifest
//! removed while no agent runs, costs no pod its grace period and hooks. A record that cannot be
//! written is reported and retried, after a delay that depends on the error.

use crate::board::{Board, PodOrigin, PodWithoutUid, SourcesState};
use crate::branch::{Branch, Panicked};
use crate::clock::Clock;
use crate::loop_beats::LoopBeats;
use crate::observed::Observed;
use crate::pods::SavedMemories;
use pod_desired::{
    Identified, Identities, MANIFESTS_FOLDER, Manifests, Notice, Offer, Reading, Record,
    UIDS_FOLDER, WaitingPods, WhenAndWhere,
};
use pod_lifecycle::Waiting;
use pod_manifest::static_pod::SourceKind;
use pod_model::pod::{Container, Pod, container_hash};
use ports::pod_host::{HostError, Records};
use ports::pod_sources::{ManifestSource, SourceTelling};
use ports::runtime_objects::RuntimePods;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, mpsc, watch};
use tokio::time::Instant;
use tracing::{error, info, warn};

const LONGEST_WRITE: Duration = Duration::from_secs(30);
/// Retry delay of a record.
const WRITE_AGAIN: Duration = Duration::from_secs(5);
/// After a refused write: the administrator must change something first.
const WRITE_REFUSED_AGAIN: Duration = Duration::from_secs(300);

/// The pods that this node should run.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct WantedPods {
    pub(crate) pods: Vec<Identified>,
    /// Desired too, without a UID yet.
    pub(crate) waiting: WaitingPods,
    /// Every source has been read: pods that are not here may be removed.
    pub(crate) is_whole: bool,
}

impl WantedPods {
    /// Whether a pod of this name with an undesired UID may be removed.
    pub(crate) fn lets_go(&self, namespace: &str, name: &str) -> bool {
        self.is_whole && !self.waiting.may_adopt(namespace, name)
    }
}

/// A source behind a lock, so that its task can restart after a panic.
pub(crate) type HeldSource = Arc<Mutex<Box<dyn ManifestSource>>>;

/// Passes on the snapshots of one source, for ever.
pub(crate) async fn listen(
    at: usize,
    source: HeldSource,
    tellings: mpsc::Sender<(usize, SourceTelling)>,
) {
    let mut source = source.lock().await;
    loop {
        let telling = source.next().await;
        if tellings.send((at, telling)).await.is_err() {
            return;
        }
    }
}

/// The inputs of the merging task.
#[derive(Clone)]
pub(crate) struct Merging {
    pub(crate) reading: Reading,
    /// Ordered by source number.
    pub(crate) kinds: Vec<SourceKind>,
    pub(crate) records: Arc<dyn Records>,
    pub(crate) saved: SavedMemories,
    pub(crate) observed: Observed,
    pub(crate) clock: Clock,
    pub(crate) board: Board,
    pub(crate) tellings: Arc<Mutex<mpsc::Receiver<(usize, SourceTelling)>>>,
    pub(crate) wanted: watch::Sender<WantedPods>,
    pub(crate) beats: LoopBeats,
}

/// Merges for ever.
pub(crate) async fn merge(merging: Merging) {
    let (tellings, beats) = (merging.tellings.clone(), merging.beats.clone());
    let mut tellings = tellings.lock().await;
    let mut merge = Merge {
        manifests: Manifests::new(merging.reading.clone(), &merging.kinds),
        identities: Identities::default(),
        identified: BTreeMap::new(),
        recalled: BTreeMap::new(),
        told: Vec::new(),
        unwritten: BTreeMap::new(),
        write_again_at: None,
        merging,
    };
    merge.recall().await;
    let mut inventory = merge.merging.observed.inventory();
    let mut has_listed = inventory.borrow_and_update().is_some();
    let mut is_waiting = merge.publish(has_listed).await;
    loop {
        tokio::select! {
            telling = tellings.recv() => {
                let Some((at, telling)) = telling else { return };
                merge.hear(at, &telling);
            }
            () = until(merge.write_again_at) => {
                merge.write_again().await;
            }
            changed = inventory.changed(), if is_waiting => {
                if changed.is_err() {
                    return;
                }
                has_listed = inventory.borrow_and_update().is_some();
            }
            () = beats.keep("sources") => {}
        }
        is_waiting = merge.publish(has_listed).await;
    }
}

struct Merge {
    merging: Merging,
    manifests: Manifests,
    identities: Identities,
    /// What was published, by full name.
    identified: BTreeMap<String, (Offer, Identified)>,
    /// Pods of an earlier agent that no source has listed yet, by full name.
    recalled: BTreeMap<String, Arc<Pod>>,
    /// Records of the last snapshots, not written yet.
    told: Vec<Record>,
    /// Records that could not be written, by directory and name.
    unwritten: BTreeMap<(&'static str, String), Unwritten>,
    write_again_at: Option<Instant>,
}

struct Unwritten {
    record: Record,
    /// It will fail again until the administrator changes something.
    is_refused: bool,
}

/// The result of merging all offers.
#[derive(Default)]
struct Round {
    pods: Vec<Identified>,
    without_uid: Vec<PodWithoutUid>,
    /// Pods that are not desired any more, or under another UID, as they were.
    ended: Vec<Arc<Pod>>,
    records: Vec<Record>,
}

impl Merge {
    async fn recall(&mut self) {
        let manifests = self.load(MANIFESTS_FOLDER).await;
        say(self.manifests.recall(&manifests));
        let uids = self.load(UIDS_FOLDER).await;
        say(self.identities.recall(&uids));
        for (full_name, manifest) in self.identities.holders() {
            self.manifests.recall_holder(full_name, manifest);
        }
        let known = self.manifests.all().filter_map(|offer| self.identities.remembered(offer));
        self.recalled = known.map(|pod| (pod.full_name(), pod)).collect();
    }

    async fn load(&self, folder: &'static str) -> Vec<(String, Vec<u8>)> {
        match self.merging.records.load(folder).await {
            Ok(loaded) => {
                for why in loaded.unreadable {
                    warn!(err = why, "Cannot read a record");
                }
                loaded.records
            }
            Err(error) => {
                error!(err = %error, folder, "Cannot read records");
                Vec::new()
            }
        }
    }

    fn hear(&mut self, at: usize, telling: &SourceTelling) {
        let taken = self.manifests.tell(at, telling);
        say(taken.notices);
        self.told.extend(taken.records);
    }

    /// Writes records; a failed write is reported, and the pods go on.
    async fn write(&mut self, records: Vec<Record>) {
        for record in records {
            let Record { folder, name, content } = record.clone();
            let store = &self.merging.records;
            let write = async {
                match content {
                    Some(content) => store.save(folder, &name, content).await,
                    None => store.remove(folder, &name).await,
                }
            };
            let (why, is_refused) = match tokio::time::timeout(LONGEST_WRITE, write).await {
                Ok(Ok(())) => {
                    crate::crash_points::reached("uid-saved");
                    self.unwritten.remove(&(folder, name.clone()));
                    self.merging.board.record_written(folder, &name);
                    continue;
                }
                Ok(Err(error)) => (error.to_string(), matches!(error, HostError::Lasting(_))),
                Err(_) => (format!("not written within {LONGEST_WRITE:?}"), false),
            };
            self.merging.board.record_failed(folder, &name, &why);
            let unwritten = Unwritten { record, is_refused };
            let known = self.unwritten.insert((folder, name.clone()), unwritten);
            if known.is_none() {
                error!(folder, name, err = why, "Cannot write a record; a restart would forget it");
            }
        }
        let all_refused = self.unwritten.values().all(|each| each.is_refused);
        let pause = if all_refused { WRITE_REFUSED_AGAIN } else { WRITE_AGAIN };
        let at = Instant::now() + pause;
        let sooner = self.write_again_at.map_or(at, |known| known.min(at));
        self.write_again_at = (!self.unwritten.is_empty()).then_some(sooner);
    }

    async fn write_again(&mut self) {
        self.write_again_at = None;
        let records = self.unwritten.values().map(|each| each.record.clone()).collect();
        self.write(records).await;
    }

    /// Whether pods wait for the runtime.
    async fn publish(&mut self, has_listed: bool) -> bool {
        let (offers, notices) = self.manifests.offers();
        say(notices);
        let is_whole = self.manifests.all_have_spoken();
        let mut round = Round::default();
        let mut present = BTreeSet::new();
        for offer in offers {
            present.insert(offer.pod.full_name());
            self.settle(offer, has_listed, &mut round);
        }
        self.part_with(&present, &mut round);
        let Round { pods, without_uid, ended, records: of_uids } = round;
        self.write_down_ends(ended).await;
        let mut records = std::mem::take(&mut self.told);
        records.extend(of_uids);
        if is_whole {
            records.extend(self.identities.keep_only(&present));
        }
        self.write(records).await;
        let state = SourcesState { all_have_spoken: is_whole, troubles: self.manifests.troubles() };
        self.merging.board.set_sources(state);
        let waiting = WaitingPods::new(without_uid.iter().map(|each| &*each.pod));
        let is_waiting = !waiting.is_empty();
        let wanted = WantedPods { pods, waiting, is_whole };
        self.merging.board.set_without_uid(without_uid, &present);
        self.merging.wanted.send_if_modified(|known| {
            let changed = *known != wanted;
            if changed {
                *known = wanted;
            }
            changed
        });
        is_waiting || !has_listed
    }

    /// Finds the UID of an offered pod, or makes the pod wait for one.
    fn settle(&mut self, offer: Offer, has_listed: bool, round: &mut Round) {
        let full_name = offer.pod.full_name();
        let known = self.identified.get(&full_name);
        if let Some((known, identified)) = known
            && *known == offer
        {
            round.pods.push(identified.clone());
            return;
        }
        let meta = &offer.pod.metadata;
        let may_lend = !has_listed || self.merging.observed.is_unread(&meta.namespace, &meta.name);
        if may_lend && self.identities.may_borrow(&offer) {
            let origin =
                PodOrigin { source: offer.source.to_owned(), manifest: offer.manifest.clone() };
            let waiting = has_listed.then(waits_for_its_like);
            round.without_uid.push(PodWithoutUid { pod: offer.pod, origin, waiting });
            return;
        }
        let known = known.map(|(_, identified)| identified.pod.clone());
        let recalled = self.recalled.remove(&full_name);
        let before = known.or(recalled);
        let mut identified = self.identify(full_name, offer);
        let uid = &identified.pod.metadata.uid;
        round.ended.extend(before.filter(|pod| pod.metadata.uid != *uid));
        round.records.extend(identified.record.take());
        round.pods.push(identified);
    }

    /// Drops pods that have no manifest any more.
    fn part_with(&mut self, present: &BTreeSet<String>, round: &mut Round) {
        self.identified.retain(|full_name, (_, identified)| {
            let stays = present.contains(full_name);
            if !stays {
                round.ended.push(identified.pod.clone());
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
                round.ended.push(pod.clone());
            }
            stays
        });
    }

    /// Saves pods that end; after that their specifications may be dropped.
    async fn write_down_ends(&self, ended: Vec<Arc<Pod>>) {
        let mut writes: Branch<String, ()> = Branch::default();
        for pod in ended {
            let saved = self.merging.saved.clone();
            let uid = pod.metadata.uid.to_string();
            writes.start(uid, "the record of a pod that ends", async move {
                saved.keep_ending(&pod).await;
            });
        }
        while !writes.is_empty() {
            if let (uid, Err(Panicked(why))) = writes.next().await {
                error!(pod_uid = uid, panic = why, "Writing down a pod that ends panicked");
            }
        }
    }

    fn identify(&mut self, full_name: String, offer: Offer) -> Identified {
        let running = RuntimePods {
            sandboxes: self.running(|pod| pod.sandboxes.to_vec()),
            containers: self
                .running(|pod| pod.containers.iter().map(|c| c.record.clone()).collect()),
            ..RuntimePods::default()
        };
        let hash = |container: &Container| format!("{:x}", container_hash(container));
        let now = self.merging.clock.now();
        let at = WhenAndWhere { now, running: &running, container_hash: &hash };
        let identified = self.identities.identify(&offer, &at);
        info!(
            pod = full_name,
            pod_uid = %identified.pod.metadata.uid,
            manifest = offer.manifest,
            adopted = identified.adopted,
            "Pod is wanted"
        );
        let kept = Identified { record: None, ..identified.clone() };
        self.identified.insert(full_name, (offer, kept));
        identified
    }

    fn running<T>(&self, part: impl Fn(&pod_lifecycle::ObservedPod) -> Vec<T>) -> Vec<T> {
        self.merging.observed.all().iter().flat_map(|(_, pod)| part(pod)).collect()
    }
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// The reason of a pod that waits until a pod of its name can be read.
fn waits_for_its_like() -> Waiting {
    Waiting {
        why: "the container runtime has a pod of this name that cannot be read; it may be this one"
            .to_owned(),
        next_step: "it goes on by itself once that pod can be read from the container runtime"
            .to_owned(),
    }
}

fn say(notices: Vec<Notice>) {
    for notice in notices {
        match &notice {
            Notice::Error(text) => error!("{text}"),
            Notice::Warning(text) => warn!("{text}"),
            Notice::Information(text) => info!("{text}"),
        }
    }
}
