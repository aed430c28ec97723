//! Logins from credential provider plugins: run when an image needs a login, once for all waiters.
//!
//! Rules: a recent response is reused. Of several requests for the same plugin and image one runs
//! it and all get the response, also if it is empty. A plugin runs at most a few times in parallel,
//! and a slow one delays only the images that it is run for. A plugin error is reported with plugin
//! and image; the pull goes on without it. `node-policy` decides which plugin is run and what a
//! response means.

use crate::metrics::{Metrics, names};
use node_policy::credential_providers::{AnswerCache, CredentialProvider};
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
const AT_ONCE: usize = 4;
/// A plugin has its own timeout; this one includes waiting for a free slot.
const LONGEST_WAIT: Duration = Duration::from_secs(180);

type Outcome = Result<RegistryLogins, String>;
type Questions = HashMap<String, Arc<OnceCell<Outcome>>>;

/// Cheap to clone.
#[derive(Clone)]
pub(super) struct ProviderLogins {
    programs: Arc<dyn CredentialPrograms>,
    providers: Arc<Vec<Provider>>,
    cache: Arc<Mutex<AnswerCache>>,
    metrics: Metrics,
    began: Instant,
}

struct Provider {
    about: CredentialProvider,
    turns: Semaphore,
    /// Requests in flight, by image.
    questions: Mutex<Questions>,
}

/// The plugins' logins for an image.
#[derive(Default)]
pub(super) struct ProviderAnswers {
    pub(super) logins: Vec<RegistryLogin>,
    /// One sentence per plugin that matched the image and failed.
    pub(super) troubles: Vec<String>,
}

impl ProviderLogins {
    pub(super) fn new(
        programs: Arc<dyn CredentialPrograms>,
        providers: Vec<CredentialProvider>,
        metrics: Metrics,
    ) -> Self {
        let providers = providers.into_iter().map(|about| Provider {
            about,
            turns: Semaphore::new(AT_ONCE),
            questions: Mutex::default(),
        });
        Self {
            programs,
            providers: Arc::new(providers.collect()),
            cache: Arc::default(),
            metrics,
            began: Instant::now(),
        }
    }

    pub(super) async fn for_image(&self, image: &str, service_account: &str) -> ProviderAnswers {
        let image = repository(image);
        let mut all = RegistryLogins::default();
        let mut troubles = Vec::new();
        for provider in self.providers.iter() {
            match self.of_one(provider, &image, service_account).await {
                Ok(logins) => all.extend(logins),
                Err(why) => {
                    let name = provider.about.name.as_str();
                    error!(
                        provider = name,
                        image,
                        err = why,
                        "Failed to provide credentials for image"
                    );
                    troubles.push(why);
                }
            }
        }
        ProviderAnswers { logins: all.matching(&image), troubles }
    }

    async fn of_one(&self, provider: &Provider, image: &str, account: &str) -> Outcome {
        if !provider.about.is_asked(image, account)? {
            return Ok(RegistryLogins::default());
        }
        if let Some(known) = self.known(provider, image) {
            return Ok(known);
        }
        let question = provider.questions().entry(image.to_owned()).or_default().clone();
        // If the first requester is dropped before the response, the next one runs the plugin.
        let outcome = question.get_or_init(|| self.ask(provider, image)).await.clone();
        let mut questions = provider.questions();
        if questions.get(image).is_some_and(|there| Arc::ptr_eq(there, &question)) {
            questions.remove(image);
        }
        outcome
    }

    async fn ask(&self, provider: &Provider, image: &str) -> Outcome {
        let about = &provider.about;
        let run = async {
            let turn = provider.turns.acquire().await;
            let _turn = turn.map_err(|_| "the agent is ending".to_owned())?;
            // The response for another image may apply to this one too.
            if let Some(known) = self.known(provider, image) {
                return Ok(known);
            }
            info!(v = 5, provider = about.name, image, "Asking a credential provider");
            let began = Instant::now();
            let answer = self.programs.ask(&about.name, about.request(image)).await;
            // upstream: pkg/credentialprovider/plugin/plugin.go (runPlugin)
            let name = [about.name.as_str()];
            self.metrics.took(&names::CREDENTIAL_PROGRAM_DURATION, &name, began.elapsed());
            if answer.is_err() {
                self.metrics.count(&names::CREDENTIAL_PROGRAM_ERRORS, &name);
            }
            let answer = about.read_answer(&answer.map_err(|error| error.to_string())?)?;
            self.cache().keep(about, image, &answer, self.began.elapsed());
            Ok(answer.logins)
        };
        tokio::time::timeout(LONGEST_WAIT, run).await.unwrap_or_else(|_| {
            Err(format!("credential provider {}: not asked within {LONGEST_WAIT:?}", about.name))
        })
    }

    fn known(&self, provider: &Provider, image: &str) -> Option<RegistryLogins> {
        self.cache().find(&provider.about.name, image, self.began.elapsed()).cloned()
    }

    fn cache(&self) -> MutexGuard<'_, AnswerCache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Provider {
    fn questions(&self) -> MutexGuard<'_, Questions> {
        self.questions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
