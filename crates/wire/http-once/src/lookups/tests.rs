//! A resolver that hangs, and its effect on other lookups.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::*;

/// How often `slow-one` was looked up; no other test uses it.
static LOOKUP_COUNT: AtomicUsize = AtomicUsize::new(0);

/// Names that begin with `slow` take as long as with a resolver whose servers are unreachable.
fn resolver(host: &str) -> io::Result<Vec<SocketAddr>> {
    if host == "slow-one" {
        LOOKUP_COUNT.fetch_add(1, Ordering::SeqCst);
    }
    if host.starts_with("slow") {
        std::thread::sleep(Duration::from_secs(3));
    }
    match host {
        "nobody" => Err(io::Error::other("not known")),
        "panic" => panic!("a resolver that is broken"),
        _ => Ok(vec![SocketAddr::from(([127, 0, 0, 1], 0))]),
    }
}

async fn within(lookups: &Lookups, host: &str, milliseconds: u64) -> Result<String, String> {
    let limit = Duration::from_millis(milliseconds);
    match tokio::time::timeout(limit, lookups.addresses(host, 80)).await {
        Ok(Ok(found)) => Ok(format!("{found:?}")),
        Ok(Err(http_error)) => Err(http_error.to_string()),
        Err(_) => Err("late".to_owned()),
    }
}

#[tokio::test]
async fn a_hanging_name_occupies_one_thread_however_often_it_is_looked_up() {
    let lookups = Lookups::new(2, resolver);
    for _ in 0..20 {
        assert_eq!(within(&lookups, "slow-one", 5).await, Err("late".to_owned()));
    }
    assert_eq!(LOOKUP_COUNT.load(Ordering::SeqCst), 1);
    let other = within(&lookups, "other", 2000).await;
    assert_eq!(other, Ok("[127.0.0.1:80]".to_owned()));
    assert_eq!(within(&lookups, "slow-two", 5).await, Err("late".to_owned()));
    let beyond = within(&lookups, "other", 2000).await.unwrap_err();
    assert_eq!(
        beyond,
        "dial tcp: lookup other: 2 lookups are under way and none ends; not looked up"
    );
    assert_eq!(within(&lookups, "slow-one", 20_000).await, Ok("[127.0.0.1:80]".to_owned()));
    assert_eq!(within(&lookups, "slow-two", 20_000).await, Ok("[127.0.0.1:80]".to_owned()));
    assert!(within(&lookups, "other", 2000).await.is_ok(), "the places are free again");
}

#[tokio::test]
async fn a_failed_or_panicked_lookup_frees_its_slot() {
    let lookups = Lookups::new(1, resolver);
    for _ in 0..2 {
        let missing = within(&lookups, "nobody", 5000).await.unwrap_err();
        assert_eq!(missing, "dial tcp: lookup nobody: no such host");
        let broken = within(&lookups, "panic", 5000).await.unwrap_err();
        assert_eq!(broken, "dial tcp: lookup panic: the lookup failed");
    }
}

/// The async runtime's blocking pool is what a lookup could exhaust: none of it is used here.
#[test]
fn lookups_do_not_block_the_async_runtime() {
    let runtime =
        tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).enable_all().build();
    runtime.unwrap().block_on(async {
        let lookups = Lookups::new(MAX_LOOKUPS, resolver);
        assert_eq!(within(&lookups, "slow-three", 5).await, Err("late".to_owned()));
        let read = tokio::task::spawn_blocking(|| 1);
        let read = tokio::time::timeout(Duration::from_secs(2), read).await;
        assert_eq!(read.expect("the pool is taken").unwrap(), 1);
    });
}
