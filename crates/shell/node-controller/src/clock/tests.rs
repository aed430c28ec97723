//! Moments never go back.

use std::sync::atomic::{AtomicI64, Ordering};

use super::*;

struct Watch(AtomicI64);

impl Surroundings for Watch {
    fn wall(&self) -> ApiTime {
        ApiTime::from_nanos(self.0.load(Ordering::Relaxed) * 1_000_000_000)
    }

    fn random(&self) -> u64 {
        4
    }
}

#[tokio::test(start_paused = true)]
async fn a_clock_set_back_changes_nothing_and_a_sleep_is_noticed() {
    let watch = Arc::new(Watch(AtomicI64::new(1_000)));
    let clock = Clock::new(watch.clone());
    assert_eq!(clock.now(), Moment::from_secs(1_000));
    tokio::time::advance(Duration::from_secs(5)).await;
    watch.0.store(10, Ordering::Relaxed);
    assert_eq!(clock.now(), Moment::from_secs(1_005), "set back");
    assert_eq!(clock.wall(), ApiTime::from_nanos(10_000_000_000));
    // The machine slept: its clock went on, the steady one did not.
    watch.0.store(9_000, Ordering::Relaxed);
    assert_eq!(clock.now(), Moment::from_secs(9_000));
    tokio::time::advance(Duration::from_secs(1)).await;
    watch.0.store(8_000, Ordering::Relaxed);
    assert_eq!(clock.now(), Moment::from_secs(9_001));
    let in_two = clock.instant_of(Moment::from_secs(9_003));
    assert_eq!(in_two - Instant::now(), Duration::from_secs(2));
    assert!(clock.instant_of(Moment::from_secs(1)) <= Instant::now());
}
