//! One request for a certificate: created, waited for, saved.
//!
//! Rule: every call has a limit, and so has the wait. A request that was pending before continues
//! under its name. A key is discarded once its request can lead to nothing.

use super::CurrentCertificate;
use crate::clock::AgentClock;
use crate::cluster_node::{REQUEST_TIMEOUT, with_timeout};
use node_certificates::{CertificatePurpose, CsrAnswer, csr_name, csr_object, poll_pause};
use ports::cluster_api::{ObjectPath, Resource};
use ports::{
    ApiTime, CertificateFacts, CertificateStore, CertificateStoreError, CertificateTemplate,
    ClusterApi, ClusterApiError,
};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

/// How long one request is waited for; it stays, and the next attempt finds it.
const APPROVAL_TIMEOUT: Duration = Duration::from_secs(15 * 60);
const SHORTEST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(60 * 60);

/// Why an attempt failed.
#[derive(Debug)]
pub(super) enum RenewalError {
    /// The request was not accepted.
    Api(ClusterApiError),
    Store(CertificateStoreError),
    /// It will not be issued, or not for this key.
    Rejected(String),
    NotApproved,
}

impl std::fmt::Display for RenewalError {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Api(error) => write!(out, "cannot create certificate signing request: {error}"),
            Self::Store(error) => error.fmt(out),
            Self::Rejected(why) => out.write_str(why),
            Self::NotApproved => {
                write!(out, "not approved and issued within {} s", APPROVAL_TIMEOUT.as_secs())
            }
        }
    }
}

impl From<CertificateStoreError> for RenewalError {
    fn from(error: CertificateStoreError) -> Self {
        Self::Store(error)
    }
}

/// A certificate that is renewed.
pub(super) struct Renewal {
    pub(super) purpose: CertificatePurpose,
    pub(super) store: Arc<dyn CertificateStore>,
    pub(super) current: CurrentCertificate,
    pub(super) clock: AgentClock,
}

impl Renewal {
    /// Reads the certificate in use; one that cannot be used counts as none.
    pub(super) async fn read_current(&self) -> Option<CertificateFacts> {
        let current = self.store.current().await.unwrap_or_else(|error| {
            warn!(err = %error, "The certificate on disk cannot be used");
            None
        });
        self.current.send_if_modified(|known| {
            let is_new = *known != current;
            known.clone_from(&current);
            is_new
        });
        current
    }

    /// A number below 1 000 that differs between nodes and between calls.
    pub(super) fn random(&self) -> u16 {
        let micros = self.clock.now().nanos().unsigned_abs() / 1_000;
        u16::try_from(micros % 1_000).unwrap_or(0)
    }

    /// Waits until a time, or for the longest time between two looks at the clock: it may be set.
    pub(super) async fn sleep_until(&self, at: ApiTime) {
        let left = at.nanos().saturating_sub(self.clock.now().nanos());
        let left = Duration::from_nanos(u64::try_from(left).unwrap_or(0));
        sleep(left.clamp(SHORTEST_WAIT, LONGEST_WAIT)).await;
    }

    /// Requests a certificate and puts it to use.
    pub(super) async fn renew(
        &self,
        api: &dyn ClusterApi,
        template: &CertificateTemplate,
    ) -> Result<CertificateFacts, RenewalError> {
        let request = self.store.request(template).await?;
        let name = csr_name(self.purpose, &request);
        let path = ObjectPath { resource: Resource::SIGNING_REQUESTS, namespace: None, name };
        let body = csr_object(self.purpose, &request);
        match with_timeout(REQUEST_TIMEOUT, api.create(&path, body)).await {
            Ok(_) => info!(v = 2, csr = path.name, "Requested a certificate"),
            Err(ClusterApiError::AlreadyExists { .. }) => {
                info!(v = 2, csr = path.name, "csr for this node already exists, reusing");
            }
            Err(error) => return Err(RenewalError::Api(error)),
        }
        let certificate = match wait_for_certificate(api, &path).await {
            Ok(certificate) => certificate,
            Err(error) => {
                if matches!(error, RenewalError::Rejected(_)) {
                    self.store.discard().await?;
                }
                return Err(error);
            }
        };
        match self.store.save(certificate).await {
            Ok(facts) => {
                info!(v = 2, csr = path.name, "Certificate signing request is issued");
                self.current.send_replace(Some(facts.clone()));
                Ok(facts)
            }
            Err(CertificateStoreError::Unusable { cause }) => {
                self.store.discard().await?;
                Err(RenewalError::Rejected(cause))
            }
            Err(error) => Err(error.into()),
        }
    }
}

async fn wait_for_certificate(
    api: &dyn ClusterApi,
    path: &ObjectPath,
) -> Result<Vec<u8>, RenewalError> {
    let begun = Instant::now();
    let mut reads = 0;
    while begun.elapsed() < APPROVAL_TIMEOUT {
        match with_timeout(REQUEST_TIMEOUT, api.read(path)).await {
            Ok(object) => match node_certificates::read_answer(&object.json) {
                CsrAnswer::Pending => {}
                CsrAnswer::Issued(certificate) => return Ok(certificate),
                CsrAnswer::Rejected(why) => return Err(RenewalError::Rejected(why)),
            },
            Err(error @ ClusterApiError::NotFound { .. }) => {
                // The cluster removes requests that were not approved; another takes its place.
                return Err(RenewalError::Api(error));
            }
            Err(error) => {
                info!(v = 2, err = %error, csr = path.name, "Cannot read the signing request");
            }
        }
        sleep(poll_pause(reads)).await;
        reads += 1;
    }
    Err(RenewalError::NotApproved)
}
