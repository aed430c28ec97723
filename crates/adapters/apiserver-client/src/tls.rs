//! Builds a connection's TLS settings from PEM bytes.
//!
//! Rule: the crypto provider is explicit, never the process-wide default. A certificate that does
//! not match its key is an error here, since that is what a half-finished rotation looks like.
//! Reads no files.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

use crate::secret::Secret;

/// The bytes that TLS settings are built from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TlsMaterial {
    /// `None`: the server is not verified.
    pub(crate) authority: Option<Secret>,
    pub(crate) certificate: Option<(Secret, Secret)>,
}

impl TlsMaterial {
    pub(crate) fn client_config(&self) -> Result<ClientConfig, String> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?;
        let builder = match &self.authority {
            Some(pem) => builder.with_root_certificates(roots(pem)?),
            None => builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(InsecureServerVerifier(provider))),
        };
        let mut config = match &self.certificate {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let chain = CertificateDer::pem_slice_iter(certificate.reveal())
                    .collect::<Result<Vec<_>, _>>()
                    .map_err(|error| format!("client certificate: {error}"))?;
                if chain.is_empty() {
                    return Err("client certificate: no certificate in it".to_owned());
                }
                let key = PrivateKeyDer::from_pem_slice(key.reveal())
                    .map_err(|error| format!("client key: {error}"))?;
                builder
                    .with_client_auth_cert(chain, key)
                    .map_err(|error| format!("client certificate and key: {error}"))?
            }
        };
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }
}

fn roots(pem: &Secret) -> Result<RootCertStore, String> {
    let certificates = CertificateDer::pem_slice_iter(pem.reveal())
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| format!("certificate authority: {error}"))?;
    let mut store = RootCertStore::empty();
    // A bundle may hold certificates that do not parse; one good one is enough.
    let (added, ignored) = store.add_parsable_certificates(certificates);
    if added == 0 {
        return Err(format!("certificate authority: no usable certificate ({ignored} unusable)"));
    }
    Ok(store)
}

/// Accepts any server, as `insecure-skip-tls-verify` asks; signatures are still checked, so that
/// the server at least owns the certificate's key.
#[derive(Debug)]
struct InsecureServerVerifier(Arc<CryptoProvider>);

impl ServerCertVerifier for InsecureServerVerifier {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
