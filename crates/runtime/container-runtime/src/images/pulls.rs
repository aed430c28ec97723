//! Pulls images from registries: one pull for each image and set of credentials.
//!
//! Rule: a second request for an image that is being pulled waits for the same result; one with
//! other credentials pulls by itself, because access with some credentials proves nothing about
//! others. A pull continues when its callers disconnect. Its progress can be watched.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base64::Engine as _;
use cri_wire::v1;
use image_store::{
    Digest, ImageNaming, ImageReference, ImageStore, ProgressListener, ProgressStep,
};
use registry_client::{
    HostSettings, Limits, Login, RegistryClient, RegistryCredentials, RegistrySource,
};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tonic::Code;

use crate::failure::{CallContext as _, CriError, Result};
use crate::settings::RuntimeSettings;

#[cfg(test)]
mod tests;

/// An image and the credentials to pull it with.
#[derive(Debug, Clone, Default)]
pub struct RegistryPullRequest {
    pub image: String,
    pub auth: Option<v1::AuthConfig>,
}

/// The progress of a pull.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PullProgress {
    pub image: String,
    /// Of all content that is known to be needed so far.
    pub bytes: u64,
    pub total_bytes: u64,
    pub layers: usize,
    pub total_layers: usize,
}

type RegistryPullKey = (ImageReference, Login);
type PullOutcome = Option<Result<String>>;

#[derive(Debug)]
struct PullInFlight {
    outcome: watch::Receiver<PullOutcome>,
    progress: watch::Receiver<PullProgress>,
}

/// Runs pulls and tracks those in flight.
#[derive(Debug)]
pub struct Puller {
    client: RegistryClient,
    in_flight: PullsInFlight,
}

/// All pulls in flight, and their watchers.
#[derive(Debug, Clone, Default)]
struct PullsInFlight {
    all: Arc<Mutex<HashMap<RegistryPullKey, PullInFlight>>>,
    progress_sender: watch::Sender<Vec<PullProgress>>,
}

impl PullsInFlight {
    fn list(&self) -> Vec<PullProgress> {
        let mut list: Vec<PullProgress> =
            locked(&self.all).values().map(|pull| pull.progress.borrow().clone()).collect();
        list.sort_by(|one, other| one.image.cmp(&other.image));
        list
    }

    /// Publishes a change.
    fn publish(&self) {
        if self.progress_sender.receiver_count() > 0 {
            self.progress_sender.send_replace(self.list());
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl From<registry_client::Error> for CriError {
    fn from(error: registry_client::Error) -> Self {
        let code = match &error {
            registry_client::Error::NotFound { .. } => Code::NotFound,
            _ => Code::Unknown,
        };
        Self::new(code, error.to_string())
    }
}

impl Puller {
    pub fn new(settings: &RuntimeSettings) -> Result<Self> {
        let mut hosts = BTreeMap::new();
        for (name, registry) in &settings.registries {
            let certificates = match &registry.certificates {
                Some(path) => std::fs::read(path)
                    .doing(format!("reading the certificates {}", path.display()))?,
                None => Vec::new(),
            };
            let host = HostSettings {
                mirrors: registry.mirrors.clone(),
                mirrors_only: registry.mirrors_only,
                plain_http: registry.plain_http,
                certificates,
            };
            hosts.insert(name.clone(), host);
        }
        let client = RegistryClient::new(hosts, Limits::default())?;
        Ok(Self { client, in_flight: PullsInFlight::default() })
    }

    /// All pulls in flight and their progress.
    pub fn in_flight(&self) -> Vec<PullProgress> {
        self.in_flight.list()
    }

    /// The same, as a watch; empty while nothing is pulled.
    pub fn watch(&self) -> watch::Receiver<Vec<PullProgress>> {
        self.in_flight.progress_sender.subscribe()
    }

    /// Pulls, or joins the same pull. Returns the image's id.
    pub async fn pull(
        &self,
        store: &Arc<ImageStore>,
        request: RegistryPullRequest,
    ) -> Result<String> {
        let name = ImageReference::parse(&request.image).map_err(|error| {
            CriError::plain(format!("failed to parse image reference {:?}: {error}", request.image))
        })?;
        let login = login(request.auth.as_ref())?;
        let mut outcome = self.join_or_start(store, (name, login));
        let done = outcome.wait_for(Option::is_some).await.map(|seen| seen.clone());
        match done {
            Ok(Some(outcome)) => outcome,
            _ => Err(CriError::new(Code::Internal, "the pull ended without an outcome")),
        }
    }

    /// The pull for this key, which is started if there is none.
    fn join_or_start(
        &self,
        store: &Arc<ImageStore>,
        key: RegistryPullKey,
    ) -> watch::Receiver<PullOutcome> {
        let mut in_flight = locked(&self.in_flight.all);
        if let Some(pull) = in_flight.get(&key) {
            return pull.outcome.clone();
        }
        let (sender, outcome) = watch::channel(None);
        let start = PullProgress { image: key.0.to_string(), ..Default::default() };
        let (progress_sender, progress) = watch::channel(start);
        in_flight.insert(key.clone(), PullInFlight { outcome: outcome.clone(), progress });
        drop(in_flight);
        let (client, store, all) = (self.client.clone(), Arc::clone(store), self.in_flight.clone());
        all.publish();
        tokio::spawn(async move {
            let watched = PullProgressSum {
                sender: progress_sender,
                all: all.clone(),
                content: Mutex::default(),
            };
            let pulled = tokio::spawn(pull(client, store, key.clone(), watched)).await;
            let outcome = pulled.unwrap_or_else(|error| {
                Err(CriError::new(Code::Internal, format!("the pull's task: {error}")))
            });
            locked(&all.all).remove(&key);
            all.publish();
            sender.send_replace(Some(outcome));
        });
        outcome
    }
}

async fn pull(
    client: RegistryClient,
    store: Arc<ImageStore>,
    (name, login): RegistryPullKey,
    watched: PullProgressSum,
) -> Result<String> {
    let doing = format!("failed to pull and unpack image \"{name}\"");
    let resolved = client
        .resolve(&name, &login)
        .await
        .doing(format!("{doing}: failed to resolve reference \"{name}\""))?;
    let handle = Handle::current();
    let top = resolved.descriptor.clone();
    let source = RegistrySource::new(client, resolved, handle);
    let naming = ImageNaming { names: vec![name], ..ImageNaming::default() };
    crate::failure::blocking(move || {
        let record = store.assemble(&source, &top, &naming, &watched)?;
        // Content that no image refers to any more is unused.
        Ok(record.id.to_string())
    })
    .await
    .doing(doing)
}

/// Sums up the progress of a pull.
struct PullProgressSum {
    sender: watch::Sender<PullProgress>,
    all: PullsInFlight,
    content: Mutex<HashMap<Digest, (u64, u64)>>,
}

impl ProgressListener for PullProgressSum {
    fn step(&self, step: ProgressStep) {
        match step {
            ProgressStep::Received { digest: Some(digest), done, total } => {
                self.content(digest, done, total.unwrap_or(done));
            }
            ProgressStep::Present { digest, bytes } => self.content(digest, bytes, bytes),
            ProgressStep::Layers { done, of } => {
                self.sender.send_modify(|progress| {
                    progress.layers = done;
                    progress.total_layers = of;
                });
                self.all.publish();
            }
            ProgressStep::Received { digest: None, .. } | ProgressStep::Unpacking { .. } => {}
        }
    }
}

impl PullProgressSum {
    fn content(&self, digest: Digest, done: u64, total: u64) {
        let mut content = locked(&self.content);
        content.insert(digest, (done, total));
        let bytes = content.values().map(|(done, _)| done).sum();
        let total_bytes = content.values().map(|(_, total)| total).sum();
        drop(content);
        self.sender.send_modify(|progress| {
            progress.bytes = bytes;
            progress.total_bytes = total_bytes;
        });
        self.all.publish();
    }
}

/// The caller's credentials, and the host they are for.
fn login(auth: Option<&v1::AuthConfig>) -> Result<Login> {
    let Some(auth) = auth else { return Ok(Login::default()) };
    let server = Some(auth.server_address.clone()).filter(|server| !server.is_empty());
    Ok(Login { credentials: credentials(auth)?, server })
}

/// upstream: containerd internal/cri/server/images/image_pull.go (ParseAuth)
fn credentials(auth: &v1::AuthConfig) -> Result<RegistryCredentials> {
    if !auth.username.is_empty() {
        let (user, password) = (auth.username.clone(), auth.password.clone());
        return Ok(RegistryCredentials::Password { user, password });
    }
    if !auth.identity_token.is_empty() {
        return Ok(RegistryCredentials::Identity { token: auth.identity_token.clone() });
    }
    if !auth.auth.is_empty() {
        let wrong = || CriError::invalid("auth is no base64 of user:password");
        let bytes = base64::engine::general_purpose::STANDARD
            .decode(auth.auth.trim())
            .map_err(|_| wrong())?;
        let text = String::from_utf8(bytes).map_err(|_| wrong())?;
        let (user, password) = text.split_once(':').ok_or_else(wrong)?;
        let password = password.trim_end_matches('\0');
        return Ok(RegistryCredentials::Password {
            user: user.to_owned(),
            password: password.to_owned(),
        });
    }
    if !auth.registry_token.is_empty() {
        return Ok(RegistryCredentials::Token { token: auth.registry_token.clone() });
    }
    Ok(RegistryCredentials::None)
}
