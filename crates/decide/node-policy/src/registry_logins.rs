//! Which of the node's own credentials match an image, from docker's config file.
//!
//! Rules: an entry names a registry, or a registry and a path prefix; the host may have `*` in each
//! of its labels. The more specific entry comes first. An image without a registry belongs to the
//! default one. Text that cannot be parsed is an error that shows nothing of its content.
//!
//! upstream: pkg/credentialprovider/config.go, keyring.go

use std::collections::BTreeMap;
use std::fmt;

use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use base64::{Engine as _, alphabet};
use ports::runtime_objects::RegistryLogin;
use serde_json::{Map, Value};

#[cfg(test)]
mod tests;

const DEFAULT_REGISTRY: &str = "index.docker.io";

/// Why a file of credentials cannot be used. Shows nothing of its content but registries and fields.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegistryLoginsError {
    #[error("not JSON")]
    NotJson,
    #[error("expected an object")]
    NotAnObject,
    #[error("auths: expected an object")]
    AuthsNotAnObject,
    #[error("the entry {registry:?}: {reason}")]
    Entry { registry: String, reason: String },
}

/// Credentials by registry. The debug form shows only the keys.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct RegistryLogins {
    /// Without a scheme; a path begins with a slash. Several for one key are tried in turn.
    entries: BTreeMap<String, Vec<RegistryLogin>>,
}

impl fmt::Debug for RegistryLogins {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_set().entries(self.entries.keys()).finish()
    }
}

impl RegistryLogins {
    /// A `config.json`: entries under `auths`.
    pub fn parse(text: &str) -> Result<Self, RegistryLoginsError> {
        let whole: Value = serde_json::from_str(text).map_err(|_| RegistryLoginsError::NotJson)?;
        match whole.as_object().map(|whole| whole.get("auths")) {
            Some(None | Some(Value::Null)) => Ok(Self::default()),
            Some(Some(Value::Object(auths))) => Self::of(auths),
            Some(Some(_)) => Err(RegistryLoginsError::AuthsNotAnObject),
            None => Err(RegistryLoginsError::NotAnObject),
        }
    }

    /// A `.dockercfg`: entries only.
    pub fn parse_old(text: &str) -> Result<Self, RegistryLoginsError> {
        let whole: Value = serde_json::from_str(text).map_err(|_| RegistryLoginsError::NotJson)?;
        Self::of(whole.as_object().ok_or(RegistryLoginsError::NotAnObject)?)
    }

    fn of(auths: &Map<String, Value>) -> Result<Self, RegistryLoginsError> {
        let mut logins = Self::default();
        for (registry, entry) in auths {
            let login = login(entry).map_err(|reason| RegistryLoginsError::Entry {
                registry: registry.clone(),
                reason,
            })?;
            logins.add(registry, login);
        }
        Ok(logins)
    }

    /// Adds one, for a registry as a config file or a plugin names it.
    pub fn add(&mut self, registry: &str, login: RegistryLogin) {
        self.entries.entry(key(registry)).or_default().push(login);
    }

    /// Adds all of another's; for the same key those come after the existing ones.
    pub fn extend(&mut self, others: Self) {
        for (registry, logins) in others.entries {
            self.entries.entry(registry).or_default().extend(logins);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The credentials for an image, the most specific first.
    pub fn matching(&self, image: &str) -> Vec<RegistryLogin> {
        let repository = repository(image);
        let suits =
            self.entries.iter().rev().filter(|(registry, _)| matches(registry, &repository));
        let found: Vec<RegistryLogin> = suits.flat_map(|(_, logins)| logins.clone()).collect();
        if found.is_empty() && repository.starts_with("docker.io/") {
            return self.entries.get(DEFAULT_REGISTRY).cloned().unwrap_or_default();
        }
        found
    }
}

/// The image's name in full, without tag and digest: `busybox:1` is `docker.io/library/busybox`.
pub fn repository(image: &str) -> String {
    let name = image.split('@').next().unwrap_or_default();
    let name = match name.rsplit_once(':') {
        Some((before, tag)) if !tag.contains('/') => before,
        _ => name,
    };
    match name.split_once('/') {
        Some(("docker.io" | DEFAULT_REGISTRY, path)) if path.contains('/') => {
            format!("docker.io/{path}")
        }
        Some(("docker.io" | DEFAULT_REGISTRY, path)) => format!("docker.io/library/{path}"),
        Some((first, _)) if first.contains(['.', ':']) || first == "localhost" => name.to_owned(),
        Some(_) => format!("docker.io/{name}"),
        None => format!("docker.io/library/{name}"),
    }
}

fn login(entry: &Value) -> Result<RegistryLogin, String> {
    let entry = entry.as_object().ok_or("expected an object")?;
    let text = |name: &str| match entry.get(name) {
        None | Some(Value::Null) => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(_) => Err(format!("{name}: expected text")),
    };
    let auth = text("auth")?;
    let (username, password) = if auth.is_empty() {
        (text("username")?, text("password")?)
    } else {
        pair(&auth).ok_or("auth: expected base64 of name:password")?
    };
    Ok(RegistryLogin { username, password, ..RegistryLogin::default() })
}

fn pair(auth: &str) -> Option<(String, String)> {
    let decoded = String::from_utf8(from_base64(auth)?).ok()?;
    let (name, password) = decoded.split_once(':')?;
    Some((name.to_owned(), password.to_owned()))
}

/// Decodes as Go does: padded in full or not at all, line ends ignored, leftover bits ignored.
fn from_base64(text: &str) -> Option<Vec<u8>> {
    let text = text.trim();
    let padding = if text.ends_with('=') {
        DecodePaddingMode::RequireCanonical
    } else {
        DecodePaddingMode::RequireNone
    };
    let config = GeneralPurposeConfig::new()
        .with_decode_padding_mode(padding)
        .with_decode_allow_trailing_bits(true);
    let letters: String = text.split(['\n', '\r']).collect();
    GeneralPurpose::new(&alphabet::STANDARD, config).decode(letters).ok()
}

/// The key of an entry: host and port, and a path if it has one.
fn key(registry: &str) -> String {
    let bare = ["https://", "http://"].iter().find_map(|scheme| registry.strip_prefix(scheme));
    let bare = bare.unwrap_or(registry);
    let bare = bare.split(['?', '#']).next().unwrap_or_default();
    let (host, path) = bare.find('/').map_or((bare, ""), |at| bare.split_at(at));
    // Some clients write the registry's old API path.
    let path = ["/v1/", "/v2/"]
        .iter()
        .find_map(|version| path.strip_prefix(version))
        .map_or(path.to_owned(), |rest| format!("/{rest}"));
    if path == "/" { host.to_owned() } else { format!("{host}{path}") }
}

/// Whether an image's full name matches a key: the same port, the same number of host labels, each
/// matching the pattern, and a path that begins with the key's.
pub(crate) fn matches(registry: &str, image: &str) -> bool {
    let split = |text: &str| -> (String, String) {
        let (host, path) = text.find('/').map_or((text, ""), |at| text.split_at(at));
        (host.to_owned(), path.to_owned())
    };
    let ((registry, place_path), (host, path)) = (split(registry), split(image));
    let port = |host: &str| -> (String, String) {
        match host.rsplit_once(':') {
            Some((name, port)) => (name.to_owned(), port.to_owned()),
            None => (host.to_owned(), String::new()),
        }
    };
    let ((registry, place_port), (host, host_port)) = (port(&registry), port(&host));
    let (wanted, given): (Vec<&str>, Vec<&str>) =
        (registry.split('.').collect(), host.split('.').collect());
    place_port == host_port
        && wanted.len() == given.len()
        && path.starts_with(&place_path)
        && wanted.iter().zip(given).all(|(pattern, part)| is_like(pattern, part))
}

/// `*` matches any characters.
fn is_like(pattern: &str, text: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut left) = text.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = rest.split('*').collect();
    let last = parts.pop().unwrap_or_default();
    for part in parts {
        let Some(at) = left.find(part) else { return false };
        left = left.get(at + part.len()..).unwrap_or_default();
    }
    left.ends_with(last)
}
