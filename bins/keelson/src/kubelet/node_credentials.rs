//! The node's credentials for the API server: those of `--kubeconfig`, or new ones by
//! `--bootstrap-kubeconfig`.
//!
//! Rule: wiring, in upstream's order: a kubeconfig with a valid certificate counts; otherwise one is
//! written from the bootstrap kubeconfig, which names a certificate that is yet to be requested.
//! Nothing waits for it here.
//!
//! upstream: pkg/kubelet/certificate/bootstrap/bootstrap.go (LoadClientConfig)

use crate::config_files;
use anyhow::{Context, Result, anyhow};
use apiserver_client::access::{ClientCertificate, Material};
use apiserver_client::{ClusterAccess, kubeconfig_with_certificate, parse_kubeconfig};
use certificate_files::{CertificateDir, certificate_facts};
use node_config::NodeConfig;
use ports::ApiTime;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};
use tracing::{info, warn};

/// Where the node's identity comes from.
pub(super) struct NodeCredentials {
    pub(super) access: ClusterAccess,
    /// None if the credentials are files that others manage.
    pub(super) managed: Option<ManagedCertificate>,
}

/// A client certificate that the agent requests.
pub(super) struct ManagedCertificate {
    pub(super) store: CertificateDir,
    pub(super) bootstrap: Option<ClusterAccess>,
    pub(super) rotates: bool,
    pub(super) replace_now: bool,
}

/// None without `--kubeconfig`.
pub(super) fn node_credentials(config: &NodeConfig) -> Result<Option<NodeCredentials>> {
    let flags = config.flags();
    if flags.kubeconfig.is_empty() {
        return Ok(None);
    }
    let kubeconfig = Path::new(&flags.kubeconfig);
    let store = CertificateDir::client(Path::new(&flags.cert_dir));
    let rotates = config.settings().rotate_certificates;
    if flags.bootstrap_kubeconfig.is_empty() {
        let access = read_access(kubeconfig).context("--kubeconfig")?;
        return with_rotation(access, store, None, rotates).map(Some);
    }
    store.prepare(None, now())?;
    match valid_access(kubeconfig) {
        Ok(access) => {
            info!(
                v = 2,
                "Current kubeconfig file contents are still valid, no bootstrap necessary"
            );
            with_rotation(access, store, None, rotates).map(Some)
        }
        Err(why) => {
            info!(reason = format!("{why:#}"), "Bootstrapping: requesting a client certificate");
            let bootstrap = read_access(Path::new(&flags.bootstrap_kubeconfig))
                .context("unable to load bootstrap kubeconfig")?;
            let text = kubeconfig_with_certificate(&bootstrap, &store.current_path());
            write_kubeconfig(kubeconfig, &text)
                .with_context(|| format!("--kubeconfig {}", kubeconfig.display()))?;
            let access = ClusterAccess {
                certificate: Some(from_file(&store.current_path())),
                token: None,
                exec: None,
                ..bootstrap.clone()
            };
            with_rotation(access, store, Some(bootstrap), rotates).map(Some)
        }
    }
}

fn from_file(path: &Path) -> ClientCertificate {
    let material = Material::File(path.to_owned());
    ClientCertificate { certificate: material.clone(), key: material }
}

fn with_rotation(
    mut access: ClusterAccess,
    mut store: CertificateDir,
    bootstrap: Option<ClusterAccess>,
    rotates: bool,
) -> Result<NodeCredentials> {
    if !rotates {
        let managed = bootstrap.map(|bootstrap| ManagedCertificate {
            store,
            bootstrap: Some(bootstrap),
            rotates: false,
            replace_now: false,
        });
        return Ok(NodeCredentials { access, managed });
    }
    if access.exec.is_some() {
        warn!("rotateCertificates: the kubeconfig's credential plugin takes care of certificates");
        return Ok(NodeCredentials { access, managed: None });
    }
    let replace_now = match &access.certificate {
        Some(ClientCertificate {
            certificate: Material::Inline(certificate),
            key: Material::Inline(key),
        }) => store
            .prepare(Some((certificate.reveal(), key.reveal())), now())
            .context("the certificate of --kubeconfig")?,
        Some(ClientCertificate {
            certificate: Material::File(certificate),
            key: Material::File(key),
        }) => {
            store = store.with_files(certificate.clone(), key.clone());
            store.prepare(None, now())?
        }
        _ => store.prepare(None, now())?,
    };
    access.renewed_certificate = Some(store.current_path());
    let managed = ManagedCertificate { store, bootstrap, rotates, replace_now };
    Ok(NodeCredentials { access, managed: Some(managed) })
}

fn read_access(path: &Path) -> Result<ClusterAccess> {
    let file = config_files::read_file(path).map_err(|error| anyhow!("{error}"))?;
    Ok(parse_kubeconfig(&file.bytes, path, None)?)
}

/// The access of a kubeconfig whose client certificate is valid now.
fn valid_access(path: &Path) -> Result<ClusterAccess> {
    let access = read_access(path)?;
    let pair = access.certificate.as_ref().context("it has no client certificate")?;
    let pem = match &pair.certificate {
        Material::Inline(secret) => secret.reveal().to_vec(),
        Material::File(file) => {
            config_files::read_file(file).map_err(|error| anyhow!("{error}"))?.bytes
        }
    };
    let facts = certificate_facts(&pem).context("its client certificate cannot be read")?;
    if now() > facts.not_after {
        let end = facts.not_after.to_seconds_text();
        return Err(anyhow!("its client certificate has expired: {end}"));
    }
    Ok(access)
}

fn write_kubeconfig(path: &Path, text: &str) -> std::io::Result<()> {
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir)?;
    }
    let new = path.with_extension("new");
    let mut file =
        fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&new, path)
}

fn now() -> ApiTime {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    ApiTime::from_nanos(i64::try_from(since.as_nanos()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests;
