//! The manifests of the command line as a source of pods, until they are no longer wanted.

use super::manifest::PodManifest;
use ports::PortFuture;
use ports::pod_sources::{ManifestContent, ManifestFile, ManifestSource, SourceTelling};
use tokio::sync::watch;

pub(super) struct CommandLineSource {
    files: Vec<ManifestFile>,
    /// Whether the pods are wanted.
    wanted: watch::Receiver<bool>,
    told: Option<bool>,
}

impl CommandLineSource {
    pub(super) fn new(pods: &[PodManifest], wanted: watch::Receiver<bool>) -> Self {
        let file = |pod: &PodManifest| ManifestFile {
            name: pod.place.clone(),
            content: ManifestContent::Bytes(pod.text.clone().into_bytes()),
        };
        let mut files: Vec<ManifestFile> = pods.iter().map(file).collect();
        files.sort_by(|one, other| one.name.cmp(&other.name));
        Self { files, wanted, told: None }
    }
}

impl ManifestSource for CommandLineSource {
    fn kind(&self) -> &'static str {
        "file"
    }

    fn next(&mut self) -> PortFuture<'_, SourceTelling> {
        Box::pin(async move {
            let told = self.told;
            let wanted = self.wanted.wait_for(|wanted| Some(*wanted) != told).await;
            let Some(wanted) = wanted.ok().map(|wanted| *wanted) else {
                // Whoever could change their mind is gone.
                return std::future::pending().await;
            };
            self.told = Some(wanted);
            SourceTelling::All(if wanted { self.files.clone() } else { Vec::new() })
        })
    }
}
