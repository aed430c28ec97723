//! Times never go back, and only elapsed time advances them.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use super::*;

#[derive(Default)]
struct FakeEnvironment {
    wall: AtomicI64,
    boot: AtomicU64,
}

impl SystemEnvironment for FakeEnvironment {
    fn wall(&self) -> ApiTime {
        ApiTime::from_nanos(self.wall.load(Ordering::Relaxed) * 1_000_000_000)
    }

    fn since_boot(&self) -> Duration {
        Duration::from_secs(self.boot.load(Ordering::Relaxed))
    }

    fn random(&self) -> u64 {
        4
    }
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_set_changes_nothing_and_a_sleep_is_noticed() {
    let watch = Arc::new(FakeEnvironment { wall: 1_000.into(), boot: 70.into() });
    let clock = ControllerClock::new(watch.clone());
    assert_eq!(clock.now(), ControllerTime::from_secs(1_000));
    watch.boot.store(75, Ordering::Relaxed);
    for wall in [10, 9_000, 1_007] {
        watch.wall.store(wall, Ordering::Relaxed);
        assert_eq!(clock.now(), ControllerTime::from_secs(1_005), "set to {wall}");
        assert_eq!(clock.wall(), ApiTime::from_nanos(wall * 1_000_000_000));
    }
    // The machine was suspended for an hour.
    watch.boot.store(3_675, Ordering::Relaxed);
    assert_eq!(clock.now(), ControllerTime::from_secs(4_605));
    let in_two = clock.instant_of(ControllerTime::from_secs(4_607));
    assert_eq!(in_two - Instant::now(), Duration::from_secs(2));
    assert!(clock.instant_of(ControllerTime::from_secs(1)) <= Instant::now());
    assert!(clock.instant_of(ControllerTime::from_nanos(i64::MAX)) > Instant::now());
}
