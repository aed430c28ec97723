//! The manifests of every source, and the pods that they offer.
//!
//! Rules: a manifest that cannot be read, or has an error, keeps what its last good version offered
//! (a listed difference from the reference, which drops the pod); a manifest that is gone, or a pod
//! gone from a sound one, is no longer offered. The last good version is also a record on disk, so
//! that an agent that starts over a broken manifest still knows it. A pod name that two manifests
//! offer stays with the one that had it, otherwise with the first in order.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use document::diagnostic::{Diagnostic, Origin};
use pod_manifest::static_pod::{SourceKind, fnv128a};
use pod_manifest::{PodGates, StaticPodSource, StaticPods, Strictness, read_static_pods};
use pod_model::pod::Pod;
use ports::pod_sources::{ManifestContent, ManifestFile, SourceSnapshot};

use crate::notice::Notice;
use crate::record::RecordChange;

mod saved;
#[cfg(test)]
mod tests;

/// The directory of the records of last good manifests.
pub const MANIFESTS_DIR: &str = "manifests";

/// How manifests are read on this node.
#[derive(Debug, Clone)]
pub struct ManifestOptions {
    pub node_name: String,
    pub gates: PodGates,
}

/// A pod that a manifest offers, without a UID of ours.
#[derive(Debug, Clone, PartialEq)]
pub struct PodCandidate {
    /// The path or URL, for messages.
    pub manifest: String,
    pub source: SourceKind,
    pub pod: Arc<Pod>,
    /// Of the manifest's bytes and of the pod as it was understood.
    pub bytes_hash: u128,
    pub pod_hash: u128,
}

/// The result of applying a snapshot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SourceUpdate {
    pub notices: Vec<Notice>,
    pub records: Vec<RecordChange>,
}

#[derive(Debug)]
struct ManifestSourceState {
    kind: SourceKind,
    has_reported: bool,
    /// It has reported, if only that it cannot be read now.
    has_responded: bool,
    /// By name. Reported by the source, or saved by an earlier agent.
    files: BTreeMap<String, ManifestFileState>,
    /// Why it could not be read last time.
    source_error: Option<String>,
}

#[derive(Debug, Default)]
struct ManifestFileState {
    /// The hash of its last reported content; None before this agent received it.
    last_hash: Option<u128>,
    candidates: Vec<PodCandidate>,
    /// Its current error.
    source_error: Option<String>,
}

/// The manifests of all sources.
#[derive(Debug)]
pub struct Manifests {
    reading: ManifestOptions,
    sources: Vec<ManifestSourceState>,
    /// Which manifest had the pod of a full name last.
    owners: BTreeMap<String, String>,
    conflicts: BTreeSet<String>,
}

impl Manifests {
    pub fn new(reading: ManifestOptions, sources: &[SourceKind]) -> Self {
        let source = |kind: &SourceKind| ManifestSourceState {
            kind: *kind,
            has_reported: false,
            has_responded: false,
            files: BTreeMap::new(),
            source_error: None,
        };
        Self {
            reading,
            sources: sources.iter().map(source).collect(),
            owners: BTreeMap::new(),
            conflicts: BTreeSet::new(),
        }
    }

    /// Loads the last good manifests that an earlier agent saved. Their pods are offered once their
    /// source still has the file, or reports that it cannot be read now.
    pub fn restore(&mut self, records: &[(String, Vec<u8>)]) -> Vec<Notice> {
        let mut notices = Vec::new();
        for (name, content) in records {
            let Some(saved) = saved::read(content) else {
                notices.push(Notice::Warning(format!(
                    "the saved manifest {MANIFESTS_DIR}/{name} cannot be read; it is left as it is"
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
                let candidates = candidates_of(&saved.file, source.kind, bytes, read.pods);
                let file = ManifestFileState { last_hash: None, candidates, source_error: None };
                source.files.insert(saved.file, file);
            }
        }
        notices
    }

    /// The manifest that had a pod before this agent started keeps it.
    pub fn restore_owner(&mut self, full_name: &str, manifest: &str) {
        self.owners.insert(full_name.to_owned(), manifest.to_owned());
    }

    /// Applies a snapshot of source number `at`.
    pub fn apply_snapshot(&mut self, at: usize, snapshot: &SourceSnapshot) -> SourceUpdate {
        let mut update = SourceUpdate::default();
        let source_error = match snapshot {
            SourceSnapshot::Unreachable(why) => {
                Some(format!("{why}; pods that this source told of before are kept"))
            }
            SourceSnapshot::All(_) => None,
        };
        update.notices.extend(source_error.clone().map(Notice::Error));
        if let Some(source) = self.sources.get_mut(at) {
            source.has_responded = true;
            source.source_error = source_error;
        }
        let SourceSnapshot::All(files) = snapshot else { return update };
        for file in files {
            self.update_file(at, file, &mut update);
        }
        let file_names: BTreeSet<&str> = files.iter().map(|file| file.name.as_str()).collect();
        let Some(source) = self.sources.get_mut(at) else { return update };
        source.has_reported = true;
        source.files.retain(|name, file| {
            let stays = file_names.contains(name.as_str());
            if !stays && (file.last_hash.is_some() || !file.candidates.is_empty()) {
                let pods = names(&file.candidates);
                let text = format!("manifest {name} is gone, and with it {pods}");
                update.notices.push(Notice::Information(text));
                update.records.push(saved::removed_record(source.kind, name));
            }
            stays
        });
        update
    }

    fn update_file(&mut self, at: usize, manifest: &ManifestFile, update: &mut SourceUpdate) {
        let hash = content_hash(&manifest.content);
        let known = self.sources.get(at).and_then(|source| source.files.get(&manifest.name));
        if known.is_some_and(|file| file.last_hash == Some(hash)) {
            return;
        }
        let (read, bytes) = match &manifest.content {
            ManifestContent::Bytes(bytes) => {
                (self.read(at, &manifest.name, bytes), bytes.as_slice())
            }
            ManifestContent::Unreadable(why) => {
                let diagnostic = Diagnostic::error("", why.clone());
                (
                    StaticPods { diagnostics: vec![diagnostic], ..StaticPods::default() },
                    [].as_slice(),
                )
            }
        };
        let Some(source) = self.sources.get_mut(at) else { return };
        let kind = source.kind;
        let file = source.files.entry(manifest.name.clone()).or_default();
        file.last_hash = Some(hash);
        let (errors, warnings): (Vec<_>, Vec<_>) =
            read.diagnostics.iter().partition(|diagnostic| diagnostic.is_error());
        let warnings = warnings.iter().map(|diagnostic| Notice::Warning(diagnostic.to_string()));
        update.notices.extend(warnings);
        let sound = errors.is_empty();
        let mut candidates = candidates_of(&manifest.name, kind, bytes, read.pods);
        if sound {
            file.source_error = None;
            if candidates != file.candidates {
                update.records.extend(saved::saved_record(kind, &manifest.name, bytes));
            }
        } else {
            let kept = not_replaced(&file.candidates, &candidates);
            let why = join(&errors);
            let doing = match kept.as_slice() {
                [] => match read.refused.as_slice() {
                    [] => "no pod runs from it".to_owned(),
                    refused => format!("not run: pod {}", refused.join(", ")),
                },
                kept => {
                    format!("{} kept as its last good version said", names(kept))
                }
            };
            let text = format!("manifest {}: {why}; {doing}", manifest.name);
            file.source_error = Some(text.clone());
            update.notices.push(Notice::Error(text));
            candidates.extend(kept);
        }
        file.candidates = candidates;
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
    pub fn all_sources_reported(&self) -> bool {
        self.sources.iter().all(|source| source.has_reported)
    }

    /// Every pod of every manifest, including sources that have not reported yet; a name may occur
    /// twice.
    pub fn all(&self) -> impl Iterator<Item = &PodCandidate> {
        let files = self.sources.iter().flat_map(|source| source.files.values());
        files.flat_map(|file| &file.candidates)
    }

    /// The current errors of sources and manifests.
    pub fn source_errors(&self) -> Vec<String> {
        let sources = self.sources.iter().filter_map(|source| source.source_error.clone());
        let files = self.sources.iter().flat_map(|source| source.files.values());
        let files = files.filter_map(|file| file.source_error.clone());
        sources.chain(files).chain(self.conflicts.iter().cloned()).collect()
    }

    /// The pods to run, one per full name and per UID, in order of source and manifest; and new
    /// notices about names that are offered twice.
    pub fn candidates(&mut self) -> (Vec<PodCandidate>, Vec<Notice>) {
        let held = self.reserved_by_unreported();
        let all: Vec<&PodCandidate> = self.candidates_of(true).collect();
        let mut chosen: BTreeMap<String, &PodCandidate> = BTreeMap::new();
        for &candidate in all.iter().filter(|candidate| !held.contains(&candidate.pod.full_name()))
        {
            let full_name = candidate.pod.full_name();
            let holds = self.owners.get(&full_name) == Some(&candidate.manifest);
            if holds || !chosen.contains_key(&full_name) {
                chosen.insert(full_name, candidate);
            }
        }
        let mut uids: BTreeMap<&str, &PodCandidate> = BTreeMap::new();
        let mut conflicts = BTreeSet::new();
        let mut result = Vec::new();
        for &candidate in &all {
            let full_name = candidate.pod.full_name();
            let Some(&winner) = chosen.get(&full_name) else { continue };
            if !std::ptr::eq(winner, candidate) {
                conflicts.insert(conflict(candidate, winner, "name"));
                continue;
            }
            let uid = &*candidate.pod.metadata.uid;
            if let Some(&winner) = uids.get(uid).filter(|_| !uid.is_empty()) {
                conflicts.insert(conflict(candidate, winner, "metadata.uid"));
                continue;
            }
            uids.insert(uid, candidate);
            result.push(candidate.clone());
        }
        let changes = conflicts.difference(&self.conflicts);
        let notices = changes.map(|text| Notice::Error(text.clone())).collect();
        // A source that has not reported yet may still have its pods.
        if self.sources.iter().all(|source| source.has_responded) {
            self.owners.clear();
        }
        let now = result.iter().map(|each| (each.pod.full_name(), each.manifest.clone()));
        self.owners.extend(now);
        self.conflicts = conflicts;
        (result, notices)
    }

    /// The offers of sources that have reported, or of those that have not.
    fn candidates_of(&self, has_responded: bool) -> impl Iterator<Item = &PodCandidate> {
        let sources =
            self.sources.iter().filter(move |source| source.has_responded == has_responded);
        sources.flat_map(|source| source.files.values()).flat_map(|file| &file.candidates)
    }

    /// Names of pods held by a manifest whose source has not reported yet: no other manifest gets
    /// them before it has.
    fn reserved_by_unreported(&self) -> BTreeSet<String> {
        let unheard = self
            .candidates_of(false)
            .map(|candidate| (candidate.pod.full_name(), &candidate.manifest));
        let held = unheard.filter(|(name, manifest)| self.owners.get(name) == Some(*manifest));
        held.map(|(name, _)| name).collect()
    }
}

fn conflict(loser: &PodCandidate, winner: &PodCandidate, what: &str) -> String {
    format!(
        "manifest {}: pod {} has the same {what} as pod {} of manifest {}, which came first; \
         only that one runs",
        loser.manifest,
        loser.pod.full_name(),
        winner.pod.full_name(),
        winner.manifest
    )
}

fn candidates_of(
    manifest: &str,
    kind: SourceKind,
    bytes: &[u8],
    pods: Vec<Pod>,
) -> Vec<PodCandidate> {
    let bytes_hash = fnv128a(bytes);
    let candidate = |pod: Pod| PodCandidate {
        manifest: manifest.to_owned(),
        source: kind,
        bytes_hash,
        pod_hash: pod_hash(&pod),
        pod: Arc::new(pod),
    };
    pods.into_iter().map(candidate).collect()
}

/// The hash of the decoded pod, before it has an identity.
fn pod_hash(pod: &Pod) -> u128 {
    // A pod always serializes; if it ever did not, the hash of the bytes still distinguishes
    // versions.
    fnv128a(&serde_json::to_vec(pod).unwrap_or_default())
}

/// The earlier offers that no newer one stands in for.
fn not_replaced(earlier: &[PodCandidate], newer: &[PodCandidate]) -> Vec<PodCandidate> {
    let replaced =
        |old: &PodCandidate| newer.iter().any(|new| new.pod.full_name() == old.pod.full_name());
    earlier.iter().filter(|old| !replaced(old)).cloned().collect()
}

fn content_hash(content: &ManifestContent) -> u128 {
    match content {
        ManifestContent::Bytes(bytes) => fnv128a(bytes),
        ManifestContent::Unreadable(why) => !fnv128a(why.as_bytes()),
    }
}

fn names(candidates: &[PodCandidate]) -> String {
    match candidates {
        [] => "no pod".to_owned(),
        [one] => format!("pod {}", one.pod.full_name()),
        many => {
            let names: Vec<String> = many.iter().map(|each| each.pod.full_name()).collect();
            format!("pods {}", names.join(", "))
        }
    }
}

fn join(diagnostics: &[&Diagnostic]) -> String {
    /// More than these do not help an operator.
    const SHOWN: usize = 10;
    let mut texts: Vec<String> = diagnostics.iter().take(SHOWN).map(ToString::to_string).collect();
    if diagnostics.len() > SHOWN {
        texts.push(format!("and {} more", diagnostics.len() - SHOWN));
    }
    texts.join("; ")
}
