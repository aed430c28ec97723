//! A manifest source that a test controls.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use ports::PortFuture;
use ports::pod_sources::{
    ManifestContent, ManifestFile, ManifestSource, SourceKind, SourceSnapshot,
};
use tokio::sync::Notify;

/// A source whose manifests a test sets.
#[derive(Clone, Default)]
pub struct ScriptedManifests {
    shared: Arc<(Mutex<VecDeque<SourceSnapshot>>, Notify)>,
}

impl ScriptedManifests {
    /// From now on the source has these manifests, and no others.
    pub fn emit(&self, files: &[(&str, &str)]) {
        let file = |(name, text): &(&str, &str)| ManifestFile {
            name: (*name).to_owned(),
            content: ManifestContent::Bytes(text.as_bytes().to_vec()),
        };
        self.emit_snapshot(SourceSnapshot::All(files.iter().map(file).collect()));
    }

    pub fn emit_snapshot(&self, snapshot: SourceSnapshot) {
        self.shared.0.lock().unwrap_or_else(PoisonError::into_inner).push_back(snapshot);
        self.shared.1.notify_one();
    }

    pub fn source(&self, kind: SourceKind) -> Box<dyn ManifestSource> {
        Box::new(ScriptedSource { script: self.clone(), kind })
    }
}

struct ScriptedSource {
    script: ScriptedManifests,
    kind: SourceKind,
}

impl ManifestSource for ScriptedSource {
    fn kind(&self) -> SourceKind {
        self.kind
    }
    fn next(&mut self) -> PortFuture<'_, SourceSnapshot> {
        Box::pin(async move {
            loop {
                let (queue, changed) = &*self.script.shared;
                let next = queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
                if let Some(snapshot) = next {
                    return snapshot;
                }
                changed.notified().await;
            }
        })
    }
}
