//! Tasks that panic, in virtual time.

use super::*;
use std::sync::atomic::{AtomicU32, Ordering};
use tokio::sync::mpsc;

#[tokio::test(start_paused = true)]
async fn a_panicking_task_restarts_with_growing_delays_and_the_others_go_on() {
    let mut tree = TaskTree::default();
    let failures = tree.failures();
    let (starts, mut received_starts) = mpsc::channel(16);
    let (ticks, mut received_ticks) = mpsc::channel(64);
    tree.start("quiet", move || {
        let ticks = ticks.clone();
        async move {
            loop {
                tokio::time::sleep(Duration::from_secs(1)).await;
                if ticks.send(()).await.is_err() {
                    return;
                }
            }
        }
    });
    let test_start = Instant::now();
    tree.start("crashing", move || {
        let starts = starts.clone();
        async move {
            let _ = starts.send((test_start.elapsed().as_secs(), current_task())).await;
            tokio::task::yield_now().await;
            panic!("panic number {}", 1);
        }
    });
    let mut times = Vec::new();
    for _ in 0..5 {
        let (time, name) = received_starts.recv().await.unwrap();
        assert_eq!(name.as_deref(), Some("crashing"));
        times.push(time);
    }
    assert_eq!(times, [0, 1, 3, 7, 15]);
    assert_eq!(failures.worst(), Some(("crashing", 4)));
    for _ in 0..14 {
        received_ticks.recv().await.unwrap();
    }
    tree.end().await;
    assert!(received_starts.recv().await.is_none(), "the task still runs");
}

#[tokio::test(start_paused = true)]
async fn the_panics_of_a_task_that_ran_long_enough_are_forgotten() {
    let mut tree = TaskTree::default();
    let failures = tree.failures();
    let starts = Arc::new(AtomicU32::new(0));
    tree.start("flaky", {
        let starts = starts.clone();
        move || {
            let earlier_starts = starts.fetch_add(1, Ordering::SeqCst);
            async move {
                if earlier_starts >= 3 {
                    tokio::time::sleep(PANIC_RESET + Duration::from_secs(1)).await;
                }
                assert!(earlier_starts > 3, "again");
            }
        }
    });
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(failures.worst(), Some(("flaky", 3)));
    tokio::time::sleep(PANIC_RESET).await;
    // The fourth run was long, so its panic is a first one and the next start is soon.
    assert_eq!(failures.worst(), Some(("flaky", 1)));
    assert_eq!(starts.load(Ordering::SeqCst), 5);
    tokio::time::sleep(PANIC_RESET).await;
    assert_eq!(failures.worst(), None);
}

#[tokio::test]
async fn panics_while_a_task_is_made_or_dropped_are_caught_too() {
    let made = run_once(&mut || -> std::future::Ready<()> { panic!("in making") }).await;
    assert_eq!(made, Err("in making".to_owned()));

    struct PanicsOnDrop;
    impl Drop for PanicsOnDrop {
        fn drop(&mut self) {
            std::panic::panic_any(7_u8);
        }
    }
    let dropped = run_once(&mut || {
        let value = PanicsOnDrop;
        async move {
            let _kept_until_the_end = &value;
        }
    })
    .await;
    assert_eq!(dropped, Err("a panic without a message".to_owned()));
}

#[tokio::test]
async fn a_task_that_returned_is_not_restarted() {
    let starts = Arc::new(AtomicU32::new(0));
    let mut tree = TaskTree::default();
    tree.start("once", {
        let starts = starts.clone();
        move || {
            starts.fetch_add(1, Ordering::SeqCst);
            async {}
        }
    });
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(starts.load(Ordering::SeqCst), 1);
    assert_eq!(current_task(), None);
}
