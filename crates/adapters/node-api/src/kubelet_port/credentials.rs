//! The port's certificate and its client certificate authorities, with reload.
//!
//! Rule: a handshake accepts any client certificate whose key the client has; its issuer is
//! verified for each request, against the current authorities. So a certificate of an unknown
//! authority breaks no connection, and an authority that is removed from the file stops counting at
//! once. If a file cannot be loaded, the old content stays in use.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{WebPkiSupportedAlgorithms, aws_lc_rs};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, ServerConfig, SignatureScheme};
use tracing::{info, warn};

use crate::serving_certificate::{
    CertificatePair, CertificateSource, TlsSettings, client_verifier, read, server_config_with,
};

/// The credentials in use, and the settings they are reloaded from.
pub(super) struct PortCredentials {
    settings: TlsSettings,
    current: Mutex<Arc<CurrentCredentials>>,
    stamps: Mutex<Vec<Option<Stamp>>>,
}

pub(super) struct CurrentCredentials {
    pair: Option<CertificatePair>,
    /// None while there is no certificate: then there is no connection either.
    pub(super) server: Option<Arc<ServerConfig>>,
    /// `None` if no authorities are configured: then no client certificate is requested.
    chain_verifier: Option<Arc<dyn ClientCertVerifier>>,
}

/// Changes when a file does.
type Stamp = (u64, u64, Option<SystemTime>);

impl PortCredentials {
    pub(super) fn load(settings: TlsSettings) -> Result<Self, String> {
        let stamps = stamps(&settings);
        let current = CurrentCredentials::new(
            &settings,
            CertificatePair::load_if_issued(&settings.source)?,
            chain_verifier(&settings)?,
        )?;
        Ok(Self { settings, current: Mutex::new(Arc::new(current)), stamps: Mutex::new(stamps) })
    }

    pub(super) fn current(&self) -> Arc<CurrentCredentials> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Loads the files that changed. Blocks on them.
    pub(super) fn reload(&self) {
        let found = stamps(&self.settings);
        {
            let mut stamps = self.stamps.lock().unwrap_or_else(PoisonError::into_inner);
            if *stamps == found {
                return;
            }
            *stamps = found;
        }
        let current = self.current();
        let keep_old = |error: String| {
            warn!(err = error, "Unable to load the port's credentials; the old ones stay in use");
        };
        let pair = CertificatePair::load_if_issued(&self.settings.source).map_err(keep_old);
        let chain_verifier = chain_verifier(&self.settings).map_err(keep_old);
        let pair = pair.unwrap_or_else(|()| current.pair.clone());
        let chain_verifier = chain_verifier.unwrap_or_else(|()| current.chain_verifier.clone());
        // A new certificate whose key has not been written yet must not delay the authorities.
        let loaded = CurrentCredentials::new(&self.settings, pair, chain_verifier.clone()).or_else(
            |error| {
                keep_old(error);
                CurrentCredentials::new(&self.settings, current.pair.clone(), chain_verifier)
            },
        );
        match loaded {
            Ok(loaded) => {
                *self.current.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(loaded);
                info!(
                    v = 2,
                    "Loaded the port's certificate and authorities of client certificates"
                );
            }
            Err(error) => keep_old(error),
        }
    }
}

fn chain_verifier(settings: &TlsSettings) -> Result<Option<Arc<dyn ClientCertVerifier>>, String> {
    let Some(file) = &settings.client_authorities else { return Ok(None) };
    let named = |error: &str| format!("unable to load client CA file {}: {error}", file.display());
    let chain_verifier = client_verifier(&[read(file)?]).map_err(|error| named(&error))?;
    chain_verifier.map(Some).ok_or_else(|| named("there is no certificate in it"))
}

fn stamps(settings: &TlsSettings) -> Vec<Option<Stamp>> {
    let pair: Vec<PathBuf> = match &settings.source {
        CertificateSource::Files { certificate, key } => vec![certificate.clone(), key.clone()],
        CertificateSource::Signed { pair, until_then } => {
            let others = until_then.iter().flat_map(|(certificate, key)| [certificate, key]);
            [pair].into_iter().chain(others).cloned().collect()
        }
        CertificateSource::Kubelet { dir, .. } => vec![dir.join("kubelet.crt")],
        CertificateSource::SelfSigned { .. } => Vec::new(),
    };
    pair.iter().chain(&settings.client_authorities).map(|path| stamp(path)).collect()
}

fn stamp(path: &Path) -> Option<Stamp> {
    let file = fs::metadata(path).ok()?;
    Some((file.ino(), file.len(), file.modified().ok()))
}

impl CurrentCredentials {
    fn new(
        settings: &TlsSettings,
        pair: Option<CertificatePair>,
        chain_verifier: Option<Arc<dyn ClientCertVerifier>>,
    ) -> Result<Self, String> {
        let any = chain_verifier.as_ref().map(|chain_verifier| {
            let authorities = chain_verifier.root_hint_subjects().to_vec();
            let algorithms = aws_lc_rs::default_provider().signature_verification_algorithms;
            Arc::new(AnyClientCertificate { authorities, algorithms })
                as Arc<dyn ClientCertVerifier>
        });
        let server = match &pair {
            Some(pair) => Some(Arc::new(server_config_with(pair, settings, any)?)),
            None => None,
        };
        Ok(Self { pair, server, chain_verifier })
    }

    /// Verifies this chain against the authorities, now. `None` without authorities.
    pub(super) fn chain_verifier(&self, chain: &[CertificateDer<'_>]) -> Option<Result<(), Error>> {
        let (chain_verifier, (first, others)) =
            (self.chain_verifier.as_ref()?, chain.split_first()?);
        Some(chain_verifier.verify_client_cert(first, others, UnixTime::now()).map(drop))
    }
}

/// Accepts any certificate in the handshake.
#[derive(Debug)]
struct AnyClientCertificate {
    /// Sent to clients, which choose a certificate by them.
    authorities: Vec<DistinguishedName>,
    algorithms: WebPkiSupportedAlgorithms,
}

/// Its key type is unknown, so that no signature can be checked. The verifier cannot read it
/// either, so that it never authenticates a caller.
fn is_unreadable(certificate: &CertificateDer<'_>) -> bool {
    ParsedCertificate::try_from(certificate).is_err()
}

impl ClientCertVerifier for AnyClientCertificate {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.authorities
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        if is_unreadable(certificate) {
            return Ok(HandshakeSignatureValid::assertion());
        }
        rustls::crypto::verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        if is_unreadable(certificate) {
            return Ok(HandshakeSignatureValid::assertion());
        }
        rustls::crypto::verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
