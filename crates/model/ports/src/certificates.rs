//! The node's certificates on disk: its client certificate, and the one that it serves with.
//!
//! Rule: a private key leaves the store in no form; a caller that asks for a certificate gets a signing
//! request and hands back what was issued. When to ask, and for what, is not decided here.

use std::net::IpAddr;

use crate::{ApiTime, PortFuture};

/// What a certificate must be for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CertificateTemplate {
    pub common_name: String,
    pub organizations: Vec<String>,
    pub dns_names: Vec<String>,
    pub ip_addresses: Vec<IpAddr>,
}

/// What a certificate is for, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFacts {
    pub subject: CertificateTemplate,
    pub not_before: ApiTime,
    pub not_after: ApiTime,
}

/// A request for a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SigningRequest {
    /// PKCS #10, in PEM.
    pub pem: String,
    /// Lower-case hexadecimal; the same for the same key and template.
    pub digest: String,
}

/// Why the store could not do it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CertificateStoreError {
    /// A file cannot be read or written.
    #[error("{path}: {cause}")]
    File { path: String, cause: String },
    /// No certificate, or none whose key is known here: another has to be requested.
    #[error("{cause}")]
    Unusable { cause: String },
}

/// One certificate and its key, with the successor that is being requested.
pub trait CertificateStore: Send + Sync {
    /// The certificate in use; None if there is none.
    fn current(&self) -> StoreFuture<'_, Option<CertificateFacts>>;

    /// A request with a key that is kept, also over restarts, until the certificate is saved or the
    /// key is discarded: asking again gives a request of the same digest.
    fn request<'a>(&'a self, template: &'a CertificateTemplate) -> StoreFuture<'a, SigningRequest>;

    /// Puts an issued certificate (PEM, with its chain) to use. `Unusable` if it is not for the key
    /// of the request.
    fn save(&self, certificate: Vec<u8>) -> StoreFuture<'_, CertificateFacts>;

    /// Discards the key of the request: the next request has another.
    fn discard(&self) -> StoreFuture<'_, ()>;
}

pub type StoreFuture<'a, T> = PortFuture<'a, Result<T, CertificateStoreError>>;
