//! From tellings of sources to pods with UIDs.
//!
//! Rules: what is merged, kept and removed is decided in `pod-desired`; here records are written
//! before what depends on them is published. A pod without a remembered UID waits until the runtime
//! was listed once and a pod of its name was read, for a pod that already runs may lend its UID.
//! Nothing is forgotten before every source has spoken. A record that cannot be written is told of
//! and tried again.

use crate::board::{Board, PodOrigin, PodWithoutUid, SourcesState};
use crate::clock::Clock;
use crate::loop_beats::LoopBeats;
use crate::observed::Observed;
use pod_desired::{
    Identified, Identities, MANIFESTS_FOLDER, Manifests, Notice, Offer, Reading, Record,
    UIDS_FOLDER, WhenAndWhere,
};
use pod_lifecycle::Waiting;
use pod_manifest::static_pod::SourceKind;
use pod_model::pod::{Container, container_hash};
use ports::pod_host::Records;
use ports::pod_sources::{ManifestSource, SourceTelling};
use ports::runtime_objects::RuntimePods;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, mpsc, watch};
use tracing::{error, info, warn};

const LONGEST_WRITE: Duration = Duration::from_secs(30);
/// After a record could not be written.
const WRITE_AGAIN: Duration = Duration::from_secs(5);

/// The pods that this node should run.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct WantedPods {
    pub(crate) pods: Vec<Identified>,
    /// Every source has spoken: what is not here may go.
    pub(crate) is_whole: bool,
}

/// A source behind a lock, so that its task can begin anew after a panic.
pub(crate) type HeldSource = Arc<Mutex<Box<dyn ManifestSource>>>;

/// Passes on what one source tells, for ever.
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

/// What the merging task works with.
#[derive(Clone)]
pub(crate) struct Merging {
    pub(crate) reading: Reading,
    /// In the order of their numbers.
    pub(crate) kinds: Vec<SourceKind>,
    pub(crate) records: Arc<dyn Records>,
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
        unwritten: BTreeMap::new(),
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
                merge.hear(at, &telling).await;
            }
            () = tokio::time::sleep(WRITE_AGAIN), if !merge.unwritten.is_empty() => {
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
    /// Records that could not be written, by folder and name.
    unwritten: BTreeMap<(&'static str, String), Record>,
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

    async fn hear(&mut self, at: usize, telling: &SourceTelling) {
        let taken = self.manifests.tell(at, telling);
        say(taken.notices);
        self.write(taken.records).await;
    }

    /// Writes records; what cannot be written is told, and the pods go on.
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
            let why = match tokio::time::timeout(LONGEST_WRITE, write).await {
                Ok(Ok(())) => {
                    crate::crash_points::reached("uid-saved");
                    self.unwritten.remove(&(folder, name.clone()));
                    self.merging.board.record_written(folder, &name);
                    continue;
                }
                Ok(Err(error)) => error.to_string(),
                Err(_) => format!("not written within {LONGEST_WRITE:?}"),
            };
            self.merging.board.record_failed(folder, &name, &why);
            let known = self.unwritten.insert((folder, name.clone()), record);
            if known.is_none() {
                error!(folder, name, err = why, "Cannot write a record; a restart would forget it");
            }
        }
    }

    async fn write_again(&mut self) {
        let records: Vec<Record> = self.unwritten.values().cloned().collect();
        self.write(records).await;
    }

    /// Whether pods wait for a look at the runtime.
    async fn publish(&mut self, has_listed: bool) -> bool {
        let (offers, notices) = self.manifests.offers();
        say(notices);
        let is_whole = self.manifests.all_have_spoken();
        let mut pods = Vec::new();
        let mut present = BTreeSet::new();
        let mut without_uid = Vec::new();
        for offer in offers {
            let full_name = offer.pod.full_name();
            present.insert(full_name.clone());
            if let Some((known, identified)) = self.identified.get(&full_name)
                && *known == offer
            {
                pods.push(identified.clone());
                continue;
            }
            let meta = &offer.pod.metadata;
            let may_lend =
                !has_listed || self.merging.observed.is_unread(&meta.namespace, &meta.name);
            if may_lend && !self.identities.knows(&offer) {
                let origin =
                    PodOrigin { source: offer.source.to_owned(), manifest: offer.manifest.clone() };
                let waiting = has_listed.then(waits_for_its_like);
                without_uid.push(PodWithoutUid { pod: offer.pod, origin, waiting });
                continue;
            }
            pods.push(self.identify(full_name, offer).await);
        }
        self.identified.retain(|full_name, _| present.contains(full_name));
        if is_whole {
            let gone = self.identities.keep_only(&present);
            self.write(gone).await;
        }
        let state = SourcesState { all_have_spoken: is_whole, troubles: self.manifests.troubles() };
        self.merging.board.set_sources(state);
        // Pods that wait for the first listing are wanted: until they are here, nothing may go.
        let is_waiting = pods.len() < present.len();
        let is_whole = is_whole && !is_waiting;
        let wanted = WantedPods { pods, is_whole };
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

    async fn identify(&mut self, full_name: String, offer: Offer) -> Identified {
        let running = RuntimePods {
            sandboxes: self.running(|pod| pod.sandboxes.clone()),
            containers: self
                .running(|pod| pod.containers.iter().map(|c| c.record.clone()).collect()),
            ..RuntimePods::default()
        };
        let hash = |container: &Container| format!("{:x}", container_hash(container));
        let now = self.merging.clock.now();
        let at = WhenAndWhere { now, running: &running, container_hash: &hash };
        let mut identified = self.identities.identify(&offer, &at);
        if let Some(record) = identified.record.take() {
            self.write(vec![record]).await;
        }
        info!(
            pod = full_name,
            pod_uid = %identified.pod.metadata.uid,
            manifest = offer.manifest,
            adopted = identified.adopted,
            "Pod is wanted"
        );
        self.identified.insert(full_name, (offer, identified.clone()));
        identified
    }

    fn running<T>(&self, part: impl Fn(&pod_lifecycle::ObservedPod) -> Vec<T>) -> Vec<T> {
        self.merging.observed.all().iter().flat_map(|(_, pod)| part(pod)).collect()
    }
}

/// Of a pod whose like the runtime has and does not tell of.
fn waits_for_its_like() -> Waiting {
    Waiting {
        why: "the container runtime has a pod of this name that cannot be read; it may be this one"
            .to_owned(),
        next_step: "it goes on by itself once the container runtime tells of that pod".to_owned(),
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
