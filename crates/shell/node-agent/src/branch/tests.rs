//! Tasks of a set: values, panics, aborts.

use super::*;
use std::time::Duration;

#[tokio::test(start_paused = true)]
async fn values_and_panics_are_told_by_key_and_aborted_ones_are_not() {
    let mut branch: Branch<&str, u32> = Branch::default();
    branch.start("slow", "slow", async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        1
    });
    branch.start("bad", "bad", async { panic!("broken") });
    branch.start("gone", "gone", async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        2
    });
    assert_eq!(branch.len(), 3);
    assert!(branch.abort(&"gone"));
    assert!(!branch.abort(&"gone"));
    assert_eq!(branch.next().await, ("bad", Err(Panicked("broken".to_owned()))));
    branch.start("slow", "slow again", async { 3 });
    assert_eq!(branch.next().await, ("slow", Ok(3)), "the first one was replaced");
    assert!(branch.is_empty());
    let waited = tokio::time::timeout(Duration::from_secs(60), branch.next()).await;
    assert!(waited.is_err(), "nothing more is told");
}

#[tokio::test(start_paused = true)]
async fn dropping_the_branch_ends_its_tasks() {
    let (alive, mut ended) = tokio::sync::mpsc::channel::<()>(1);
    let mut branch: Branch<u8, ()> = Branch::default();
    branch.start(1, "holder", async move {
        let _held = alive;
        std::future::pending::<()>().await;
    });
    tokio::task::yield_now().await;
    drop(branch);
    assert_eq!(ended.recv().await, None);
}
