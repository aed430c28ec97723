//! Named points at which a test lets the server die, to show that a crash there loses nothing.
//!
//! Rule: only in builds with debug assertions; a release build has none of it. A crash is an abort:
//! no destructor runs, nothing is written. Each point comes right after an external effect and
//! before the next step that depends on it.

/// Every point. The kill tests fail unless each was reached.
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

/// Chooses the point at which this process will die. No effect in a release build.
pub fn arm(point: &str) {
    #[cfg(debug_assertions)]
    let _ = ARMED.set(point.to_owned());
    #[cfg(not(debug_assertions))]
    let _ = point;
}

/// Marks a point as reached.
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
