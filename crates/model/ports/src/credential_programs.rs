//! The port to credential provider plugins: programs that return logins for registries.
//!
//! Rule: a program is named as the configuration names it, is run once per call, and ends within a
//! timeout. Its answer is secret, so neither an error nor a log shows any of it. Which program is
//! run for which image, and what an answer means, is decided elsewhere.

use crate::PortFuture;

/// Why there is no answer. Contains nothing that the program wrote.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("credential provider {provider}: {cause}")]
pub struct CredentialProgramError {
    pub provider: String,
    pub cause: String,
}

pub trait CredentialPrograms: Send + Sync {
    /// Sends the request to the program and returns what it wrote to standard output.
    fn ask<'a>(
        &'a self,
        provider: &'a str,
        request: Vec<u8>,
    ) -> PortFuture<'a, Result<Vec<u8>, CredentialProgramError>>;
}
