//! The kernel's clock since boot (CLOCK_BOOTTIME).
//!
//! Rule: it cannot be set, never goes back, and goes on while the machine sleeps, unlike
//! CLOCK_MONOTONIC.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

#[must_use]
pub fn since_boot() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_clock_goes_on() {
        let first = since_boot();
        std::thread::sleep(Duration::from_millis(2));
        assert!(first > Duration::ZERO && since_boot() >= first + Duration::from_millis(2));
    }
}
