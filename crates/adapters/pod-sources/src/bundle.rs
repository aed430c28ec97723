//! The certificate authorities that this machine trusts, as Go finds them.
//!
//! Rule: the first file of the list that exists; read again only when it changed.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use rustls::ClientConfig;

/// Where distributions keep their CA bundle (Go: crypto/x509/root_linux.go).
pub const CA_BUNDLES: &[&str] = &[
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/tls/cacert.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

#[derive(Debug)]
pub(crate) struct CaBundle {
    paths: Vec<PathBuf>,
    cached: Option<(PathBuf, SystemTime, Arc<ClientConfig>)>,
}

impl CaBundle {
    pub(crate) fn new(paths: Vec<PathBuf>) -> Self {
        Self { paths, cached: None }
    }

    pub(crate) async fn settings(&mut self) -> Result<Arc<ClientConfig>, String> {
        for path in &self.paths {
            let Ok(found) = tokio::fs::metadata(path).await else { continue };
            let changed = found.modified().map_err(|error| error.to_string())?;
            if let Some((cached, at, settings)) = &self.cached
                && cached == path
                && *at == changed
            {
                return Ok(settings.clone());
            }
            let shown = path.display();
            let bytes =
                tokio::fs::read(path).await.map_err(|error| format!("read {shown}: {error}"))?;
            let settings = http_once::tls_config_for_bundle(&bytes)
                .map_err(|error| format!("certificate authorities in {shown}: {error}"))?;
            self.cached = Some((path.clone(), changed, settings.clone()));
            return Ok(settings);
        }
        Err("this machine has no bundle of certificate authorities to check the server with".into())
    }
}
