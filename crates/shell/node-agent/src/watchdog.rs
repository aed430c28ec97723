//! Pings the service manager's watchdog while the agent is healthy.
//!
//! Rule: a ping at half of the watchdog's timeout, and none while a check fails: then the service
//! manager ends this process and starts another, which is what a watchdog is for.

use ports::{HealthChecks, ServiceNotifier, ServiceState};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::MissedTickBehavior;
use tracing::{error, info, warn};

/// Pings for ever; the first ping is at once.
pub(crate) async fn ping_watchdog(
    notifier: Arc<dyn ServiceNotifier>,
    watchdog_timeout: Duration,
    checks: HealthChecks,
) {
    let interval = watchdog_timeout / 2;
    info!(interval = ?interval, "Starting systemd watchdog with interval");
    let mut ticks = tokio::time::interval(interval.max(Duration::from_millis(1)));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let wrong = checks
            .iter()
            .find_map(|check| check.check().err().map(|why| format!("{}: {why}", check.name())));
        if let Some(wrong) = wrong {
            error!(err = wrong, "Not pinging the watchdog this time: the agent is not healthy");
            continue;
        }
        match notifier.notify(&ServiceState::Watchdog) {
            Ok(()) => info!(v = 5, "Watchdog pinged"),
            Err(error) => warn!(err = %error, "Failed to ping the watchdog"),
        }
    }
}

#[cfg(test)]
mod tests;
