//! In virtual time: how many calls run at once, and when a slow one lets others in.

use super::*;
use std::sync::Arc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

/// `calls` calls of `each` duration, started at once: when each of them was over, in milliseconds.
async fn ends(calls: usize, each: Duration) -> Vec<u128> {
    let call_limiter = Arc::new(CallLimiter::new(1));
    let begun = Instant::now();
    let mut running = JoinSet::new();
    for _ in 0..calls {
        let call_limiter = call_limiter.clone();
        running.spawn(async move {
            call_limiter.take(async { sleep(each).await }).await;
            begun.elapsed().as_millis()
        });
    }
    let mut ends = running.join_all().await;
    ends.sort_unstable();
    ends
}

#[tokio::test(start_paused = true)]
async fn only_a_few_calls_run_at_a_time() {
    assert_eq!(ends(4, Duration::from_millis(100)).await, [100; 4]);
    let ends = ends(9, Duration::from_millis(100)).await;
    assert_eq!(ends, [100, 100, 100, 100, 200, 200, 200, 200, 300]);
}

#[tokio::test(start_paused = true)]
async fn a_slow_call_gives_its_permit_back_and_continues() {
    let ends = ends(5, Duration::from_secs(60)).await;
    assert_eq!(ends, [60_000, 60_000, 60_000, 60_000, 62_000]);
}
