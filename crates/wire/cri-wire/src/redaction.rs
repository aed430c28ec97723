//! `Debug` of the messages that carry credentials.
//!
//! Rule: a log line may show the user and the registry, never the credentials. Does not change what
//! goes over the wire.

use std::fmt;

use crate::v1::AuthConfig;

#[cfg(test)]
mod tests;

impl fmt::Debug for AuthConfig {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { username, password, auth, server_address, identity_token, registry_token } =
            self;
        formatter
            .debug_struct("AuthConfig")
            .field("username", username)
            .field("password", &redacted(password))
            .field("auth", &redacted(auth))
            .field("server_address", server_address)
            .field("identity_token", &redacted(identity_token))
            .field("registry_token", &redacted(registry_token))
            .finish()
    }
}

fn redacted(secret: &str) -> &'static str {
    if secret.is_empty() { "" } else { "<hidden>" }
}
