//! Reasons to end from outside the agent, and the one from inside: its identity is lost.
//!
//! Rule: the identity is lost once; signals can come again.

use host_process::end_signals::EndSignals;
use ports::{PortFuture, ShutdownReason, ShutdownRequests};
use std::future::pending;
use tokio::sync::watch;

pub(super) struct EndRequests {
    pub(super) signals: EndSignals,
    /// None once it was reported, or if it cannot happen.
    pub(super) lost: Option<watch::Receiver<Option<ShutdownReason>>>,
}

/// Waits for the reason; for ever if there will be none.
async fn identity_lost(
    lost: &mut Option<watch::Receiver<Option<ShutdownReason>>>,
) -> ShutdownReason {
    let found = match lost {
        Some(lost) => lost.wait_for(Option::is_some).await.map(|reason| reason.clone()),
        None => return pending().await,
    };
    *lost = None;
    match found {
        Ok(Some(reason)) => reason,
        // The sender is gone, and so is the agent.
        _ => pending().await,
    }
}

impl ShutdownRequests for EndRequests {
    fn next(&mut self) -> PortFuture<'_, ShutdownReason> {
        Box::pin(async {
            tokio::select! {
                reason = self.signals.next() => reason,
                reason = identity_lost(&mut self.lost) => reason,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_lost_identity_is_reported_once() {
        let (sender, receiver) = watch::channel(None);
        let mut lost = Some(receiver);
        let reason = ShutdownReason::CredentialsLost("expired".to_owned());
        sender.send_replace(Some(reason.clone()));
        assert_eq!(identity_lost(&mut lost).await, reason);
        assert!(lost.is_none());
    }
}
