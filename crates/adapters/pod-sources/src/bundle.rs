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
pub(crate) struct Bundle {
    places: Vec<PathBuf>,
    known: Option<(PathBuf, SystemTime, Arc<ClientConfig>)>,
}

impl Bundle {
    pub(crate) fn new(places: Vec<PathBuf>) -> Self {
        Self { places, known: None }
    }

    pub(crate) async fn settings(&mut self) -> Result<Arc<ClientConfig>, String> {
        for place in &self.places {
            let Ok(found) = tokio::fs::metadata(place).await else { continue };
            let changed = found.modified().map_err(|error| error.to_string())?;
            if let Some((known, at, settings)) = &self.known
                && known == place
                && *at == changed
            {
                return Ok(settings.clone());
            }
            let shown = place.display();
            let bytes =
                tokio::fs::read(place).await.map_err(|error| format!("read {shown}: {error}"))?;
            let settings = http_once::servers_signed_by(&bytes)
                .map_err(|error| format!("certificate authorities in {shown}: {error}"))?;
            self.known = Some((place.clone(), changed, settings.clone()));
            return Ok(settings);
        }
        Err("this machine has no bundle of certificate authorities to check the server with".into())
    }
}
