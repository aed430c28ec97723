//! Tasks of a set: values, panics, aborts.

use super::*;
use std::time::Duration;

#[tokio::test(start_paused = true)]
async fn values_and_panics_are_returned_by_key_and_aborted_tasks_are_not() {
    let mut tasks: KeyedTasks<&str, u32> = KeyedTasks::default();
    tasks.start("slow", "slow", async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        1
    });
    tasks.start("bad", "bad", async { panic!("broken") });
    tasks.start("gone", "gone", async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        2
    });
    assert_eq!(tasks.len(), 3);
    assert!(tasks.abort(&"gone"));
    assert!(!tasks.abort(&"gone"));
    assert_eq!(tasks.next().await, ("bad", Err(Panicked("broken".to_owned()))));
    tasks.start("slow", "slow again", async { 3 });
    assert_eq!(tasks.next().await, ("slow", Ok(3)), "the first one was replaced");
    assert!(tasks.is_empty());
    let waited = tokio::time::timeout(Duration::from_secs(60), tasks.next()).await;
    assert!(waited.is_err(), "nothing more is told");
}

#[tokio::test(start_paused = true)]
async fn dropping_keyed_tasks_aborts_them() {
    let (alive, mut ended) = tokio::sync::mpsc::channel::<()>(1);
    let mut tasks: KeyedTasks<u8, ()> = KeyedTasks::default();
    tasks.start(1, "holder", async move {
        let _held = alive;
        std::future::pending::<()>().await;
    });
    tokio::task::yield_now().await;
    drop(tasks);
    assert_eq!(ended.recv().await, None);
}
