//! Tasks that panic, on paused time.

use super::*;
use std::sync::atomic::{AtomicU32, Ordering};
use tokio::sync::mpsc;

#[tokio::test(start_paused = true)]
async fn a_panicking_task_starts_again_with_growing_pauses_and_the_others_go_on() {
    let mut tree = TaskTree::default();
    let failures = tree.failures();
    let (lives, mut seen) = mpsc::channel(16);
    let (loop_heartbeats, mut received) = mpsc::channel(64);
    tree.start("quiet", move || {
        let loop_heartbeats = loop_heartbeats.clone();
        async move {
            loop {
                tokio::time::sleep(Duration::from_secs(1)).await;
                if loop_heartbeats.send(()).await.is_err() {
                    return;
                }
            }
        }
    });
    let begun = Instant::now();
    tree.start("crashing", move || {
        let lives = lives.clone();
        async move {
            let _ = lives.send((begun.elapsed().as_secs(), current_task())).await;
            tokio::task::yield_now().await;
            panic!("life {} is over", 1);
        }
    });
    let mut times = Vec::new();
    for _ in 0..5 {
        let (time, name) = seen.recv().await.unwrap();
        assert_eq!(name.as_deref(), Some("crashing"));
        times.push(time);
    }
    assert_eq!(times, [0, 1, 3, 7, 15]);
    assert_eq!(failures.worst(), Some(("crashing", 4)));
    for _ in 0..14 {
        received.recv().await.unwrap();
    }
    tree.end().await;
    assert!(seen.recv().await.is_none(), "the task lives on");
}

#[tokio::test(start_paused = true)]
async fn a_task_that_did_well_for_long_is_forgiven() {
    let mut tree = TaskTree::default();
    let failures = tree.failures();
    let lives = Arc::new(AtomicU32::new(0));
    tree.start("moody", {
        let lives = lives.clone();
        move || {
            let life = lives.fetch_add(1, Ordering::SeqCst);
            async move {
                if life >= 3 {
                    tokio::time::sleep(PANIC_RESET + Duration::from_secs(1)).await;
                }
                assert!(life > 3, "again");
            }
        }
    });
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(failures.worst(), Some(("moody", 3)));
    tokio::time::sleep(PANIC_RESET).await;
    // The fourth run was long, so its panic is a first one and the next start is soon.
    assert_eq!(failures.worst(), Some(("moody", 1)));
    assert_eq!(lives.load(Ordering::SeqCst), 5);
    tokio::time::sleep(PANIC_RESET).await;
    assert_eq!(failures.worst(), None);
}

#[tokio::test]
async fn panics_in_making_and_in_dropping_are_caught_too() {
    let made = run_once(&mut || -> std::future::Ready<()> { panic!("in making") }).await;
    assert_eq!(made, Err("in making".to_owned()));

    struct Grumpy;
    impl Drop for Grumpy {
        fn drop(&mut self) {
            std::panic::panic_any(7_u8);
        }
    }
    let dropped = run_once(&mut || {
        let grumpy = Grumpy;
        async move {
            let _kept_until_the_end = &grumpy;
        }
    })
    .await;
    assert_eq!(dropped, Err("a panic without a message".to_owned()));
}

#[tokio::test]
async fn a_task_that_returns_is_left_alone() {
    let lives = Arc::new(AtomicU32::new(0));
    let mut tree = TaskTree::default();
    tree.start("once", {
        let lives = lives.clone();
        move || {
            lives.fetch_add(1, Ordering::SeqCst);
            async {}
        }
    });
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(lives.load(Ordering::SeqCst), 1);
    assert_eq!(current_task(), None);
}
