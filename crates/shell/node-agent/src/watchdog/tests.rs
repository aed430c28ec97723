//! When the service manager is pinged, on paused time.

use super::*;
use crate::task_tree::TaskTree;
use ports::{HealthCheck, ServiceSupervisorError};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::time::Instant;

#[derive(Default)]
struct Told(Mutex<Vec<Instant>>);

impl ServiceSupervisor for Told {
    fn tell(&self, state: &ServiceState) -> Result<(), ServiceSupervisorError> {
        assert_eq!(state, &ServiceState::Watchdog);
        self.0.lock().unwrap().push(Instant::now());
        Ok(())
    }
}

struct Switch(Arc<AtomicBool>);

impl HealthCheck for Switch {
    fn name(&self) -> &str {
        "switch"
    }
    fn check(&self) -> Result<(), String> {
        if self.0.load(Ordering::SeqCst) { Ok(()) } else { Err("off".to_owned()) }
    }
}

#[tokio::test(start_paused = true)]
async fn it_pings_at_half_time_while_healthy_and_not_otherwise() {
    let told = Arc::new(Told::default());
    let well = Arc::new(AtomicBool::new(true));
    let checks: Vec<Arc<dyn HealthCheck>> = vec![Arc::new(Switch(well.clone()))];
    let checks: HealthChecks = checks.into();
    let mut tree = TaskTree::default();
    let begun = Instant::now();
    tree.start("watchdog", {
        let told = told.clone();
        move || keep_quiet(told.clone(), Duration::from_secs(20), checks.clone())
    });
    tokio::time::sleep(Duration::from_secs(25)).await;
    well.store(false, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_secs(30)).await;
    well.store(true, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_secs(10)).await;
    let times: Vec<u64> =
        told.0.lock().unwrap().iter().map(|time| (*time - begun).as_secs()).collect();
    assert_eq!(times, [0, 10, 20, 60]);
}
