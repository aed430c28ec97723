//! Certificates for the programs in a bed: the bed's certificate authority and what it signs.
//!
//! Rule: keys never leave the bed's directory, and every bed has its own authority.

use std::fs;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose,
};

/// The subject of a certificate, as Kubernetes reads it: the common name is the user's name,
/// organizations are the user's groups.
#[derive(Debug, Clone, Default)]
pub struct CertificateSubject<'a> {
    pub common_name: &'a str,
    pub organization: Option<&'a str>,
    /// Names and addresses that a server serves under; empty for a client.
    pub alternative_names: &'a [&'a str],
}

/// The files of a key and its certificate.
#[derive(Debug, Clone)]
pub struct KeyAndCertificate {
    pub key: PathBuf,
    pub certificate: PathBuf,
}

/// A certificate authority with its files.
#[derive(Debug)]
pub struct CertificateAuthority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    dir: PathBuf,
    pub files: KeyAndCertificate,
}

impl CertificateAuthority {
    /// Creates an authority; its files, and those of the certificates it signs, are in the
    /// directory.
    ///
    /// # Errors
    /// When keys cannot be generated or written.
    pub fn make(dir: &Path, name: &str) -> Result<Self> {
        let mut parameters = CertificateParams::default();
        parameters.distinguished_name = DistinguishedName::new();
        parameters.distinguished_name.push(DnType::CommonName, name);
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        parameters.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::CrlSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        let key = KeyPair::generate().context("generate a key")?;
        let issuer = CertifiedIssuer::self_signed(parameters, key)
            .context("sign the authority's certificate")?;
        let files = write(dir, "authority", &issuer.key().serialize_pem(), &issuer.as_ref().pem())?;
        Ok(Self { issuer, dir: dir.to_owned(), files })
    }

    /// Signs a certificate and writes `<file>.key` and `<file>.crt`.
    ///
    /// # Errors
    /// When an alternative name is invalid, or files cannot be written.
    pub fn issue(&self, file: &str, subject: &CertificateSubject<'_>) -> Result<KeyAndCertificate> {
        let names: Vec<String> =
            subject.alternative_names.iter().map(|&name| name.to_owned()).collect();
        let mut parameters = CertificateParams::new(names)
            .with_context(|| format!("names of {file}: {:?}", subject.alternative_names))?;
        parameters.distinguished_name = DistinguishedName::new();
        parameters.distinguished_name.push(DnType::CommonName, subject.common_name);
        if let Some(organization) = subject.organization {
            parameters.distinguished_name.push(DnType::OrganizationName, organization);
        }
        parameters.key_usages =
            vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
        parameters.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ClientAuth, ExtendedKeyUsagePurpose::ServerAuth];
        parameters.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate().context("generate a key")?;
        let certificate =
            parameters.signed_by(&key, &self.issuer).with_context(|| format!("sign {file}"))?;
        write(&self.dir, file, &key.serialize_pem(), &certificate.pem())
    }
}

/// Writes a key that belongs to no certificate, for signing tokens, and its public half.
pub(super) fn write_signing_key(private: &Path, public: &Path) -> Result<()> {
    let key = KeyPair::generate().context("generate a key")?;
    write_private(private, &key.serialize_pem())?;
    fs::write(public, key.public_key_pem()).with_context(|| format!("write {}", public.display()))
}

fn write(dir: &Path, file: &str, key: &str, certificate: &str) -> Result<KeyAndCertificate> {
    let files = KeyAndCertificate {
        key: dir.join(format!("{file}.key")),
        certificate: dir.join(format!("{file}.crt")),
    };
    write_private(&files.key, key)?;
    fs::write(&files.certificate, certificate)
        .with_context(|| format!("write {}", files.certificate.display()))?;
    Ok(files)
}

fn write_private(path: &Path, text: &str) -> Result<()> {
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut file = options.open(path).with_context(|| format!("create {}", path.display()))?;
    std::io::Write::write_all(&mut file, text.as_bytes())
        .with_context(|| format!("write {}", path.display()))
}
