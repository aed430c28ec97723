//! The current credentials: read from files, plugins and inline data, and read again when they
//! change.
//!
//! Rule: what was valid stays in use until something better can be read, so a half-finished
//! rotation does no harm. TLS material that changed makes a new generation; connections of an older
//! one take no more requests. A new token makes no new generation.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hyper::header::HeaderValue;
use ports::ApiTime;
use rustls::ClientConfig;
use tokio::sync::{Mutex, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::access::{ClusterAccess, Material, TokenSource, Trust};
use crate::exec_plugin::{self, ExecCredential};
use crate::secret::Secret;
use crate::tls::TlsMaterial;

/// How old the credentials may be when a request is made.
const CREDENTIALS_MAX_AGE: Duration = Duration::from_secs(5);
/// How soon a plugin is run again after it failed.
const PLUGIN_RETRY_PAUSE: Duration = Duration::from_secs(10);

/// Where systems keep their CA bundle; the first that exists is used, as in Go.
const SYSTEM_BUNDLES: [&str; 5] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// The credentials of one request.
#[derive(Debug, Clone)]
pub(crate) struct CredentialsSnapshot {
    pub(crate) generation: u64,
    /// `None` for a server without TLS.
    pub(crate) tls: Option<Arc<ClientConfig>>,
    /// Marked as sensitive, so that its debug form is masked.
    pub(crate) authorization: Option<HeaderValue>,
}

#[derive(Debug)]
pub(crate) struct Credentials {
    access: ClusterAccess,
    state: Mutex<CredentialsState>,
    rejected: AtomicBool,
    generation: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct CredentialsState {
    snapshot: Option<Arc<CredentialsSnapshot>>,
    material: Option<TlsMaterial>,
    checked: Option<Instant>,
    exec: Option<(ExecCredential, Instant)>,
    /// A plugin that runs: it may take longer than the request that first needed it.
    plugin_task: JoinSet<Result<ExecCredential, String>>,
    system_bundle: Option<Secret>,
}

impl Credentials {
    pub(crate) fn new(access: ClusterAccess) -> Self {
        Self {
            access,
            state: Mutex::default(),
            rejected: AtomicBool::new(false),
            generation: watch::Sender::new(0),
        }
    }

    /// Notifies of a new generation.
    pub(crate) fn generations(&self) -> watch::Receiver<u64> {
        self.generation.subscribe()
    }

    /// The API server rejected them: read them again before the next request.
    pub(crate) fn rejected(&self) {
        self.rejected.store(true, Ordering::Relaxed);
    }

    /// The current credentials; reads them again if that is overdue, or if `force_reload` is set.
    pub(crate) async fn current(
        &self,
        force_reload: bool,
    ) -> Result<Arc<CredentialsSnapshot>, String> {
        let mut state = self.state.lock().await;
        let rejected = self.rejected.swap(false, Ordering::Relaxed);
        let checked = state.checked.is_some_and(|at| at.elapsed() < CREDENTIALS_MAX_AGE);
        if let Some(snapshot) = state.snapshot.clone()
            && checked
            && !rejected
            && !force_reload
            && !state.exec.as_ref().is_some_and(|(credential, _)| is_over(credential))
        {
            return Ok(snapshot);
        }
        match self.reload(&mut state, rejected).await {
            Ok(snapshot) => {
                state.checked = Some(Instant::now());
                state.snapshot = Some(snapshot.clone());
                Ok(snapshot)
            }
            Err(error) => match state.snapshot.clone() {
                Some(snapshot) => {
                    tracing::warn!(problem = %error, "credentials cannot be reloaded; the old ones stay");
                    state.checked = Some(Instant::now());
                    Ok(snapshot)
                }
                None => Err(error),
            },
        }
    }

    async fn reload(
        &self,
        state: &mut CredentialsState,
        rejected: bool,
    ) -> Result<Arc<CredentialsSnapshot>, String> {
        let authority = match &self.access.trust {
            _ if !self.access.server.tls => None,
            Trust::InsecureSkipVerify => None,
            Trust::System => Some(system_bundle(state).await?),
            Trust::Authority(material) => Some(read(material).await?),
        };
        let mut certificate = match (self.renewed_certificate().await?, &self.access.certificate) {
            (Some(renewed), _) => Some((renewed.clone(), renewed)),
            (None, Some(files)) => Some((read(&files.certificate).await?, read(&files.key).await?)),
            (None, None) => None,
        };
        let mut token = match &self.access.token {
            Some(TokenSource::Fixed(token)) => Some(token.clone()),
            Some(TokenSource::File(path)) => Some(read(&Material::File(path.clone())).await?),
            None => None,
        };
        if let Some(credential) =
            self.plugin_credential(state, authority.as_ref(), rejected).await?
        {
            certificate = credential.certificate.or(certificate);
            token = credential.token.or(token);
        }
        let authorization = token.as_ref().map(bearer).transpose()?;
        let (generation, tls) = if self.access.server.tls {
            let material = TlsMaterial { authority, certificate };
            self.tls_of(state, material)?
        } else {
            (0, None)
        };
        Ok(Arc::new(CredentialsSnapshot { generation, tls, authorization }))
    }

    /// What the file of the renewed certificate holds, once it is there.
    async fn renewed_certificate(&self) -> Result<Option<Secret>, String> {
        let Some(path) = &self.access.renewed_certificate else { return Ok(None) };
        match tokio::fs::try_exists(path).await {
            Ok(false) => Ok(None),
            _ => read(&Material::File(path.clone())).await.map(Some),
        }
    }

    /// The TLS settings in use if nothing changed, or a new generation.
    fn tls_of(
        &self,
        state: &mut CredentialsState,
        material: TlsMaterial,
    ) -> Result<(u64, Option<Arc<ClientConfig>>), String> {
        if let (Some(old), Some(snapshot)) = (&state.material, &state.snapshot)
            && *old == material
        {
            return Ok((snapshot.generation, snapshot.tls.clone()));
        }
        let config = Arc::new(material.client_config()?);
        state.material = Some(material);
        let generation = state.snapshot.as_ref().map_or(0, |snapshot| snapshot.generation + 1);
        self.generation.send_replace(generation);
        Ok((generation, Some(config)))
    }

    async fn plugin_credential(
        &self,
        state: &mut CredentialsState,
        authority: Option<&Secret>,
        rejected: bool,
    ) -> Result<Option<ExecCredential>, String> {
        let Some(plugin) = &self.access.exec else { return Ok(None) };
        if let Some((credential, obtained_at)) = &state.exec
            && !is_over(credential)
            && !(rejected && obtained_at.elapsed() >= PLUGIN_RETRY_PAUSE)
        {
            return Ok(Some(credential.clone()));
        }
        if state.plugin_task.is_empty() {
            state.plugin_task.spawn(exec_plugin::run_plugin(plugin.clone(), authority.cloned()));
        }
        let credential = match state.plugin_task.join_next().await {
            Some(Ok(answer)) => answer?,
            Some(Err(error)) => return Err(format!("credential plugin: {error}")),
            None => return Err("credential plugin: not asked".to_owned()),
        };
        state.exec = Some((credential.clone(), Instant::now()));
        Ok(Some(credential))
    }
}

fn is_over(credential: &ExecCredential) -> bool {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = ApiTime::from_nanos(i64::try_from(now.as_nanos()).unwrap_or(i64::MAX));
    credential.expires.is_some_and(|expires| expires <= now)
}

fn bearer(token: &Secret) -> Result<HeaderValue, String> {
    let mut text = b"Bearer ".to_vec();
    text.extend_from_slice(token.reveal().trim_ascii());
    let mut value = HeaderValue::from_bytes(&text)
        .map_err(|_| "the token has characters that no header may have".to_owned())?;
    value.set_sensitive(true);
    Ok(value)
}

async fn read(material: &Material) -> Result<Secret, String> {
    match material {
        Material::Inline(secret) => Ok(secret.clone()),
        Material::File(path) => match tokio::fs::read(path).await {
            Ok(content) if content.trim_ascii().is_empty() => {
                Err(format!("{}: the file is empty", path.display()))
            }
            Ok(content) => Ok(Secret::new(content)),
            Err(error) => Err(format!("{}: {error}", path.display())),
        },
    }
}

async fn system_bundle(state: &mut CredentialsState) -> Result<Secret, String> {
    if let Some(bundle) = &state.system_bundle {
        return Ok(bundle.clone());
    }
    for path in SYSTEM_BUNDLES {
        if let Ok(bundle) = read(&Material::File(path.into())).await {
            state.system_bundle = Some(bundle.clone());
            return Ok(bundle);
        }
    }
    Err(format!("none of {} can be read", SYSTEM_BUNDLES.join(", ")))
}
