//! Times saturate at both ends, and differences never go below zero.

use super::*;

#[test]
fn controller_times_add_subtract_and_saturate() {
    let far = ControllerTime::from_nanos(i64::MAX);
    let old = ControllerTime::from_nanos(i64::MIN);
    assert_eq!(ControllerTime::from_secs(2), ControllerTime::from_nanos(2_000_000_000));
    assert_eq!(ControllerTime::from_secs(1).after(Duration::from_millis(5)).nanos(), 1_005_000_000);
    assert_eq!(far.after(Duration::from_secs(1)), far);
    assert_eq!(old.after(Duration::MAX).nanos(), -1);
    assert_eq!(far.since(old), Duration::from_nanos(u64::MAX));
    assert_eq!(old.since(far), Duration::ZERO);
    assert_eq!(
        ControllerTime::from_secs(7).since(ControllerTime::from_secs(4)),
        Duration::from_secs(3)
    );
    assert_eq!(
        ControllerTime::from_secs(3).stamp().assume_local_clock(),
        ControllerTime::from_secs(3)
    );
}
