//! Logins from credential provider plugins: run when an image needs a login, once for all waiters.
//!
//! Rules: a recent response is reused. Of several requests for the same plugin and image one runs
//! it and all get the response, also if it is empty. A plugin runs at most a few times in parallel,
//! and a slow one delays only the images that it is run for. A plugin error is reported with plugin
//! and image; the pull goes on without it. `node-policy` decides which plugin is run and what a
//! response means.

use crate::metrics::{Metrics, names};
use node_policy::credential_providers::{CredentialCache, CredentialPlugin};
use node_policy::registry_logins::{RegistryLogins, repository};
use ports::CredentialPrograms;
use ports::runtime_objects::RegistryLogin;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{OnceCell, Semaphore};
use tokio::time::Instant;
use tracing::{error, info};

/// How often one plugin may run in parallel.
const MAX_RUNS_PER_PROVIDER: usize = 4;
/// A plugin has its own timeout; this one includes waiting for a free slot.
const WAIT_TIMEOUT: Duration = Duration::from_secs(180);

type LoginsResult = Result<RegistryLogins, String>;
type InFlightRequests = HashMap<String, Arc<OnceCell<LoginsResult>>>;

/// Cheap to clone.
#[derive(Clone)]
pub(super) struct ProviderLogins {
    programs: Arc<dyn CredentialPrograms>,
    providers: Arc<Vec<Provider>>,
    cache: Arc<Mutex<CredentialCache>>,
    metrics: Metrics,
    began: Instant,
}

struct Provider {
    config: CredentialPlugin,
    permits: Semaphore,
    /// Requests in flight, by image.
    in_flight: Mutex<InFlightRequests>,
}

/// The plugins' logins for an image.
#[derive(Default)]
pub(super) struct ProviderCredentials {
    pub(super) logins: Vec<RegistryLogin>,
    /// One sentence per plugin that matched the image and failed.
    pub(super) errors: Vec<String>,
}

impl ProviderLogins {
    pub(super) fn new(
        programs: Arc<dyn CredentialPrograms>,
        providers: Vec<CredentialPlugin>,
        metrics: Metrics,
    ) -> Self {
        let providers = providers.into_iter().map(|config| Provider {
            config,
            permits: Semaphore::new(MAX_RUNS_PER_PROVIDER),
            in_flight: Mutex::default(),
        });
        Self {
            programs,
            providers: Arc::new(providers.collect()),
            cache: Arc::default(),
            metrics,
            began: Instant::now(),
        }
    }

    pub(super) async fn for_image(
        &self,
        image: &str,
        service_account: &str,
    ) -> ProviderCredentials {
        let image = repository(image);
        let mut all = RegistryLogins::default();
        let mut errors = Vec::new();
        for provider in self.providers.iter() {
            match self.ask_provider(provider, &image, service_account).await {
                Ok(logins) => all.extend(logins),
                Err(why) => {
                    let name = provider.config.name.as_str();
                    error!(
                        provider = name,
                        image,
                        err = why,
                        "Failed to provide credentials for image"
                    );
                    errors.push(why);
                }
            }
        }
        ProviderCredentials { logins: all.matching(&image), errors }
    }

    async fn ask_provider(&self, provider: &Provider, image: &str, account: &str) -> LoginsResult {
        let applies = provider.config.applies_to(image, account);
        if !applies.map_err(|error| error.to_string())? {
            return Ok(RegistryLogins::default());
        }
        if let Some(known) = self.known(provider, image) {
            return Ok(known);
        }
        let question = provider.in_flight().entry(image.to_owned()).or_default().clone();
        // If the first requester is dropped before the response, the next one runs the plugin.
        let outcome = question.get_or_init(|| self.ask(provider, image)).await.clone();
        let mut in_flight = provider.in_flight();
        if in_flight.get(image).is_some_and(|there| Arc::ptr_eq(there, &question)) {
            in_flight.remove(image);
        }
        outcome
    }

    async fn ask(&self, provider: &Provider, image: &str) -> LoginsResult {
        let config = &provider.config;
        let run = async {
            let turn = provider.permits.acquire().await;
            let _turn = turn.map_err(|_| "the agent is ending".to_owned())?;
            // The response for another image may apply to this one too.
            if let Some(known) = self.known(provider, image) {
                return Ok(known);
            }
            info!(v = 5, provider = config.name, image, "Asking a credential provider");
            let began = Instant::now();
            let answer = self.programs.ask(&config.name, config.request(image)).await;
            // upstream: pkg/credentialprovider/plugin/plugin.go (runPlugin)
            let name = [config.name.as_str()];
            self.metrics.took(&names::CREDENTIAL_PROGRAM_DURATION, &name, began.elapsed());
            if answer.is_err() {
                self.metrics.count(&names::CREDENTIAL_PROGRAM_ERRORS, &name);
            }
            let answer = answer.map_err(|error| error.to_string())?;
            let answer = config.parse_response(&answer).map_err(|error| error.to_string())?;
            self.cache().keep(config, image, &answer, self.began.elapsed());
            Ok(answer.logins)
        };
        tokio::time::timeout(WAIT_TIMEOUT, run).await.unwrap_or_else(|_| {
            Err(format!("credential provider {}: not asked within {WAIT_TIMEOUT:?}", config.name))
        })
    }

    fn known(&self, provider: &Provider, image: &str) -> Option<RegistryLogins> {
        self.cache().find(&provider.config.name, image, self.began.elapsed()).cloned()
    }

    fn cache(&self) -> MutexGuard<'_, CredentialCache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Provider {
    fn in_flight(&self) -> MutexGuard<'_, InFlightRequests> {
        self.in_flight.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
