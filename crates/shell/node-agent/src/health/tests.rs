//! The health task and the checks, on paused time.

use super::*;
use crate::task_tree::TaskTree;
use ports::{HealthEndpointError, PortFuture};
use tokio::sync::mpsc;
use tokio::time::Instant;

struct Taken {
    attempts: mpsc::Sender<u64>,
    begun: Instant,
}

impl HealthEndpoint for Taken {
    fn address(&self) -> String {
        "127.0.0.1:10248".to_owned()
    }
    fn serve(&self, checks: HealthChecks) -> PortFuture<'_, HealthEndpointError> {
        assert_eq!(checks.iter().map(|check| check.name()).collect::<Vec<_>>(), ["ping"]);
        Box::pin(async {
            let _ = self.attempts.send(self.begun.elapsed().as_secs()).await;
            HealthEndpointError::Listen { address: self.address(), cause: "in use".to_owned() }
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_taken_port_is_tried_again_every_five_seconds() {
    let (attempts, mut seen) = mpsc::channel(4);
    let mut tree = TaskTree::default();
    let endpoint: Arc<dyn HealthEndpoint> = Arc::new(Taken { attempts, begun: Instant::now() });
    tree.start("health-endpoint", move || serve(endpoint.clone()));
    for expected in [0, 5, 10] {
        assert_eq!(seen.recv().await, Some(expected));
    }
}

#[tokio::test(start_paused = true)]
async fn the_watchdog_hears_nothing_once_a_task_does_nothing_but_panic() {
    let mut tree = TaskTree::default();
    let checks = watchdog_checks(tree.failures());
    let verdict = || {
        checks
            .iter()
            .find_map(|check| check.check().err().map(|why| format!("{}: {why}", check.name())))
    };
    assert_eq!(verdict(), None);
    tree.start("broken", || async { panic!("always") });
    tokio::time::sleep(Duration::from_secs(14)).await;
    assert_eq!(verdict(), None, "four panics may pass");
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(verdict(), Some("tasks: task broken panicked 5 times in a row".to_owned()));
}
