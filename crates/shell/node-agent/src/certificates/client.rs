//! The certificate by which the node is known to the API server.
//!
//! Rule: the bootstrap credentials are used only while there is no valid certificate. An agent that
//! has lost its identity ends while the API server answers, so that the service manager starts one
//! that may find other credentials.

use super::renewal::{CertificateRenewal, RenewalError};
use super::{CertificateInputs, CurrentCertificate, ManagedClientCertificate};
use crate::metrics::names;
use node_certificates::{
    CertificatePurpose, CertificateStep, ClientState, Verdict, attempt_pause, client_template,
    next_step, server_answers, verdict,
};
use ports::{CertificateFacts, ClusterApi, ShutdownReason};
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::sleep;
use tracing::{error, info};

/// How often a node without a valid certificate is judged. upstream: UpdateTransport
const JUDGE_PERIOD: Duration = Duration::from_secs(10);

pub(super) struct ClientTask {
    certificate: ManagedClientCertificate,
    inputs: Arc<CertificateInputs>,
    renewal: CertificateRenewal,
    /// The current one is to be replaced whatever its age.
    replace_now: AtomicBool,
    /// The API server answered the last request, also by refusing it.
    server_answers: AtomicBool,
}

impl ClientTask {
    pub(super) fn new(
        certificate: ManagedClientCertificate,
        inputs: Arc<CertificateInputs>,
        current: CurrentCertificate,
    ) -> Self {
        let renewal = CertificateRenewal {
            purpose: CertificatePurpose::Client,
            store: certificate.store.clone(),
            current,
            clock: inputs.clock.clone(),
        };
        let replace_now = AtomicBool::new(certificate.replace_now);
        Self { certificate, inputs, renewal, replace_now, server_answers: AtomicBool::new(false) }
    }

    fn is_valid(&self, current: &CertificateFacts) -> bool {
        self.inputs.clock.now() <= current.not_after
    }

    fn api(&self, has_identity: bool) -> &dyn ClusterApi {
        match &self.certificate.bootstrap {
            Some(bootstrap) if !has_identity => &**bootstrap,
            _ => &*self.inputs.api,
        }
    }
}

/// Runs for ever if the certificate rotates, else until there is one.
pub(super) async fn keep_current(task: Arc<ClientTask>) {
    tokio::select! {
        () = rotate(&task) => {}
        () = judge(&task) => {}
    }
}

async fn rotate(task: &ClientTask) {
    let (renewal, metrics) = (&task.renewal, &task.inputs.metrics);
    let template = client_template(&task.inputs.node_name);
    let mut random = renewal.random();
    let mut failed = 0;
    loop {
        let current = renewal.read_current().await;
        let valid = current.as_ref().filter(|current| task.is_valid(current));
        if !task.certificate.rotates && valid.is_some() {
            return;
        }
        let now = task.inputs.clock.now();
        let step = match next_step(current.as_ref(), Some(&template), now, random) {
            _ if task.replace_now.load(Ordering::Relaxed) => CertificateStep::Request,
            step => step,
        };
        if let CertificateStep::WaitUntil(at) = step {
            renewal.sleep_until(at).await;
            continue;
        }
        match renewal.renew(task.api(valid.is_some()), &template).await {
            Ok(issued) => {
                task.server_answers.store(true, Ordering::Relaxed);
                task.replace_now.store(false, Ordering::Relaxed);
                random = renewal.random();
                info!(until = issued.not_after.to_seconds_text(), "Client certificate renewed");
                let now = task.inputs.clock.now();
                if next_step(Some(&issued), Some(&template), now, random)
                    != CertificateStep::Request
                {
                    failed = 0;
                    continue;
                }
            }
            Err(error) => {
                if let RenewalError::Api(error) = &error {
                    task.server_answers.store(server_answers(error), Ordering::Relaxed);
                }
                error!(err = %error, "Unable to renew the client certificate");
                metrics.count(&names::CLIENT_RENEW_ERRORS, &[]);
            }
        }
        failed += 1;
        sleep(attempt_pause(failed)).await;
    }
}

/// Ends the agent when it has lost its identity.
async fn judge(task: &ClientTask) {
    if !task.certificate.rotates {
        pending::<()>().await;
    }
    let mut current = task.renewal.current.subscribe();
    let mut last_seen = task.inputs.clock.now();
    let mut logged = "";
    loop {
        let now = task.inputs.clock.now();
        let known = current.borrow_and_update().clone();
        if known.as_ref().is_some_and(|known| task.is_valid(known)) {
            last_seen = now;
        }
        let server_answers = task.server_answers.load(Ordering::Relaxed);
        let state = ClientState { current: known.as_ref(), last_seen, server_answers };
        match verdict(&state, now) {
            Verdict::GoesOn => logged = "",
            Verdict::Waits(why) if why != logged => {
                error!("{why}");
                logged = why;
            }
            Verdict::Waits(_) => {}
            Verdict::Ends(why) => {
                error!("{why}");
                let reason = ShutdownReason::CredentialsLost(why.to_owned());
                task.certificate.lost.send_replace(Some(reason));
                pending::<()>().await;
            }
        }
        let valid_until = known.filter(|known| task.is_valid(known)).map(|known| known.not_after);
        tokio::select! {
            // Cannot fail: the sender lives as long as the task.
            _ = current.changed() => {}
            () = task.renewal.sleep_until(valid_until.unwrap_or(now)), if valid_until.is_some() => {}
            () = sleep(JUDGE_PERIOD), if valid_until.is_none() => {}
        }
    }
}
