//! A manifest source that a test controls.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use ports::PortFuture;
use ports::pod_sources::{ManifestContent, ManifestFile, ManifestSource, SourceTelling};
use tokio::sync::Notify;

/// A source whose manifests a test sets.
#[derive(Clone, Default)]
pub struct Script {
    shared: Arc<(Mutex<VecDeque<SourceTelling>>, Notify)>,
}

impl Script {
    /// From now on the source has these manifests, and no others.
    pub fn tell(&self, files: &[(&str, &str)]) {
        let file = |(name, text): &(&str, &str)| ManifestFile {
            name: (*name).to_owned(),
            content: ManifestContent::Bytes(text.as_bytes().to_vec()),
        };
        self.say(SourceTelling::All(files.iter().map(file).collect()));
    }

    pub fn say(&self, telling: SourceTelling) {
        self.shared.0.lock().unwrap_or_else(PoisonError::into_inner).push_back(telling);
        self.shared.1.notify_one();
    }

    pub fn source(&self, kind: &'static str) -> Box<dyn ManifestSource> {
        Box::new(Told { script: self.clone(), kind })
    }
}

struct Told {
    script: Script,
    kind: &'static str,
}

impl ManifestSource for Told {
    fn kind(&self) -> &'static str {
        self.kind
    }
    fn next(&mut self) -> PortFuture<'_, SourceTelling> {
        Box::pin(async move {
            loop {
                let (queue, changed) = &*self.script.shared;
                let next = queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
                if let Some(telling) = next {
                    return telling;
                }
                changed.notified().await;
            }
        })
    }
}
