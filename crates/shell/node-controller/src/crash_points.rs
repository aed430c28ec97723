//! Named instants at which a test lets the controller die, to show that dying there costs nothing.
//!
//! Rule: only in builds with debug assertions; a release build has none of it. A crash is an abort
//! at the spot. Each point stands right after the API server has taken a write and before the
//! controller has noted it.

/// Every point. The test of dying controllers fails unless each was hit.
pub const ALL: &[&str] = &[
    "range-written",
    "node-touched",
    "condition-written",
    "pod-marked",
    "taint-written",
    "disruption-written",
    "pod-deleted",
];

#[cfg(debug_assertions)]
static ARMED: std::sync::OnceLock<String> = std::sync::OnceLock::new();

/// Chooses the point at which this process will die. Without effect in a release build.
pub fn arm(point: &str) {
    #[cfg(debug_assertions)]
    let _ = ARMED.set(point.to_owned());
    #[cfg(not(debug_assertions))]
    let _ = point;
}

/// Says that a point is reached.
#[cfg(debug_assertions)]
pub(crate) fn reached(point: &'static str) {
    debug_assert!(ALL.contains(&point), "{point} is not in the list");
    if ARMED.get().is_some_and(|armed| armed == point) {
        tracing::error!(point, "Dying as a test asked for");
        std::process::abort();
    }
}

#[cfg(not(debug_assertions))]
pub(crate) fn reached(_: &'static str) {}
