//! The health task and the checks, on paused time.

use super::*;
use crate::task_tree::TaskTree;
use ports::{HealthEndpointError, PortFuture};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

struct PortInUse {
    attempts: mpsc::Sender<u64>,
    begun: Instant,
}

impl HealthEndpoint for PortInUse {
    fn address(&self) -> String {
        "127.0.0.1:10248".to_owned()
    }
    fn serve(&self, checks: HealthChecks) -> PortFuture<'_, HealthEndpointError> {
        let names: Vec<&str> = checks.iter().map(|check| check.name()).collect();
        assert_eq!(names, ["ping", "log", "syncloop"], "in upstream's order");
        Box::pin(async {
            let _ = self.attempts.send(self.begun.elapsed().as_secs()).await;
            HealthEndpointError::Listen { address: self.address(), cause: "in use".to_owned() }
        })
    }
}

struct Log;

impl HealthCheck for Log {
    fn name(&self) -> &str {
        "log"
    }
    fn check(&self) -> Result<(), String> {
        Ok(())
    }
}

fn sources(sync_frequency: u64) -> HealthSources {
    HealthSources {
        log: Some(Arc::new(Log)),
        loop_heartbeats: LoopHeartbeats::default(),
        sync_frequency: Duration::from_secs(sync_frequency),
    }
}

/// The first check that fails, with its reason.
fn verdict(checks: &HealthChecks) -> Option<String> {
    checks
        .iter()
        .find_map(|check| check.check().err().map(|why| format!("{}: {why}", check.name())))
}

#[tokio::test(start_paused = true)]
async fn a_port_in_use_is_retried_every_five_seconds() {
    let (attempts, mut seen) = mpsc::channel(4);
    let mut tree = TaskTree::default();
    let endpoint: Arc<dyn HealthEndpoint> = Arc::new(PortInUse { attempts, begun: Instant::now() });
    let checks = sources(60).public_checks();
    tree.start("health-endpoint", move || serve(endpoint.clone(), checks.clone()));
    for expected in [0, 5, 10] {
        assert_eq!(seen.recv().await, Some(expected));
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_that_only_panics_stops_the_watchdog_pings() {
    let mut tree = TaskTree::default();
    let checks = sources(60).watchdog_checks(tree.failures());
    assert_eq!(verdict(&checks), None);
    tree.start("broken", || async { panic!("always") });
    tokio::time::sleep(Duration::from_secs(14)).await;
    assert_eq!(verdict(&checks), None, "four panics may pass");
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(verdict(&checks), Some("tasks: task broken panicked 5 times in a row".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_waiting_loop_is_healthy_and_a_hung_loop_is_not() {
    let sources = sources(60);
    let checks = sources.public_checks();
    assert_eq!(verdict(&checks), None, "a loop that has not begun is just starting");
    let (hang, mut asked) = mpsc::channel::<oneshot::Receiver<()>>(1);
    let loop_heartbeats = sources.loop_heartbeats.clone();
    let main_loop = tokio::spawn(async move {
        loop {
            tokio::select! {
                Some(work) = asked.recv() => { let _ = work.await; }
                () = loop_heartbeats.beat_while_waiting("pods") => {}
            }
        }
    });
    tokio::time::sleep(Duration::from_secs(24 * 3600)).await;
    assert_eq!(verdict(&checks), None, "nothing to do for a day is no illness");
    let (release, work) = oneshot::channel();
    hang.send(work).await.unwrap();
    tokio::time::sleep(Duration::from_secs(239)).await;
    assert_eq!(verdict(&checks), None, "a slow turn is forgiven for five minutes");
    tokio::time::sleep(Duration::from_secs(62)).await;
    let wrong = verdict(&checks).expect("the loop hangs");
    assert!(wrong.starts_with("syncloop: sync Loop took longer than expected: pods"), "{wrong}");
    release.send(()).unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(verdict(&checks), None, "it goes on");
    main_loop.abort();
    tokio::time::sleep(Duration::from_secs(301)).await;
    assert!(verdict(&checks).is_some(), "a loop that has ended does not come round either");
}

#[tokio::test(start_paused = true)]
async fn a_long_sync_frequency_allows_a_longer_silence() {
    let sources = sources(600);
    let checks = sources.public_checks();
    let stuck = tokio::time::timeout(
        Duration::from_secs(1),
        sources.loop_heartbeats.beat_while_waiting("pods"),
    );
    assert!(stuck.await.is_err());
    tokio::time::sleep(Duration::from_secs(1198)).await;
    assert_eq!(verdict(&checks), None);
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(verdict(&checks).is_some());
}
