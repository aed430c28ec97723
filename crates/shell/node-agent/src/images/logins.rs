//! The node's own logins for an image, from docker config files and from credential provider
//! plugins, in this order.
//!
//! Rules: the first file that exists and can be read counts, the new format before the old one.
//! Read at each pull, so that a changed file needs no restart. No part of a login is logged.
//!
//! upstream: pkg/credentialprovider/config.go (its paths below HOME and the working directory are
//! not read: a service has neither)

use super::providers::ProviderLogins;
use crate::metrics::Metrics;
use node_policy::credential_providers::CredentialPlugin;
use node_policy::registry_logins::RegistryLogins;
use ports::runtime_objects::RegistryLogin;
use ports::{CredentialPrograms, HostTextFiles};
use std::sync::Arc;
use tracing::warn;

const NEW_NAME: &str = "config.json";
const OLD_NAME: &str = ".dockercfg";

#[derive(Clone)]
pub(crate) struct NodeLogins {
    texts: Arc<dyn HostTextFiles>,
    /// Files in the order in which they are tried, and whether they are in the old format.
    files: Arc<Vec<(String, bool)>>,
    providers: ProviderLogins,
}

/// The node's logins for an image's registry.
pub(super) struct NodeCredentials {
    /// To be tried in order; if empty, the pull is anonymous.
    pub(super) logins: Vec<RegistryLogin>,
    /// Why some may be missing, a sentence each.
    pub(super) errors: Vec<String>,
}

impl NodeLogins {
    /// `root` is the kubelet's root directory.
    pub(crate) fn new(
        texts: Arc<dyn HostTextFiles>,
        root: &str,
        programs: Arc<dyn CredentialPrograms>,
        providers: Vec<CredentialPlugin>,
        metrics: &Metrics,
    ) -> Self {
        let root = root.trim_end_matches('/');
        let files = vec![
            (format!("{root}/{NEW_NAME}"), false),
            (format!("/.docker/{NEW_NAME}"), false),
            (format!("{root}/{OLD_NAME}"), true),
            (format!("/{OLD_NAME}"), true),
        ];
        let providers = ProviderLogins::new(programs, providers, metrics.clone());
        Self { texts, files: Arc::new(files), providers }
    }

    pub(super) async fn for_image(&self, image: &str, service_account: &str) -> NodeCredentials {
        let mut logins = self.in_files(image).await;
        let known = self.providers.for_image(image, service_account).await;
        for login in known.logins {
            if !logins.contains(&login) {
                logins.push(login);
            }
        }
        NodeCredentials { logins, errors: known.errors }
    }

    async fn in_files(&self, image: &str) -> Vec<RegistryLogin> {
        for (path, is_old) in self.files.iter() {
            let text = match self.texts.read(path).await {
                Ok(Some(text)) => text,
                Ok(None) => continue,
                Err(error) => {
                    warn!(err = %error, "Cannot read the logins of registries");
                    continue;
                }
            };
            let logins = if *is_old {
                RegistryLogins::parse_old(&text)
            } else {
                RegistryLogins::parse(&text)
            };
            match logins {
                Ok(logins) => return logins.matching(image),
                Err(error) => {
                    warn!(path, err = error.to_string(), "Cannot use the logins of registries");
                }
            }
        }
        Vec::new()
    }
}
