//! The seam to programs that know logins of registries (credential providers).
//!
//! Rule: a program is named as the configuration names it, is asked once per call, and ends within
//! a limit. What it answers is a secret, so that neither an error nor a log shows any of it; who may
//! be asked about which image, and what an answer means, is decided elsewhere.

use crate::PortFuture;

/// Why there is no answer. Nothing that the program wrote is in it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("credential provider {provider}: {cause}")]
pub struct CredentialProgramError {
    pub provider: String,
    pub cause: String,
}

pub trait CredentialPrograms: Send + Sync {
    /// Hands the request to the program and answers with what it wrote on standard output.
    fn ask<'a>(
        &'a self,
        provider: &'a str,
        request: Vec<u8>,
    ) -> PortFuture<'a, Result<Vec<u8>, CredentialProgramError>>;
}
