//! When a scripted runtime is polled, on paused time.

use super::*;
use crate::task_tree::TaskTree;
use ports::PortFuture;
use ports::container_runtime::{ContainerRuntimeError, RuntimeCondition};
use std::sync::Mutex;
use tokio::time::Instant;

/// Answers as scripted, then repeats its last answer for ever; records when it was called.
struct Scripted {
    script: Mutex<Vec<Option<bool>>>,
    asked: Mutex<Vec<Instant>>,
}

impl ContainerRuntime for Scripted {
    fn version(&self) -> PortFuture<'_, Result<RuntimeVersion, ContainerRuntimeError>> {
        self.asked.lock().unwrap().push(Instant::now());
        let silent = self.script.lock().unwrap()[0].is_none();
        Box::pin(async move {
            if silent {
                self.turn();
                return Err(ContainerRuntimeError::DeadlineExceeded {
                    call: "Version",
                    limit: Duration::from_secs(2),
                });
            }
            Ok(RuntimeVersion {
                runtime_name: "fake".to_owned(),
                runtime_version: "1".to_owned(),
                interface_version: "v1".to_owned(),
            })
        })
    }

    fn status(&self) -> PortFuture<'_, Result<RuntimeStatus, ContainerRuntimeError>> {
        let met = self.script.lock().unwrap()[0].unwrap_or_default();
        self.turn();
        let condition = |kind, met| RuntimeCondition {
            kind,
            met,
            reason: "Because".to_owned(),
            message: "no network plugin".to_owned(),
        };
        let conditions = vec![
            condition(RuntimeConditionKind::RuntimeReady, true),
            condition(RuntimeConditionKind::NetworkReady, met),
        ];
        Box::pin(async { Ok(RuntimeStatus { conditions, strict_supplemental_groups: false }) })
    }
}

impl Scripted {
    fn turn(&self) {
        let mut script = self.script.lock().unwrap();
        if script.len() > 1 {
            script.remove(0);
        }
    }
}

async fn asked(script: &[Option<bool>], seconds: u64) -> (Vec<u64>, RuntimeView) {
    let begun = Instant::now();
    let runtime =
        Arc::new(Scripted { script: Mutex::new(script.to_vec()), asked: Mutex::default() });
    let (view, known) = watch::channel(RuntimeView::default());
    let mut tree = TaskTree::default();
    tree.start("runtime-watch", {
        let runtime = runtime.clone();
        move || watch_runtime(runtime.clone(), view.clone(), Arc::default(), None)
    });
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    let times = runtime.asked.lock().unwrap();
    let times = times.iter().map(|time| (*time - begun).as_secs()).collect();
    (times, known.borrow().clone())
}

#[tokio::test(start_paused = true)]
async fn an_unreachable_runtime_is_polled_with_growing_delays() {
    let (times, view) = asked(&[None], 100).await;
    assert_eq!(times, [0, 1, 3, 7, 15, 31, 61, 91]);
    assert_eq!(view.summary(), "container runtime does not answer: Version: no answer within 2s");
}

#[tokio::test(start_paused = true)]
async fn a_ready_runtime_is_polled_rarely_and_an_unready_one_often() {
    let (times, view) = asked(&[Some(true)], 200).await;
    assert_eq!(times, [0, 5, 15, 35, 75, 135, 195]);
    assert_eq!(view.summary(), "container runtime fake 1 is ready");

    let (times, view) = asked(&[Some(true), Some(true), Some(false)], 60).await;
    assert_eq!(times, [0, 5, 15, 16, 18, 22, 27, 32, 37, 42, 47, 52, 57]);
    assert_eq!(
        view.summary(),
        "container runtime fake 1: NetworkReady is false, reason Because, \
         message \"no network plugin\""
    );
}

#[tokio::test(start_paused = true)]
async fn a_returning_runtime_is_noticed_soon_and_its_next_outage_too() {
    let (times, _) = asked(&[None, None, Some(true), None, None, Some(true)], 20).await;
    assert_eq!(times, [0, 1, 3, 8, 9, 11, 16]);
}

#[tokio::test(start_paused = true)]
async fn a_hanging_runtime_is_unreachable_after_the_call_timeout() {
    struct Hanging;
    impl ContainerRuntime for Hanging {
        fn version(&self) -> PortFuture<'_, Result<RuntimeVersion, ContainerRuntimeError>> {
            Box::pin(std::future::pending())
        }
        fn status(&self) -> PortFuture<'_, Result<RuntimeStatus, ContainerRuntimeError>> {
            Box::pin(std::future::pending())
        }
    }
    let view = check_runtime(&Hanging).await;
    assert_eq!(view.summary(), "container runtime does not answer: no answer within 120s");
}
