//! The manifests of every source, and the pods that they offer.
//!
//! Rules: a manifest that cannot be read, or has an error, keeps what its last good version offered
//! (a listed difference from the reference, which drops the pod); a manifest that is gone, or a pod
//! gone from a sound one, is no longer offered. The last good version is also a record on disk, so
//! that an agent that starts over a broken manifest still knows it. A pod name that two manifests
//! offer stays with the one that had it, otherwise with the first in order.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use document::problem::{Origin, Problem};
use pod_manifest::static_pod::{SourceKind, fnv128a};
use pod_manifest::{PodGates, StaticPodSource, StaticPods, Strictness, read_static_pods};
use pod_model::pod::Pod;
use ports::pod_sources::{ManifestContent, ManifestFile, SourceTelling};

use crate::notice::Notice;
use crate::record::Record;

mod saved;
#[cfg(test)]
mod tests;

/// The directory of the records of last good manifests.
pub const MANIFESTS_FOLDER: &str = "manifests";

/// How manifests are read on this node.
#[derive(Debug, Clone)]
pub struct Reading {
    pub node_name: String,
    pub gates: PodGates,
}

/// A pod that a manifest offers, without a UID of ours.
#[derive(Debug, Clone, PartialEq)]
pub struct Offer {
    /// The path or URL, for messages.
    pub manifest: String,
    pub source: &'static str,
    pub pod: Arc<Pod>,
    /// Of the manifest's bytes and of the pod as it was understood.
    pub bytes_hash: u128,
    pub pod_hash: u128,
}

/// The result of applying a snapshot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Taken {
    pub notices: Vec<Notice>,
    pub records: Vec<Record>,
}

#[derive(Debug)]
struct Source {
    kind: SourceKind,
    has_spoken: bool,
    /// It has reported, if only that it cannot be read now.
    was_heard: bool,
    /// By name. Reported by the source, or saved by an earlier agent.
    files: BTreeMap<String, File>,
    /// Why it could not be read last time.
    trouble: Option<String>,
}

#[derive(Debug, Default)]
struct File {
    /// The hash of its last reported content; None before this agent received it.
    told: Option<u128>,
    offers: Vec<Offer>,
    /// Its current error.
    trouble: Option<String>,
}

/// The manifests of all sources.
#[derive(Debug)]
pub struct Manifests {
    reading: Reading,
    sources: Vec<Source>,
    /// Which manifest had the pod of a full name last.
    holders: BTreeMap<String, String>,
    quarrels: BTreeSet<String>,
}

impl Manifests {
    pub fn new(reading: Reading, sources: &[SourceKind]) -> Self {
        let source = |kind: &SourceKind| Source {
            kind: *kind,
            has_spoken: false,
            was_heard: false,
            files: BTreeMap::new(),
            trouble: None,
        };
        Self {
            reading,
            sources: sources.iter().map(source).collect(),
            holders: BTreeMap::new(),
            quarrels: BTreeSet::new(),
        }
    }

    /// Loads the last good manifests that an earlier agent saved. Their pods are offered once their
    /// source still has the file, or reports that it cannot be read now.
    pub fn recall(&mut self, records: &[(String, Vec<u8>)]) -> Vec<Notice> {
        let mut notices = Vec::new();
        for (name, content) in records {
            let Some(saved) = saved::read(content) else {
                notices.push(Notice::Warning(format!(
                    "the saved manifest {MANIFESTS_FOLDER}/{name} cannot be read; it is left as it is"
                )));
                continue;
            };
            let bytes = saved.manifest.as_bytes();
            let Some(at) = self.sources.iter().position(|each| each.kind.word() == saved.source)
            else {
                continue;
            };
            let read = self.read(at, &saved.file, bytes);
            if let Some(source) = self.sources.get_mut(at) {
                let offers = offers_of(&saved.file, source.kind, bytes, read.pods);
                let file = File { told: None, offers, trouble: None };
                source.files.insert(saved.file, file);
            }
        }
        notices
    }

    /// The manifest that had a pod before this agent started keeps it.
    pub fn recall_holder(&mut self, full_name: &str, manifest: &str) {
        self.holders.insert(full_name.to_owned(), manifest.to_owned());
    }

    /// Applies a snapshot of source number `at`.
    pub fn tell(&mut self, at: usize, telling: &SourceTelling) -> Taken {
        let mut taken = Taken::default();
        let trouble = match telling {
            SourceTelling::Unreachable(why) => {
                Some(format!("{why}; pods that this source told of before are kept"))
            }
            SourceTelling::All(_) => None,
        };
        taken.notices.extend(trouble.clone().map(Notice::Error));
        if let Some(source) = self.sources.get_mut(at) {
            source.was_heard = true;
            source.trouble = trouble;
        }
        let SourceTelling::All(files) = telling else { return taken };
        for file in files {
            self.take_file(at, file, &mut taken);
        }
        let told: BTreeSet<&str> = files.iter().map(|file| file.name.as_str()).collect();
        let Some(source) = self.sources.get_mut(at) else { return taken };
        source.has_spoken = true;
        source.files.retain(|name, file| {
            let stays = told.contains(name.as_str());
            if !stays && (file.told.is_some() || !file.offers.is_empty()) {
                let pods = names(&file.offers);
                let text = format!("manifest {name} is gone, and with it {pods}");
                taken.notices.push(Notice::Information(text));
                taken.records.push(saved::forgotten(source.kind, name));
            }
            stays
        });
        taken
    }

    fn take_file(&mut self, at: usize, told: &ManifestFile, taken: &mut Taken) {
        let hash = content_hash(&told.content);
        let known = self.sources.get(at).and_then(|source| source.files.get(&told.name));
        if known.is_some_and(|file| file.told == Some(hash)) {
            return;
        }
        let (read, bytes) = match &told.content {
            ManifestContent::Bytes(bytes) => (self.read(at, &told.name, bytes), bytes.as_slice()),
            ManifestContent::Unreadable(why) => {
                let problem = Problem::error("", why.clone());
                (StaticPods { problems: vec![problem], ..StaticPods::default() }, [].as_slice())
            }
        };
        let Some(source) = self.sources.get_mut(at) else { return };
        let kind = source.kind;
        let file = source.files.entry(told.name.clone()).or_default();
        file.told = Some(hash);
        let (errors, warnings): (Vec<_>, Vec<_>) =
            read.problems.iter().partition(|problem| problem.is_error());
        let warnings = warnings.iter().map(|problem| Notice::Warning(problem.to_string()));
        taken.notices.extend(warnings);
        let sound = errors.is_empty();
        let mut offers = offers_of(&told.name, kind, bytes, read.pods);
        if sound {
            file.trouble = None;
            if offers != file.offers {
                taken.records.extend(saved::kept(kind, &told.name, bytes));
            }
        } else {
            let kept = unreplaced(&file.offers, &offers);
            let why = join(&errors);
            let doing = match kept.as_slice() {
                [] => match read.refused.as_slice() {
                    [] => "no pod runs from it".to_owned(),
                    refused => format!("not run: pod {}", refused.join(", ")),
                },
                kept => format!("{} kept as its last good version said", names(kept)),
            };
            let text = format!("manifest {}: {why}; {doing}", told.name);
            file.trouble = Some(text.clone());
            taken.notices.push(Notice::Error(text));
            offers.extend(kept);
        }
        file.offers = offers;
    }

    fn read(&self, at: usize, name: &str, bytes: &[u8]) -> StaticPods {
        let Some(source) = self.sources.get(at) else { return StaticPods::default() };
        let origin = Origin::File { path: Arc::from(name), line: 0, column: 0 };
        let how = StaticPodSource {
            node_name: &self.reading.node_name,
            kind: source.kind,
            strictness: Strictness::Lenient,
            gates: self.reading.gates,
        };
        read_static_pods(bytes, &origin, &how)
    }

    /// Whether every source has reported. Nothing may be removed before.
    pub fn all_have_spoken(&self) -> bool {
        self.sources.iter().all(|source| source.has_spoken)
    }

    /// Every pod of every manifest, including sources that have not reported yet; a name may occur
    /// twice.
    pub fn all(&self) -> impl Iterator<Item = &Offer> {
        let files = self.sources.iter().flat_map(|source| source.files.values());
        files.flat_map(|file| &file.offers)
    }

    /// The current errors of sources and manifests.
    pub fn troubles(&self) -> Vec<String> {
        let sources = self.sources.iter().filter_map(|source| source.trouble.clone());
        let files = self.sources.iter().flat_map(|source| source.files.values());
        let files = files.filter_map(|file| file.trouble.clone());
        sources.chain(files).chain(self.quarrels.iter().cloned()).collect()
    }

    /// The pods to run, one per full name and per UID, in order of source and manifest; and new
    /// notices about names that are offered twice.
    pub fn offers(&mut self) -> (Vec<Offer>, Vec<Notice>) {
        let held = self.held_by_unheard();
        let all: Vec<&Offer> = self.offers_of(true).collect();
        let mut chosen: BTreeMap<String, &Offer> = BTreeMap::new();
        for &offer in all.iter().filter(|offer| !held.contains(&offer.pod.full_name())) {
            let full_name = offer.pod.full_name();
            let holds = self.holders.get(&full_name) == Some(&offer.manifest);
            if holds || !chosen.contains_key(&full_name) {
                chosen.insert(full_name, offer);
            }
        }
        let mut uids: BTreeMap<&str, &Offer> = BTreeMap::new();
        let mut quarrels = BTreeSet::new();
        let mut result = Vec::new();
        for &offer in &all {
            let full_name = offer.pod.full_name();
            let Some(&winner) = chosen.get(&full_name) else { continue };
            if !std::ptr::eq(winner, offer) {
                quarrels.insert(quarrel(offer, winner, "name"));
                continue;
            }
            let uid = &*offer.pod.metadata.uid;
            if let Some(&winner) = uids.get(uid).filter(|_| !uid.is_empty()) {
                quarrels.insert(quarrel(offer, winner, "metadata.uid"));
                continue;
            }
            uids.insert(uid, offer);
            result.push(offer.clone());
        }
        let news = quarrels.difference(&self.quarrels);
        let notices = news.map(|text| Notice::Error(text.clone())).collect();
        // A source that has not reported yet may still have its pods.
        if self.sources.iter().all(|source| source.was_heard) {
            self.holders.clear();
        }
        let now = result.iter().map(|each| (each.pod.full_name(), each.manifest.clone()));
        self.holders.extend(now);
        self.quarrels = quarrels;
        (result, notices)
    }

    /// The offers of sources that have reported, or of those that have not.
    fn offers_of(&self, was_heard: bool) -> impl Iterator<Item = &Offer> {
        let sources = self.sources.iter().filter(move |source| source.was_heard == was_heard);
        sources.flat_map(|source| source.files.values()).flat_map(|file| &file.offers)
    }

    /// Names of pods held by a manifest whose source has not reported yet: no other manifest gets
    /// them before it has.
    fn held_by_unheard(&self) -> BTreeSet<String> {
        let unheard = self.offers_of(false).map(|offer| (offer.pod.full_name(), &offer.manifest));
        let held = unheard.filter(|(name, manifest)| self.holders.get(name) == Some(*manifest));
        held.map(|(name, _)| name).collect()
    }
}

fn quarrel(loser: &Offer, winner: &Offer, what: &str) -> String {
    format!(
        "manifest {}: pod {} has the same {what} as pod {} of manifest {}, which came first; \
         only that one runs",
        loser.manifest,
        loser.pod.full_name(),
        winner.pod.full_name(),
        winner.manifest
    )
}

fn offers_of(manifest: &str, kind: SourceKind, bytes: &[u8], pods: Vec<Pod>) -> Vec<Offer> {
    let bytes_hash = fnv128a(bytes);
    let offer = |pod: Pod| Offer {
        manifest: manifest.to_owned(),
        source: kind.word(),
        bytes_hash,
        pod_hash: pod_hash(&pod),
        pod: Arc::new(pod),
    };
    pods.into_iter().map(offer).collect()
}

/// The hash of the decoded pod, before it has an identity.
fn pod_hash(pod: &Pod) -> u128 {
    // A pod always serializes; if it ever did not, the hash of the bytes still distinguishes
    // versions.
    fnv128a(&serde_json::to_vec(pod).unwrap_or_default())
}

/// The earlier offers that no newer one stands in for.
fn unreplaced(earlier: &[Offer], newer: &[Offer]) -> Vec<Offer> {
    let replaced = |old: &Offer| newer.iter().any(|new| new.pod.full_name() == old.pod.full_name());
    earlier.iter().filter(|old| !replaced(old)).cloned().collect()
}

fn content_hash(content: &ManifestContent) -> u128 {
    match content {
        ManifestContent::Bytes(bytes) => fnv128a(bytes),
        ManifestContent::Unreadable(why) => !fnv128a(why.as_bytes()),
    }
}

fn names(offers: &[Offer]) -> String {
    match offers {
        [] => "no pod".to_owned(),
        [one] => format!("pod {}", one.pod.full_name()),
        many => {
            let names: Vec<String> = many.iter().map(|each| each.pod.full_name()).collect();
            format!("pods {}", names.join(", "))
        }
    }
}

fn join(problems: &[&Problem]) -> String {
    /// More than these do not help an operator.
    const SHOWN: usize = 10;
    let mut texts: Vec<String> = problems.iter().take(SHOWN).map(ToString::to_string).collect();
    if problems.len() > SHOWN {
        texts.push(format!("and {} more", problems.len() - SHOWN));
    }
    texts.join("; ")
}
