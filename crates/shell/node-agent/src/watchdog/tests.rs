//! When the service manager is pinged, in virtual time.

use super::*;
use crate::task_tree::TaskTree;
use ports::{HealthCheck, ServiceNotifierError};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::time::Instant;

#[derive(Default)]
struct RecordedPings(Mutex<Vec<Instant>>);

impl ServiceNotifier for RecordedPings {
    fn notify(&self, state: &ServiceState) -> Result<(), ServiceNotifierError> {
        assert_eq!(state, &ServiceState::Watchdog);
        self.0.lock().unwrap().push(Instant::now());
        Ok(())
    }
}

struct SwitchableCheck(Arc<AtomicBool>);

impl HealthCheck for SwitchableCheck {
    fn name(&self) -> &str {
        "switch"
    }
    fn check(&self) -> Result<(), String> {
        if self.0.load(Ordering::SeqCst) { Ok(()) } else { Err("off".to_owned()) }
    }
}

#[tokio::test(start_paused = true)]
async fn the_watchdog_is_pinged_at_half_its_timeout_only_while_checks_pass() {
    let pings = Arc::new(RecordedPings::default());
    let is_healthy = Arc::new(AtomicBool::new(true));
    let checks: Vec<Arc<dyn HealthCheck>> = vec![Arc::new(SwitchableCheck(is_healthy.clone()))];
    let checks: HealthChecks = checks.into();
    let mut tree = TaskTree::default();
    let started = Instant::now();
    tree.start("watchdog", {
        let pings = pings.clone();
        move || ping_watchdog(pings.clone(), Duration::from_secs(20), checks.clone())
    });
    tokio::time::sleep(Duration::from_secs(25)).await;
    is_healthy.store(false, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_secs(30)).await;
    is_healthy.store(true, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_secs(10)).await;
    let times: Vec<u64> =
        pings.0.lock().unwrap().iter().map(|time| (*time - started).as_secs()).collect();
    assert_eq!(times, [0, 10, 20, 60]);
}
