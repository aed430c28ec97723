//! Credential provider plugins: which one is called for an image, the request, the meaning of its
//! response, and how long the response is cached.
//!
//! Rules: a plugin is called only for images that its patterns match, with the full name without
//! tag and digest. A response of another version or kind, or with an unknown field, is invalid;
//! errors name fields, never values, for any value may be a credential. Responses are cached for
//! the image, its registry or globally, as the plugin says, no longer than it or the configuration
//! allows. Runs nothing and reads no clock: times are durations since some fixed start.
//!
//! upstream: pkg/credentialprovider/plugin/plugin.go

use std::collections::BTreeMap;
use std::time::Duration;

use pod_model::GoDuration;
use ports::runtime_objects::RegistryLogin;
use serde_json::{Map, Value, json};

use crate::registry_logins::{RegistryLogins, matches};

#[cfg(test)]
mod tests;

const KIND: &str = "CredentialProviderResponse";
const VERSIONS: [&str; 3] = [
    "credentialprovider.kubelet.k8s.io/v1",
    "credentialprovider.kubelet.k8s.io/v1beta1",
    "credentialprovider.kubelet.k8s.io/v1alpha1",
];
/// The maximum number of cached responses; a plugin that returns one per image must not exhaust
/// memory.
const MAX_CACHED_RESPONSES: usize = 1024;

/// Whether a plugin needs a token of the pod's service account.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ServiceAccountTokenUse {
    #[default]
    Unused,
    /// Called without one for pods that have no account.
    Optional,
    /// Not called at all for pods that have no account.
    Required,
}

/// A plugin's configuration, as far as decisions need it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CredentialPlugin {
    pub name: String,
    /// Patterns such as `*.registry.example/team`.
    pub match_images: Vec<String>,
    /// For responses without a cache duration.
    pub default_cache_duration: GoDuration,
    /// The version of request and answer.
    pub message_version: String,
    pub service_account_token: ServiceAccountTokenUse,
}

/// Why a plugin cannot be used for an image. Shows no value of a response.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CredentialProviderError {
    #[error(
        "credential provider {provider} wants a token of the service account {account:?} \
         (tokenAttributes), and there is no API server to get one from"
    )]
    NoServiceAccountToken { provider: String, account: String },
    #[error("credential provider {provider}: its answer: {reason}")]
    InvalidResponse { provider: String, reason: String },
}

impl CredentialPlugin {
    /// Whether it is called for an image (its full name) of a pod with this service account, which
    /// is empty where it has none. Err: it should be, and cannot.
    pub fn applies_to(
        &self,
        image: &str,
        service_account: &str,
    ) -> Result<bool, CredentialProviderError> {
        if !self.match_images.iter().any(|place| matches(place, image)) {
            return Ok(false);
        }
        match (self.service_account_token, service_account) {
            (ServiceAccountTokenUse::Unused, _) | (ServiceAccountTokenUse::Optional, "") => {
                Ok(true)
            }
            (ServiceAccountTokenUse::Required, "") => Ok(false),
            (_, account) => Err(CredentialProviderError::NoServiceAccountToken {
                provider: self.name.clone(),
                account: account.to_owned(),
            }),
        }
    }

    /// The request on its standard input.
    pub fn request(&self, image: &str) -> Vec<u8> {
        let request = json!({
            "apiVersion": self.message_version,
            "kind": "CredentialProviderRequest",
            "image": image,
        });
        format!("{request}\n").into_bytes()
    }

    /// Parses its standard output.
    pub fn parse_response(
        &self,
        bytes: &[u8],
    ) -> Result<CredentialResponse, CredentialProviderError> {
        read(bytes, &self.message_version).map_err(|reason| {
            CredentialProviderError::InvalidResponse { provider: self.name.clone(), reason }
        })
    }
}

/// The scope of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CredentialScope {
    Image,
    Registry,
    Global,
}

/// A valid response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CredentialResponse {
    scope: CredentialScope,
    /// None: the configured duration.
    cache_duration: Option<GoDuration>,
    pub logins: RegistryLogins,
}

fn read(bytes: &[u8], version: &str) -> Result<CredentialResponse, String> {
    // The parser's own message would quote the value.
    let whole: Value = serde_json::from_slice(bytes)
        .map_err(|error| format!("not JSON (line {})", error.line()))?;
    let whole = whole.as_object().ok_or("expected an object")?;
    match text(whole, "apiVersion")? {
        found_version if found_version == version => {}
        found_version if VERSIONS.contains(&found_version) => {
            return Err(format!("apiVersion: {found_version:?}, expected {version:?}"));
        }
        _ => return Err(format!("apiVersion: expected {version:?}")),
    }
    if text(whole, "kind")? != KIND {
        return Err(format!("kind: expected {KIND}"));
    }
    only(whole, &["apiVersion", "kind", "cacheKeyType", "cacheDuration", "auth"], "")?;
    let scope = match text(whole, "cacheKeyType")? {
        "Image" => CredentialScope::Image,
        "Registry" => CredentialScope::Registry,
        "Global" => CredentialScope::Global,
        _ => return Err("cacheKeyType: expected Image, Registry or Global".to_owned()),
    };
    let cache_duration = match whole.get("cacheDuration") {
        None | Some(Value::Null) => None,
        Some(Value::String(text)) => Some(
            GoDuration::parse(text)
                .map_err(|_| "cacheDuration: expected a duration such as \"6h\"".to_owned())?,
        ),
        Some(_) => return Err("cacheDuration: expected a duration such as \"6h\"".to_owned()),
    };
    let mut logins = RegistryLogins::default();
    match whole.get("auth") {
        None | Some(Value::Null) => {}
        Some(Value::Object(auth)) => {
            for (at, (place, entry)) in auth.iter().enumerate() {
                logins.add(place, login(entry, at)?);
            }
        }
        Some(_) => return Err("auth: expected an object".to_owned()),
    }
    Ok(CredentialResponse { scope, cache_duration, logins })
}

/// A credential; even its registry is not shown: a faulty plugin may swap the two.
fn login(entry: &Value, at: usize) -> Result<RegistryLogin, String> {
    let path = format!("auth, entry {}", at + 1);
    let entry = entry.as_object().ok_or_else(|| format!("{path}: expected an object"))?;
    only(entry, &["username", "password"], &format!("{path}: "))?;
    let text = |name| text(entry, name).map_err(|why| format!("{path}: {why}"));
    Ok(RegistryLogin {
        username: text("username")?.to_owned(),
        password: text("password")?.to_owned(),
        ..RegistryLogin::default()
    })
}

/// Empty where it is not there.
fn text<'a>(object: &'a Map<String, Value>, name: &str) -> Result<&'a str, String> {
    match object.get(name) {
        None | Some(Value::Null) => Ok(""),
        Some(Value::String(text)) => Ok(text),
        Some(_) => Err(format!("{name}: expected text")),
    }
}

fn only(object: &Map<String, Value>, known: &[&str], at: &str) -> Result<(), String> {
    if object.keys().all(|name| known.contains(&name.as_str())) {
        return Ok(());
    }
    Err(format!("{at}a field other than {}", known.join(", ")))
}

/// The cache of responses.
#[derive(Debug, Clone, Default)]
pub struct CredentialCache {
    entries: BTreeMap<(String, CredentialCacheKey), CachedLogins>,
}

/// The key of a cached response.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum CredentialCacheKey {
    Image(String),
    Registry(String),
    Everything,
}

#[derive(Debug, Clone)]
struct CachedLogins {
    logins: RegistryLogins,
    until: Duration,
}

impl CredentialCache {
    /// The valid cached response of a provider for an image: by image, by registry, global, in that
    /// order.
    pub fn find(&self, provider: &str, image: &str, now: Duration) -> Option<&RegistryLogins> {
        let subjects = [CredentialScope::Image, CredentialScope::Registry, CredentialScope::Global];
        subjects.into_iter().find_map(|scope| {
            let entries = self.entries.get(&(provider.to_owned(), cache_key(scope, image)))?;
            (now <= entries.until).then_some(&entries.logins)
        })
    }

    /// Caches a response for an image for its own or else the configured duration; zero means not
    /// at all. Expired entries are removed.
    pub fn keep(
        &mut self,
        provider: &CredentialPlugin,
        image: &str,
        response: &CredentialResponse,
        now: Duration,
    ) {
        self.entries.retain(|_, entries| now <= entries.until);
        let span = response.cache_duration.unwrap_or(provider.default_cache_duration);
        let Some(span) = span.as_std().filter(|span| !span.is_zero()) else { return };
        if self.entries.len() >= MAX_CACHED_RESPONSES {
            let first = self.entries.iter().min_by_key(|(_, entries)| entries.until);
            if let Some(first) = first.map(|(key, _)| key.clone()) {
                self.entries.remove(&first);
            }
        }
        let entries =
            CachedLogins { logins: response.logins.clone(), until: now.saturating_add(span) };
        self.entries.insert((provider.name.clone(), cache_key(response.scope, image)), entries);
    }
}

fn cache_key(scope: CredentialScope, image: &str) -> CredentialCacheKey {
    match scope {
        CredentialScope::Image => CredentialCacheKey::Image(image.to_owned()),
        CredentialScope::Registry => {
            CredentialCacheKey::Registry(image.split('/').next().unwrap_or_default().to_owned())
        }
        CredentialScope::Global => CredentialCacheKey::Everything,
    }
}
