//! Named points at which a test makes the server abort, to show that a crash there loses nothing.
//!
//! Rule: compiled only with debug assertions, so a release build cannot crash this way. A crash is
//! an abort: no destructor runs, nothing is written. Each point comes right after an external
//! effect and before the next step that depends on it.

/// Every crash point. The crash tests fail unless each was reached.
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

/// Chooses the point at which this process aborts. No effect in a release build.
pub fn arm(point: &str) {
    #[cfg(debug_assertions)]
    let _ = ARMED.set(point.to_owned());
    #[cfg(not(debug_assertions))]
    let _ = point;
}

/// Marks a point as reached: aborts the process if a test has armed it.
#[cfg(debug_assertions)]
pub(crate) fn reached(point: &'static str) {
    debug_assert!(ALL.contains(&point), "{point} is not in ALL");
    if ARMED.get().is_some_and(|armed| armed == point) {
        tracing::error!(point, "Aborting at the crash point that a test armed");
        std::process::abort();
    }
}

#[cfg(not(debug_assertions))]
pub(crate) fn reached(_: &'static str) {}
