//! Access tokens from a registry's token service, cached while they are valid.
//!
//! upstream: distribution docs/spec/auth/token.md, oauth.md

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;

/// Lifetime of a token that does not state one.
const DEFAULT_LIFE: Duration = Duration::from_secs(60);
/// A token is not used in its last seconds, because it could expire on the way.
const EXPIRY_MARGIN: Duration = Duration::from_secs(10);
const MAX_LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);

#[derive(Debug, Default)]
pub(crate) struct TokenCache {
    entries: Mutex<HashMap<String, (Instant, String)>>,
}

impl TokenCache {
    pub(crate) fn get(&self, key: &str) -> Option<String> {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        entries.retain(|_, (end, _)| *end > now);
        entries.get(key).map(|(_, token)| token.clone())
    }

    /// Caches a token and returns it in the form that is sent.
    pub(crate) fn store(&self, key: &str, token: &Token) -> String {
        let life = token.expires_in.map_or(DEFAULT_LIFE, Duration::from_secs).min(MAX_LIFETIME);
        let text = format!("Bearer {}", token.text());
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let end = Instant::now() + life.saturating_sub(EXPIRY_MARGIN);
        entries.insert(key.to_owned(), (end, text.clone()));
        text
    }

    pub(crate) fn forget(&self, key: &str) {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }
}

/// The response of a token service.
#[derive(Debug, Deserialize)]
pub(crate) struct Token {
    #[serde(default)]
    token: String,
    #[serde(default)]
    access_token: String,
    expires_in: Option<u64>,
}

impl Token {
    pub(crate) fn text(&self) -> &str {
        if self.token.is_empty() { &self.access_token } else { &self.token }
    }
}

/// `Basic` with a name and a password.
pub(crate) fn basic(user: &str, password: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))
}

/// Escapes a value for a query or a form.
pub(crate) fn escaped(text: &str) -> String {
    utf8_percent_encode(text, RESERVED).to_string()
}

/// All characters except those that never have a meaning in a URL.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
