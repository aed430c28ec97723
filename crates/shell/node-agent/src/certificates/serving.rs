//! The certificate that the node's port serves with.
//!
//! Rule: it is for the addresses of the Node object, so that a request waits for them and begins
//! again when they change. Approval may take for ever: people approve such requests, and one that is
//! pending stays the same one.

use super::renewal::CertificateRenewal;
use super::{CertificateInputs, CurrentCertificate};
use crate::metrics::names;
use node_certificates::{
    CertificatePurpose, CertificateStep, attempt_pause, next_step, serving_template,
};
use node_status::NodeObject;
use ports::{ApiTime, CertificateFacts, CertificateStore, CertificateTemplate};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::{error, info};

pub(super) struct ServingTask {
    inputs: Arc<CertificateInputs>,
    renewal: CertificateRenewal,
}

impl ServingTask {
    pub(super) fn new(
        store: Arc<dyn CertificateStore>,
        inputs: Arc<CertificateInputs>,
        current: CurrentCertificate,
    ) -> Self {
        let clock = inputs.clock.clone();
        let renewal =
            CertificateRenewal { purpose: CertificatePurpose::Serving, store, current, clock };
        Self { inputs, renewal }
    }

    fn now(&self) -> ApiTime {
        self.inputs.clock.now()
    }

    fn template(&self) -> Option<CertificateTemplate> {
        let node_object = self.inputs.node_object.borrow();
        let addresses = &node_object.as_ref()?.status.addresses;
        serving_template(&self.inputs.node_name, addresses)
    }
}

/// Runs for ever, or until the agent ends.
pub(super) async fn keep_current(task: Arc<ServingTask>) {
    let mut node_object = task.inputs.node_object.clone();
    let mut random = task.renewal.random();
    let mut failed = 0;
    loop {
        let current = task.renewal.read_current().await;
        let template = task.template();
        let step = next_step(current.as_ref(), template.as_ref(), task.now(), random);
        let changed = wait_for_change(&task, &mut node_object, template.as_ref());
        let is_open = match (step, &template) {
            (CertificateStep::Request, Some(template)) => tokio::select! {
                is_open = changed => is_open,
                issued = request(&task, template, current.as_ref()) => {
                    random = task.renewal.random();
                    let next = next_step(issued.as_ref(), Some(template), task.now(), random);
                    // One that is due again at once is no success.
                    failed = if next == CertificateStep::Request { failed + 1 } else { 0 };
                    if failed > 0 {
                        sleep(attempt_pause(failed)).await;
                    }
                    true
                }
            },
            (CertificateStep::WaitUntil(at), _) => tokio::select! {
                is_open = changed => is_open,
                () = task.renewal.sleep_until(at) => true,
            },
            _ => changed.await,
        };
        if !is_open {
            return;
        }
    }
}

/// One attempt; None if it failed.
async fn request(
    task: &ServingTask,
    template: &CertificateTemplate,
    current: Option<&CertificateFacts>,
) -> Option<CertificateFacts> {
    match task.renewal.renew(&*task.inputs.api, template).await {
        Ok(issued) => {
            info!(until = issued.not_after.to_seconds_text(), "Serving certificate renewed");
            if let Some(old) = current {
                let lived = task.now().nanos().saturating_sub(old.not_before.nanos());
                let lived = Duration::from_nanos(u64::try_from(lived).unwrap_or(0));
                task.inputs.metrics.took(&names::SERVER_ROTATION, &[], lived);
            }
            Some(issued)
        }
        Err(error) => {
            error!(err = %error, "Unable to renew the serving certificate");
            task.inputs.metrics.count(&names::SERVER_RENEW_ERRORS, &[]);
            None
        }
    }
}

/// Waits until the node's addresses make another template; false if they never will.
async fn wait_for_change(
    task: &ServingTask,
    node_object: &mut watch::Receiver<Option<Arc<NodeObject>>>,
    template: Option<&CertificateTemplate>,
) -> bool {
    loop {
        if node_object.changed().await.is_err() {
            return false;
        }
        let next = task.template();
        if next.is_some() && next.as_ref() != template {
            return true;
        }
    }
}
