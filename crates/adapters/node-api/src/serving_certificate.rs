//! A listener's serving certificate, and the authorities of its clients.
//!
//! Rule: files are read again when asked, and if that fails the old ones stay in use. Without files
//! a self-signed certificate is created: kept in a directory if there is one (its key readable by
//! its owner only), otherwise in memory. It authenticates the listener only to clients that read it
//! from that directory, like kube-controller-manager's and the kubelet's own.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_RSA_SHA256,
};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::version::{TLS12, TLS13};
use rustls::{RootCertStore, ServerConfig, SupportedProtocolVersion};

/// A larger file is no certificate.
const MAX_PEM_BYTES: u64 = 1024 * 1024;
/// File names of a certificate that was created here.
const SAVED_CERTIFICATE: &str = "keelson-node-controller.crt";
const SAVED_KEY: &str = "keelson-node-controller.key";
/// Upstream's names, in its certificate directory.
const KUBELET_CERTIFICATE: &str = "kubelet.crt";
const KUBELET_KEY: &str = "kubelet.key";
const KUBELET_LIFETIME: Duration = Duration::from_secs(365 * 24 * 60 * 60);
/// For clients whose clocks are behind.
const CLOCK_SKEW: Duration = Duration::from_secs(60 * 60);

/// Where the certificate comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CertificateSource {
    Files {
        certificate: PathBuf,
        key: PathBuf,
    },
    /// Created here, for these names and addresses; kept in the directory, if there is one.
    SelfSigned {
        dir: Option<PathBuf>,
        names: Vec<String>,
    },
    /// Certificate and key in one file, once the cluster has signed them; until then those of the
    /// other files, if there are any.
    Signed {
        pair: PathBuf,
        until_then: Option<(PathBuf, PathBuf)>,
    },
    /// kubelet.crt and kubelet.key in `dir`, created for this host if neither exists.
    Kubelet {
        dir: PathBuf,
        host: String,
    },
}

/// TLS settings of a listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsSettings {
    pub source: CertificateSource,
    /// Reject TLS 1.2.
    pub tls13_only: bool,
    /// Suites of TLS 1.2 by their IANA names; empty for all.
    pub cipher_suites: Vec<String>,
    /// File of client certificate authorities.
    pub client_authorities: Option<PathBuf>,
}

/// A certificate with its key, in PEM.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct CertificatePair {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

impl CertificatePair {
    /// The same; None while the cluster has not signed the certificate.
    pub(crate) fn load_if_issued(source: &CertificateSource) -> Result<Option<Self>, String> {
        match source {
            CertificateSource::Signed { pair, until_then: None } if !pair.exists() => Ok(None),
            source => Self::load(source).map(Some),
        }
    }

    /// Reads or creates the pair.
    pub(crate) fn load(source: &CertificateSource) -> Result<Self, String> {
        match source {
            CertificateSource::Files { certificate, key } => {
                Ok(Self { certificate: read(certificate)?, key: read(key)? })
            }
            CertificateSource::Signed { pair, .. } if pair.exists() => {
                let pem = read(pair)?;
                Ok(Self { certificate: pem.clone(), key: pem })
            }
            CertificateSource::Signed { until_then: Some((certificate, key)), .. } => {
                Ok(Self { certificate: read(certificate)?, key: read(key)? })
            }
            CertificateSource::Signed { pair, until_then: None } => {
                Err(format!("{}: the cluster has not signed it yet", pair.display()))
            }
            CertificateSource::SelfSigned { dir: None, names } => make(names),
            CertificateSource::SelfSigned { dir: Some(dir), names } => {
                let (certificate, key) = (dir.join(SAVED_CERTIFICATE), dir.join(SAVED_KEY));
                if certificate.exists() && key.exists() {
                    return Ok(Self { certificate: read(&certificate)?, key: read(&key)? });
                }
                let pair = make(names)?;
                fs::create_dir_all(dir).map_err(|error| failed(dir, &error))?;
                save(&key, &pair.key, 0o600)?;
                save(&certificate, &pair.certificate, 0o644)?;
                Ok(pair)
            }
            CertificateSource::Kubelet { dir, host } => kubelet_pair(dir, host),
        }
    }
}

/// upstream: cmd/kubelet/app/server.go InitializeTLS, client-go/util/cert
fn kubelet_pair(dir: &Path, host: &str) -> Result<CertificatePair, String> {
    let (certificate, key) = (dir.join(KUBELET_CERTIFICATE), dir.join(KUBELET_KEY));
    match (certificate.exists(), key.exists()) {
        (true, true) => Ok(CertificatePair { certificate: read(&certificate)?, key: read(&key)? }),
        (false, false) => {
            let pair = make_for_kubelet(host)
                .map_err(|error| format!("unable to generate self signed cert: {error}"))?;
            fs::create_dir_all(dir).map_err(|error| failed(dir, &error))?;
            save(&key, &pair.key, 0o600)?;
            save(&certificate, &pair.certificate, 0o644)?;
            Ok(pair)
        }
        (has_certificate, _) => {
            let missing = if has_certificate { &key } else { &certificate };
            Err(format!(
                "error reading {}, certificate and key must be supplied as a pair",
                missing.display()
            ))
        }
    }
}

/// A certificate signed by an authority whose key is discarded; the file has both certificates.
/// RSA, since cipher suites may be configured that allow nothing else.
fn make_for_kubelet(host: &str) -> Result<CertificatePair, rcgen::Error> {
    let now = SystemTime::now();
    let second = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let begin = now - CLOCK_SKEW;
    let params = |names: Vec<String>, name: String| {
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name.push(DnType::CommonName, name);
        (params.not_before, params.not_after) = (begin.into(), (begin + KUBELET_LIFETIME).into());
        params.key_usages =
            vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
        Ok::<_, rcgen::Error>(params)
    };
    let mut authority = params(Vec::new(), format!("{host}-ca@{second}"))?;
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.key_usages.push(KeyUsagePurpose::KeyCertSign);
    let authority_key = KeyPair::generate_for(&PKCS_RSA_SHA256)?;
    let authority_pem = authority.self_signed(&authority_key)?.pem();
    let mut leaf = params(vec![host.to_owned()], format!("{host}@{second}"))?;
    leaf.is_ca = IsCa::ExplicitNoCa;
    leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let key = KeyPair::generate_for(&PKCS_RSA_SHA256)?;
    let leaf = leaf.signed_by(&key, &Issuer::new(authority, authority_key))?;
    let certificate = format!("{}{authority_pem}", leaf.pem()).into_bytes();
    Ok(CertificatePair { certificate, key: key.serialize_pem().into_bytes() })
}

fn failed(path: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}", path.display())
}

pub(crate) fn read(path: &Path) -> Result<Vec<u8>, String> {
    use std::io::Read as _;
    let file = fs::File::open(path).map_err(|error| failed(path, &error))?;
    let mut bytes = Vec::new();
    file.take(MAX_PEM_BYTES + 1).read_to_end(&mut bytes).map_err(|error| failed(path, &error))?;
    if bytes.len() as u64 > MAX_PEM_BYTES {
        return Err(format!("{}: it has more than {MAX_PEM_BYTES} bytes", path.display()));
    }
    Ok(bytes)
}

fn save(path: &Path, bytes: &[u8], mode: u32) -> Result<(), String> {
    let new = path.with_extension("new");
    let written = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(mode)
        .open(&new)
        .and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_all()))
        .and_then(|()| fs::rename(&new, path));
    written.map_err(|error| failed(path, &error))
}

fn make(names: &[String]) -> Result<CertificatePair, String> {
    let failed = |error: rcgen::Error| format!("cannot make a certificate: {error}");
    let key = KeyPair::generate().map_err(failed)?;
    let mut params = CertificateParams::new(names.to_vec()).map_err(failed)?;
    params.distinguished_name.push(DnType::CommonName, "keelson-node-controller");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let certificate = params.self_signed(&key).map_err(failed)?;
    Ok(CertificatePair {
        certificate: certificate.pem().into_bytes(),
        key: key.serialize_pem().into_bytes(),
    })
}

/// TLS settings from the pair and the client certificate authorities (PEM).
pub(crate) fn server_config(
    pair: &CertificatePair,
    settings: &TlsSettings,
    authorities: &[Vec<u8>],
) -> Result<ServerConfig, String> {
    let verifier = client_verifier(authorities)?;
    server_config_with(pair, settings, verifier)
}

/// Verifies client certificates by these authorities (PEM); `None` if there are none.
pub(crate) fn client_verifier(
    authorities: &[Vec<u8>],
) -> Result<Option<Arc<dyn ClientCertVerifier>>, String> {
    let roots = roots(authorities);
    if roots.is_empty() {
        return Ok(None);
    }
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
        .allow_unauthenticated()
        .build()
        .map_err(|error| format!("authorities of client certificates: {error}"))?;
    Ok(Some(verifier))
}

/// The same with a verifier of client certificates; without one no certificate is requested.
pub(crate) fn server_config_with(
    pair: &CertificatePair,
    settings: &TlsSettings,
    verifier: Option<Arc<dyn ClientCertVerifier>>,
) -> Result<ServerConfig, String> {
    let provider = Arc::new(provider(&settings.cipher_suites)?);
    let both: &[&SupportedProtocolVersion] = &[&TLS13, &TLS12];
    let versions = if settings.tls13_only { &both[..1] } else { both };
    let builder = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .map_err(|error| error.to_string())?;
    let builder = match verifier {
        None => builder.with_no_client_auth(),
        Some(verifier) => builder.with_client_cert_verifier(verifier),
    };
    let chain = CertificateDer::pem_slice_iter(&pair.certificate)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| format!("certificate: {error}"))?;
    if chain.is_empty() {
        return Err("certificate: no certificate in it".to_owned());
    }
    let key = PrivateKeyDer::from_pem_slice(&pair.key).map_err(|error| format!("key: {error}"))?;
    let mut config = builder
        .with_single_cert(chain, key)
        .map_err(|error| format!("certificate and key: {error}"))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

fn roots(authorities: &[Vec<u8>]) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    for pem in authorities {
        let certificates = CertificateDer::pem_slice_iter(pem).filter_map(Result::ok);
        roots.add_parsable_certificates(certificates);
    }
    roots
}

/// Splits suites by name into those that are known and safe, and the others.
pub(crate) fn known_suites(names: &[String]) -> (Vec<String>, Vec<String>) {
    let known = aws_lc_rs::default_provider().cipher_suites;
    let is_known = |wanted: &&String| {
        let names = known.iter().filter_map(|suite| suite.suite().as_str());
        names.into_iter().any(|name| same_suite(name, wanted))
    };
    names.iter().cloned().partition(|name| is_known(&name))
}

/// The provider with the named TLS 1.2 suites; those of TLS 1.3 are always all offered.
fn provider(names: &[String]) -> Result<CryptoProvider, String> {
    let mut provider = aws_lc_rs::default_provider();
    if names.is_empty() {
        return Ok(provider);
    }
    let name = |suite: &rustls::SupportedCipherSuite| {
        suite.suite().as_str().unwrap_or_default().to_owned()
    };
    let known: Vec<String> = provider.cipher_suites.iter().map(name).collect();
    for wanted in names {
        // Go has two names without the hash.
        if !known.iter().any(|it| same_suite(it, wanted)) {
            return Err(format!(
                "cipher suite {wanted:?} is not known or not safe; expected some of {}",
                known.join(", ")
            ));
        }
    }
    provider.cipher_suites.retain(|suite| {
        suite.tls13().is_some() || names.iter().any(|wanted| same_suite(&name(suite), wanted))
    });
    Ok(provider)
}

fn same_suite(known: &str, wanted: &str) -> bool {
    known == wanted || known.strip_suffix("_SHA256") == Some(wanted)
}

#[cfg(test)]
mod tests;
