//! CPU time in the kernel's terms: shares and quota.
//!
//! Rule: the arithmetic of the reference, whose roundings are visible in the cgroup files; nothing
//! overflows.
//!
//! upstream: pkg/kubelet/cm/helpers_linux.go

#[cfg(test)]
mod tests;

pub const MIN_SHARES: i64 = 2;
pub const MAX_SHARES: i64 = 262_144;
const SHARES_PER_CPU: i64 = 1024;
const MILLI_PER_CPU: i64 = 1000;

/// Microseconds.
pub const DEFAULT_PERIOD: i64 = 100_000;
const MIN_QUOTA: i64 = 1000;

/// The shares for this many millicores; zero gives the kernel's minimum, not its default.
pub fn shares(milli_cpu: i64) -> i64 {
    (milli_cpu.saturating_mul(SHARES_PER_CPU) / MILLI_PER_CPU).clamp(MIN_SHARES, MAX_SHARES)
}

/// The quota in microseconds for this many millicores in a period; zero means unset.
pub fn quota(milli_cpu: i64, period: i64) -> i64 {
    if milli_cpu == 0 {
        return 0;
    }
    (milli_cpu.saturating_mul(period) / MILLI_PER_CPU).max(MIN_QUOTA)
}
