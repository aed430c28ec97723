//! Asks drivers again how many volumes this node takes, where their CSIDriver says how often.
//!
//! Rule: without such a driver nothing wakes up. The period is read when a driver is registered, and
//! again with each update.
//!
//! upstream: pkg/volume/csi/csi_node_updater.go

use super::CsiRegistration;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tracing::warn;

/// The API server allows nothing shorter.
const SHORTEST_PERIOD: Duration = Duration::from_secs(10);
/// After the CSIDriver could not be read.
const UNREAD_PERIOD: Duration = Duration::from_secs(60);

/// Runs for ever.
pub(in crate::plugins) async fn update_limits(csi: Arc<CsiRegistration>) {
    // When each driver is looked at again; None: never.
    let mut due: BTreeMap<String, Option<Instant>> = BTreeMap::new();
    loop {
        let next = due.values().flatten().min().copied();
        tokio::select! {
            () = csi.registered.notified() => {}
            () = sleep_until(next) => {}
        }
        let present: Vec<String> = csi.drivers().keys().cloned().collect();
        due.retain(|driver, _| present.contains(driver));
        for driver in present {
            let is_due = match due.get(&driver) {
                Some(at) => at.is_some_and(|at| at <= Instant::now()),
                None => true,
            };
            if is_due {
                let was_known = due.contains_key(&driver);
                due.insert(driver.clone(), csi.update_limit(&driver, was_known).await);
            }
        }
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

impl CsiRegistration {
    /// Asks the driver, if `asks`, and returns when to do that again.
    async fn update_limit(&self, driver: &str, asks: bool) -> Option<Instant> {
        let objects = self.objects.as_ref()?;
        let period = match objects.update_period(driver).await {
            Ok(Some(period)) => period.max(SHORTEST_PERIOD),
            Ok(None) => return None,
            Err(why) => {
                warn!(driver, err = why, "Cannot read how often the driver's limit is updated");
                return Some(Instant::now() + UNREAD_PERIOD);
            }
        };
        if asks && let Some(endpoint) = self.endpoint(driver) {
            let updated = async {
                let info = self.node_info(&endpoint).await?;
                let _writing = self.writing.lock().await;
                if self.endpoint(driver).as_ref() == Some(&endpoint) {
                    objects.update(driver, &info).await?;
                }
                Ok::<(), String>(())
            };
            if let Err(why) = updated.await {
                warn!(driver, err = why, "Failed to update the driver's limit");
            }
        }
        Some(Instant::now() + period)
    }
}
