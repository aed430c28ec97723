//! The desired pods and their changes: pods are added, one is stopped, all have ended. Pure except
//! for the lock that holds it.
//!
//! Rule: a pod is identified by namespace and name; the same pod again changes nothing, however its
//! manifest is written. A closed set accepts no pods: its agent is ending.

use super::contents::{self, ContentDocument};
use super::manifest::{self, PodManifest};
use super::pod_exit;
use ports::local_api::LocalPod;
use ports::pod_sources::{ManifestContent, ManifestFile};
use ports::{ContentName, ContentObject};
use std::sync::Arc;
use tokio::sync::watch;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WantedPod {
    pub(super) namespace: String,
    pub(super) name: String,
    /// The manifest's name in messages; unique per pod.
    pub(super) manifest: String,
    pub(super) text: Arc<str>,
    /// The ConfigMaps and Secrets that it uses.
    pub(super) contents: Vec<ContentDocument>,
    /// UID of the previous pod of this manifest: its end does not count for this one.
    pub(super) instead_of: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PodChange {
    New,
    Changed,
    /// Only what it uses has changed: it runs on, and gets it while it runs.
    Updated,
    Same,
}

impl PodChange {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Changed => "changed",
            Self::Updated => "updated",
            Self::Same => "same",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct DesiredPods {
    pub(super) pods: Vec<WantedPod>,
    /// Whether there ever was a pod.
    pub(super) had_any: bool,
    /// No more pods are accepted.
    pub(super) is_closed: bool,
}

impl DesiredPods {
    pub(super) fn of(pods: Vec<WantedPod>) -> Self {
        Self { had_any: !pods.is_empty(), pods, is_closed: false }
    }

    /// How this pod compares with the desired ones.
    pub(super) fn compare(&self, pod: &WantedPod) -> PodChange {
        let Some(known) = self.pods.iter().find(|known| is_same_pod(known, pod)) else {
            return PodChange::New;
        };
        let is_same =
            known.text.trim() == pod.text.trim() || manifest::is_same_spec(&known.text, &pod.text);
        match (is_same, contents::are_same(&known.contents, &pod.contents)) {
            (true, true) => PodChange::Same,
            (true, false) => PodChange::Updated,
            (false, _) => PodChange::Changed,
        }
    }

    /// The known pod with what another manifest of it uses.
    pub(super) fn with_contents_of(&self, pod: &WantedPod) -> Option<WantedPod> {
        let known = self.pods.iter().find(|known| is_same_pod(known, pod))?;
        Some(WantedPod { contents: pod.contents.clone(), ..known.clone() })
    }

    /// The object of this name that a pod uses.
    pub(super) fn content(&self, name: &ContentName) -> Option<ContentObject> {
        let mut all = self.pods.iter().flat_map(|pod| &pod.contents);
        let found = all.find(|document| document.content.name == *name)?;
        Some(found.content.object.clone())
    }

    /// An object of the given pods that another pod uses with other content: one name would have
    /// two meanings.
    pub(super) fn conflict(&self, given: &[WantedPod]) -> Option<(ContentName, &WantedPod)> {
        let is_given = |known: &WantedPod| given.iter().any(|pod| is_same_pod(known, pod));
        let given_contents = given.iter().flat_map(|pod| &pod.contents);
        let mut pairs = given_contents.flat_map(|document| {
            let others = self.pods.iter().filter(|known| !is_given(known));
            others.map(move |known| (&document.content, known))
        });
        pairs.find_map(|(content, known)| {
            let differs = known
                .contents
                .iter()
                .any(|one| one.content.name == content.name && one.content != *content);
            differs.then(|| (content.name.clone(), known))
        })
    }

    pub(super) fn take(&mut self, pod: WantedPod) {
        self.pods.retain(|known| !is_same_pod(known, &pod));
        self.pods.push(pod);
        self.had_any = true;
    }

    /// Distinguishes one set of files from another, without a copy of their content.
    pub(super) fn version(&self) -> Vec<(String, Arc<str>)> {
        let mut version: Vec<(String, Arc<str>)> =
            self.pods.iter().map(|pod| (pod.manifest.clone(), pod.text.clone())).collect();
        version.sort();
        version
    }

    pub(super) fn files(&self) -> Vec<ManifestFile> {
        let file = |pod: &WantedPod| ManifestFile {
            name: pod.manifest.clone(),
            content: ManifestContent::Bytes(pod.text.as_bytes().to_vec()),
        };
        let mut files: Vec<ManifestFile> = self.pods.iter().map(file).collect();
        files.sort_by(|one, other| one.name.cmp(&other.name));
        files
    }

    /// The exit code once every desired pod has ended by itself.
    pub(super) fn overall_exit_code(&self, pods: &[LocalPod]) -> Option<u8> {
        let mut code = None;
        for wanted in &self.pods {
            let pod = pods.iter().find(|pod| {
                pod.manifest == wanted.manifest && wanted.instead_of.as_deref() != Some(&pod.uid)
            })?;
            let own = pod_exit::exit_code_of_ended(pod)?;
            code = code.or((own != 0).then_some(own));
        }
        (!self.pods.is_empty()).then(|| code.unwrap_or(0))
    }
}

fn is_same_pod(one: &WantedPod, other: &WantedPod) -> bool {
    (&one.namespace, &one.name) == (&other.namespace, &other.name)
}

/// The desired pods, shared by all tasks that change or follow them.
pub(super) type DesiredPodsSender = watch::Sender<DesiredPods>;

impl WantedPod {
    /// `manifest` is its name in messages.
    pub(super) fn of(pod: &PodManifest, manifest: String) -> Self {
        Self {
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
            manifest,
            text: pod.text.clone(),
            contents: pod.contents.clone(),
            instead_of: None,
        }
    }
}
