//! Manifests from a URL, polled.
//!
//! Rule: unchanged content is not reported again; while a server fails, its last content stands. An
//! invalid URL is a source too, one that never reports content: the pods from the time when the URL
//! was valid must not count as removed. An empty response means that there are no pods, as upstream
//! has it (config/http.go). Proxies from the environment are not used.

use std::path::{Path, PathBuf};
use std::time::Duration;

use http_once::RequestTarget;
use ports::PortFuture;
use ports::pod_sources::{
    ManifestContent, ManifestFile, ManifestSource, SourceKind, SourceSnapshot,
};
use tokio::time::Instant;

use crate::bundle::{CA_BUNDLES, CaBundle};
use crate::fetch::fetch;
use crate::fingerprint::{Fingerprint, Fingerprints};

#[cfg(test)]
mod tests;

#[derive(Debug)]
pub struct UrlSource {
    /// The error if the URL is invalid.
    target: Result<RequestTarget, String>,
    headers: Vec<(String, String)>,
    period: Duration,
    bundle: CaBundle,
    fingerprints: Fingerprints,
    last_reported: Option<Fingerprint>,
    fetch_at: Instant,
}

impl UrlSource {
    /// `period` is the configuration's `httpCheckFrequency`.
    pub fn new(url: &str, headers: Vec<(String, String)>, period: Duration) -> Self {
        Self {
            target: RequestTarget::parse(url).map_err(|reason| format!("staticPodURL: {reason}")),
            headers,
            period,
            bundle: CaBundle::new(CA_BUNDLES.iter().map(PathBuf::from).collect()),
            fingerprints: Fingerprints::default(),
            last_reported: None,
            fetch_at: Instant::now(),
        }
    }

    /// Verifies https servers with this bundle instead of the machine's.
    #[must_use]
    pub fn with_bundle(mut self, bundle: &Path) -> Self {
        self.bundle = CaBundle::new(vec![bundle.to_owned()]);
        self
    }

    async fn next_snapshot(&mut self) -> SourceSnapshot {
        loop {
            if self.target.is_err() && self.last_reported.is_some() {
                std::future::pending::<()>().await;
            }
            tokio::time::sleep_until(self.fetch_at).await;
            let snapshot = self.fetch_snapshot().await;
            self.fetch_at = Instant::now() + self.period;
            let fingerprint = self.fingerprints.of(&snapshot);
            if self.last_reported != Some(fingerprint) {
                self.last_reported = Some(fingerprint);
                return snapshot;
            }
        }
    }

    async fn fetch_snapshot(&mut self) -> SourceSnapshot {
        let target = match &self.target {
            Ok(target) => target,
            Err(reason) => return SourceSnapshot::Unreachable(reason.clone()),
        };
        // A redirect may lead to https; without a bundle it fails there.
        let tls = match self.bundle.settings().await {
            Ok(settings) => Some(settings),
            Err(reason) if target.secure => return SourceSnapshot::Unreachable(reason),
            Err(_) => None,
        };
        match fetch(target, &self.headers, tls).await {
            Err(reason) => SourceSnapshot::Unreachable(reason),
            Ok(bytes) if bytes.is_empty() => SourceSnapshot::All(Vec::new()),
            Ok(bytes) => SourceSnapshot::All(vec![ManifestFile {
                name: target.redacted_url(),
                content: ManifestContent::Bytes(bytes),
            }]),
        }
    }
}

impl ManifestSource for UrlSource {
    fn kind(&self) -> SourceKind {
        SourceKind::Url
    }

    fn next(&mut self) -> PortFuture<'_, SourceSnapshot> {
        Box::pin(self.next_snapshot())
    }
}
