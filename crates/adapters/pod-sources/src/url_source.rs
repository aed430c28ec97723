//! Manifests from a URL, polled.
//!
//! Rule: unchanged content is not reported again; while a server fails, its last content stands. An
//! invalid URL is a source too, one that never reports content: the pods from the time when the URL
//! was valid must not count as removed. An empty response means that there are no pods, as upstream
//! has it (config/http.go). Proxies from the environment are not used.

use std::path::{Path, PathBuf};
use std::time::Duration;

use http_once::Target;
use ports::PortFuture;
use ports::pod_sources::{ManifestContent, ManifestFile, ManifestSource, SourceTelling};
use tokio::time::Instant;

use crate::bundle::{Bundle, CA_BUNDLES};
use crate::fetch::fetch;
use crate::fingerprint::{Fingerprint, Fingerprints};

#[cfg(test)]
mod tests;

#[derive(Debug)]
pub struct UrlSource {
    /// The error if the URL is invalid.
    target: Result<Target, String>,
    headers: Vec<(String, String)>,
    period: Duration,
    bundle: Bundle,
    fingerprints: Fingerprints,
    told: Option<Fingerprint>,
    ask_at: Instant,
}

impl UrlSource {
    /// `period` is the configuration's `httpCheckFrequency`.
    pub fn new(url: &str, headers: Vec<(String, String)>, period: Duration) -> Self {
        Self {
            target: Target::parse(url).map_err(|why| format!("staticPodURL: {why}")),
            headers,
            period,
            bundle: Bundle::new(CA_BUNDLES.iter().map(PathBuf::from).collect()),
            fingerprints: Fingerprints::default(),
            told: None,
            ask_at: Instant::now(),
        }
    }

    /// Verifies https servers with this bundle instead of the machine's.
    #[must_use]
    pub fn with_bundle(mut self, bundle: &Path) -> Self {
        self.bundle = Bundle::new(vec![bundle.to_owned()]);
        self
    }

    async fn tell(&mut self) -> SourceTelling {
        loop {
            if self.target.is_err() && self.told.is_some() {
                std::future::pending::<()>().await;
            }
            tokio::time::sleep_until(self.ask_at).await;
            let telling = self.ask().await;
            self.ask_at = Instant::now() + self.period;
            let print = self.fingerprints.of(&telling);
            if self.told != Some(print) {
                self.told = Some(print);
                return telling;
            }
        }
    }

    async fn ask(&mut self) -> SourceTelling {
        let target = match &self.target {
            Ok(target) => target,
            Err(why) => return SourceTelling::Unreachable(why.clone()),
        };
        // A redirect may lead to https; without a bundle it fails there.
        let tls = match self.bundle.settings().await {
            Ok(settings) => Some(settings),
            Err(why) if target.secure => return SourceTelling::Unreachable(why),
            Err(_) => None,
        };
        match fetch(target, &self.headers, tls).await {
            Err(why) => SourceTelling::Unreachable(why),
            Ok(bytes) if bytes.is_empty() => SourceTelling::All(Vec::new()),
            Ok(bytes) => SourceTelling::All(vec![ManifestFile {
                name: target.without_secrets(),
                content: ManifestContent::Bytes(bytes),
            }]),
        }
    }
}

impl ManifestSource for UrlSource {
    fn kind(&self) -> &'static str {
        "http"
    }

    fn next(&mut self) -> PortFuture<'_, SourceTelling> {
        Box::pin(self.tell())
    }
}
