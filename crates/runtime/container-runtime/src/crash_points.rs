//! Named instants at which a test lets the server die, to show that dying there costs nothing.
//!
//! Rule: only in builds with debug assertions; a release build has none of it. A crash is an abort
//! at the spot: no destructor runs, nothing is written. Each point stands right after something
//! became true outside and before the next step that depends on it.

/// Every point. The kill tests fail unless each was hit.
pub const ALL: &[&str] = &[
    "sandbox-recorded",
    "network-planned",
    "supervisor-launched",
    "pod-made",
    "network-made",
    "container-recorded",
    "container-furnished",
    "start-recorded",
    "container-made",
    "container-started",
    "exit-heard",
    "removal-recorded",
    "container-disposed",
    "stop-recorded",
    "supervisor-ended",
    "network-freed",
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
