//! Named points at which a test can crash the controller, to show that a crash there loses nothing.
//!
//! Rule: only in builds with debug assertions; absent from release builds. A crash is an abort at
//! the point. Each point lies right after the API server accepted a write and before the controller
//! recorded that.

/// Every point. The crash test fails unless each was hit.
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

/// Chooses the point at which this process crashes. No effect in a release build.
pub fn arm(point: &str) {
    #[cfg(debug_assertions)]
    let _ = ARMED.set(point.to_owned());
    #[cfg(not(debug_assertions))]
    let _ = point;
}

/// Marks a point.
#[cfg(debug_assertions)]
pub(crate) fn reached(point: &'static str) {
    debug_assert!(ALL.contains(&point), "{point} is not in the list");
    if ARMED.get().is_some_and(|armed| armed == point) {
        tracing::error!(point, "Aborting at the crash point that a test armed");
        std::process::abort();
    }
}

#[cfg(not(debug_assertions))]
pub(crate) fn reached(_: &'static str) {}
