//! One certificate in the directory: `PREFIX-current.pem`, a link to the dated file in use, and
//! `PREFIX.key.tmp`, the key of a request that is pending.
//!
//! Rule: a dated file is complete and on disk before the link names it. Where something that is no
//! link has the link's name, nothing is replaced: others manage it.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ports::certificates::StoreFuture;
use ports::{
    ApiTime, CertificateFacts, CertificateStore, CertificateStoreError, CertificateTemplate,
    SigningRequest,
};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use tokio::task::spawn_blocking;
use tracing::info;

use crate::parse::certificate_facts;
use crate::signing_request::{new_key, signing_request};

#[cfg(test)]
mod tests;

type Result<T> = std::result::Result<T, CertificateStoreError>;

/// A larger file is no certificate.
const MAX_PEM_BYTES: u64 = 1024 * 1024;
const KEY_MODE: u32 = 0o600;
const DIR_MODE: u32 = 0o755;
/// Characters in a line of PEM.
const PEM_LINE: usize = 64;

/// A certificate of the node, by the prefix of its files.
#[derive(Debug, Clone)]
pub struct CertificateDir {
    dir: PathBuf,
    prefix: &'static str,
    /// Certificate and key to use until there is one in the directory.
    files: Option<(PathBuf, PathBuf)>,
}

impl CertificateDir {
    /// The certificate by which the node is known to the API server.
    pub fn client(dir: &Path) -> Self {
        Self { dir: dir.to_owned(), prefix: "kubelet-client", files: None }
    }

    /// The certificate that the node's port serves with.
    pub fn serving(dir: &Path) -> Self {
        Self { dir: dir.to_owned(), prefix: "kubelet-server", files: None }
    }

    #[must_use]
    pub fn with_files(self, certificate: PathBuf, key: PathBuf) -> Self {
        Self { files: Some((certificate, key)), ..self }
    }

    /// Certificate and key in use, both in this file.
    pub fn current_path(&self) -> PathBuf {
        self.dir.join(format!("{}-current.pem", self.prefix))
    }

    /// Finishes a replacement that was interrupted, and puts the pair that was configured to use if
    /// there is no valid one at this time; then the result is true. Blocks.
    ///
    /// # Errors
    /// If files cannot be used, or the pair is none.
    pub fn prepare(&self, configured: Option<(&[u8], &[u8])>, now: ApiTime) -> Result<bool> {
        let (current, updated) = (self.current_path(), self.updated_path());
        if !current.exists() && updated.is_symlink() {
            fs::rename(&updated, &current).map_err(|error| failed(&updated, &error))?;
        }
        let Some((certificate, key)) = configured else { return Ok(false) };
        let valid = self.read_current()?.is_some_and(|facts| now <= facts.not_after);
        if valid {
            return Ok(false);
        }
        self.put_to_use(certificate, key)?;
        Ok(true)
    }

    fn updated_path(&self) -> PathBuf {
        self.dir.join(format!("{}-updated.pem", self.prefix))
    }

    fn key_path(&self) -> PathBuf {
        self.dir.join(format!("{}.key.tmp", self.prefix))
    }

    fn read_current(&self) -> Result<Option<CertificateFacts>> {
        let (current, separate) = (self.current_path(), self.files.as_ref());
        let pem = match (read(&current)?, separate) {
            (Some(pem), _) => Some((pem.clone(), pem, current)),
            (None, Some((certificate, key))) => match (read(certificate)?, read(key)?) {
                (Some(pem), Some(key)) => Some((pem, key, certificate.clone())),
                _ => None,
            },
            (None, None) => None,
        };
        let Some((certificate, key, path)) = pem else { return Ok(None) };
        match matching_pair(&certificate, &key) {
            Ok(_) => Ok(certificate_facts(&certificate)),
            Err(cause) => Err(CertificateStoreError::Unusable {
                cause: format!("{}: {cause}", path.display()),
            }),
        }
    }

    fn make_request(&self, template: &CertificateTemplate) -> Result<SigningRequest> {
        let path = self.key_path();
        let kept = read(&path)?.and_then(|key| String::from_utf8(key).ok());
        if let Some(request) = kept.and_then(|key| signing_request(&key, template).ok()) {
            return Ok(request);
        }
        let unusable = |error: rcgen::Error| CertificateStoreError::Unusable {
            cause: format!("cannot make a certificate signing request: {error}"),
        };
        let key = new_key().map_err(unusable)?;
        let request = signing_request(&key, template).map_err(unusable)?;
        self.make_dir()?;
        write_new(&path, key.as_bytes())?;
        Ok(request)
    }

    fn save_issued(&self, certificate: &[u8]) -> Result<CertificateFacts> {
        let path = self.key_path();
        let key = read(&path)?.ok_or_else(|| CertificateStoreError::Unusable {
            cause: format!("{}: the key of the request is gone", path.display()),
        })?;
        let facts = self.put_to_use(certificate, &key)?;
        remove(&path)?;
        Ok(facts)
    }

    fn put_to_use(&self, certificate: &[u8], key: &[u8]) -> Result<CertificateFacts> {
        let unusable = |cause: String| CertificateStoreError::Unusable { cause };
        let chain = matching_pair(certificate, key).map_err(unusable)?;
        let facts = certificate_facts(certificate)
            .ok_or_else(|| unusable("the certificate cannot be read".to_owned()))?;
        let mut text: String = chain.iter().map(|der| certificate_pem(der)).collect();
        text.push_str(String::from_utf8_lossy(key).trim());
        text.push('\n');
        self.make_dir()?;
        let dated = self.dir.join(format!("{}-{}.pem", self.prefix, stamp(SystemTime::now())));
        write_new(&dated, text.as_bytes())?;
        self.link_to(&dated)?;
        info!(v = 2, path = %dated.display(), "Certificate is in use");
        Ok(facts)
    }

    fn link_to(&self, dated: &Path) -> Result<()> {
        let (current, updated) = (self.current_path(), self.updated_path());
        for link in [&current, &updated] {
            if fs::symlink_metadata(link).is_ok_and(|found| !found.is_symlink()) {
                let cause = "expected a symlink, found a file".to_owned();
                return Err(CertificateStoreError::File {
                    path: link.display().to_string(),
                    cause,
                });
            }
        }
        remove(&updated)?;
        let target = std::path::absolute(dated).map_err(|error| failed(dated, &error))?;
        std::os::unix::fs::symlink(target, &updated)
            .and_then(|()| fs::rename(&updated, &current))
            .and_then(|()| fs::File::open(&self.dir)?.sync_all())
            .map_err(|error| failed(&current, &error))
    }

    fn make_dir(&self) -> Result<()> {
        let made = fs::DirBuilder::new().recursive(true).mode(DIR_MODE).create(&self.dir);
        made.map_err(|error| failed(&self.dir, &error))
    }
}

/// The chain, if the key is the one of its first certificate.
fn matching_pair(
    certificate: &[u8],
    key: &[u8],
) -> std::result::Result<Vec<CertificateDer<'static>>, String> {
    let chain: Vec<_> = CertificateDer::pem_slice_iter(certificate)
        .collect::<std::result::Result<_, _>>()
        .map_err(|error| format!("certificate: {error}"))?;
    if chain.is_empty() {
        return Err("certificate: no certificate in it".to_owned());
    }
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| format!("key: {error}"))?;
    CertifiedKey::from_der(chain.clone(), key, &aws_lc_rs::default_provider())
        .map_err(|error| format!("certificate and key: {error}"))?;
    Ok(chain)
}

fn certificate_pem(der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let lines = text.as_bytes().chunks(PEM_LINE).map(String::from_utf8_lossy);
    let lines: Vec<_> = lines.collect();
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
}

/// As upstream names dated files, in UTC.
fn stamp(now: SystemTime) -> String {
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let nanos = i64::try_from(since.as_nanos()).unwrap_or(i64::MAX);
    let text = ApiTime::from_nanos(nanos).to_seconds_text();
    text.trim_end_matches('Z').replace(['T', ':'], "-")
}

fn failed(path: &Path, error: &io::Error) -> CertificateStoreError {
    CertificateStoreError::File { path: path.display().to_string(), cause: error.to_string() }
}

/// The content; None if there is no such file.
fn read(path: &Path) -> Result<Option<Vec<u8>>> {
    let file = match fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(path, &error)),
    };
    let mut bytes = Vec::new();
    file.take(MAX_PEM_BYTES).read_to_end(&mut bytes).map_err(|error| failed(path, &error))?;
    Ok(Some(bytes))
}

/// Writes a file that is complete or not there, and that only its owner can read.
fn write_new(path: &Path, bytes: &[u8]) -> Result<()> {
    let new = path.with_extension("new");
    remove(&new)?;
    fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(KEY_MODE)
        .open(&new)
        .and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_all()))
        .and_then(|()| fs::rename(&new, path))
        .map_err(|error| failed(path, &error))
}

fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(path, &error)),
        _ => Ok(()),
    }
}

impl CertificateDir {
    /// Runs file work on a thread of its own.
    fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self) -> Result<T> + Send + 'static,
    ) -> StoreFuture<'static, T> {
        let store = self.clone();
        Box::pin(async move {
            let done = spawn_blocking(move || work(&store)).await;
            done.unwrap_or_else(|error| {
                Err(CertificateStoreError::Unusable { cause: error.to_string() })
            })
        })
    }
}

impl CertificateStore for CertificateDir {
    fn current(&self) -> StoreFuture<'_, Option<CertificateFacts>> {
        self.blocking(Self::read_current)
    }

    fn request<'a>(&'a self, template: &'a CertificateTemplate) -> StoreFuture<'a, SigningRequest> {
        let template = template.clone();
        self.blocking(move |store| store.make_request(&template))
    }

    fn save(&self, certificate: Vec<u8>) -> StoreFuture<'_, CertificateFacts> {
        self.blocking(move |store| store.save_issued(&certificate))
    }

    fn discard(&self) -> StoreFuture<'_, ()> {
        self.blocking(|store| remove(&store.key_path()))
    }
}
