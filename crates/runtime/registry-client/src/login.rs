//! Credentials, and the hosts that may receive them.
//!
//! Rule: credentials with a server are for that host alone, whether it is the registry of an image
//! or a mirror of it; without one they are for every host that serves the registry's images.
//! Secrets are never printed.
//!
//! upstream: containerd internal/cri/server/images/image_pull.go (ParseAuth)

use crate::address::HttpUrl;
use crate::tokens::basic;

/// Credentials of a user. Not printed by `Debug`.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub enum RegistryCredentials {
    #[default]
    None,
    Password {
        user: String,
        password: String,
    },
    /// Exchanged for an access token at the token service.
    Identity {
        token: String,
    },
    /// Sent unchanged.
    Token {
        token: String,
    },
}

impl std::fmt::Debug for RegistryCredentials {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::None => "Credentials::None",
            Self::Password { .. } => "Credentials::Password(..)",
            Self::Identity { .. } => "Credentials::Identity(..)",
            Self::Token { .. } => "Credentials::Token(..)",
        })
    }
}

impl RegistryCredentials {
    /// A registry's error text with secrets removed: it goes into logs and events.
    pub(crate) fn redact(&self, mut text: String) -> String {
        let secrets = match self {
            Self::None => Vec::new(),
            Self::Password { user, password } => {
                let header = basic(user, password);
                let encoded = header.trim_start_matches("Basic ").to_owned();
                vec![encoded, password.clone()]
            }
            Self::Identity { token } | Self::Token { token } => vec![token.clone()],
        };
        // A shorter one is part of ordinary text and could be guessed from what is missing.
        for secret in secrets.iter().filter(|secret| secret.len() > 3) {
            text = text.replace(secret.as_str(), "(hidden)");
        }
        text
    }
}

/// Credentials and the server they are for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Login {
    pub credentials: RegistryCredentials,
    /// The only host that may receive them: a host name or a URL.
    pub server: Option<String>,
}

impl From<&RegistryCredentials> for Login {
    fn from(credentials: &RegistryCredentials) -> Self {
        Self { credentials: credentials.clone(), server: None }
    }
}

impl From<&Login> for Login {
    fn from(login: &Login) -> Self {
        login.clone()
    }
}

impl Login {
    /// The credentials for this host.
    pub(crate) fn at(&self, host: &HttpUrl) -> RegistryCredentials {
        match &self.server {
            Some(server) if !matches_host(server, host) => RegistryCredentials::None,
            _ => self.credentials.clone(),
        }
    }
}

/// Whether a server's credentials apply to a host. Docker Hub has several names.
fn matches_host(server: &str, host: &HttpUrl) -> bool {
    let server = server.split_once("://").map_or(server, |(_, rest)| rest);
    let server = server.split('/').next().unwrap_or_default();
    let hub = |host: &str| matches!(host, "docker.io" | "index.docker.io" | "registry-1.docker.io");
    // The default port may be given or not.
    [host.authority(), format!("{}:{}", host.host, host.port)]
        .iter()
        .any(|host| server.eq_ignore_ascii_case(host) || (hub(server) && hub(host)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_for_another_host_are_not_used() {
        for (server, host, used) in [
            (None, "r.example", true),
            (Some("r.example"), "r.example", true),
            (Some("https://r.example/v1/"), "r.example", true),
            (Some("https://index.docker.io/v1/"), "registry-1.docker.io", true),
            (Some("https://index.docker.io/v1/"), "mirror.example", false),
            (Some("other.example"), "r.example", false),
            (Some("r.example"), "r.example:5000", false),
            (Some("r.example:443"), "r.example", true),
            (Some("r.example"), "r.example.evil", false),
        ] {
            let address = HttpUrl::parse(&format!("https://{host}/v2/")).unwrap();
            let credentials = RegistryCredentials::Token { token: "t".into() };
            let login = Login { credentials, server: server.map(str::to_owned) };
            assert_eq!(
                login.at(&address) != RegistryCredentials::None,
                used,
                "{server:?} for {host}"
            );
        }
    }
}
