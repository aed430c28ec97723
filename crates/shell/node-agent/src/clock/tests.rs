//! Jumps of the machine's clock.

use super::*;

const SECOND: i64 = 1_000_000_000;

#[tokio::test(start_paused = true)]
async fn small_differences_are_ignored_and_jumps_are_adopted_and_counted() {
    let start = Instant::now();
    let mut anchor = Anchor { at: start, wall: 1000 * SECOND, last: i64::MIN };
    let at = |seconds| start + Duration::from_secs(seconds);
    assert_eq!(anchor.read(at(5), Some(1006 * SECOND)), (1005 * SECOND, false), "slewed");
    assert_eq!(anchor.read(at(6), Some(4000 * SECOND)), (4000 * SECOND, false), "forward");
    assert_eq!(anchor.read(at(7), Some(4001 * SECOND)), (4001 * SECOND, false));
    assert_eq!(anchor.read(at(8), Some(10 * SECOND)), (10 * SECOND, true), "back");
    assert_eq!(anchor.read(at(9), Some(11 * SECOND)), (11 * SECOND, false));
    assert_eq!(anchor.read(at(19), None), (21 * SECOND, false));
    assert_eq!(anchor.read(at(19), None), (21 * SECOND + 1, false), "never twice the same");
}

#[tokio::test(start_paused = true)]
async fn a_test_clock_follows_paused_time() {
    let clock = AgentClock::starting_at(ApiTime::from_nanos(7 * SECOND));
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(clock.now(), ApiTime::from_nanos(10 * SECOND));
    let left = clock.until(later(clock.now(), Duration::from_secs(4)));
    assert_eq!(left.as_millis(), 3999);
    assert_eq!(clock.until(ApiTime::from_nanos(0)), Duration::ZERO);
    assert!(!clock.jumps().has_changed().unwrap());
}

#[test]
fn the_system_clock_returns_the_current_time() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        assert!(AgentClock::system().now() > ApiTime::parse("2024-01-01T00:00:00Z").unwrap());
    });
}
