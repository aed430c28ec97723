//! Named points at which a test crashes the agent, to show that a crash there costs nothing.
//!
//! Rule: only in builds with debug assertions; a release build has none of it. A crash is an abort:
//! no destructor runs, nothing is written. Each point stands right after something became true
//! outside and before the agent has noted it.

/// Every point. The kill tests fail unless each was reached.
pub const ALL: &[&str] = &[
    "uid-saved",
    "ending-saved",
    "pod-prepared",
    "sandbox-run",
    "container-created",
    "container-begun",
    "container-started",
    "memory-saved",
    "container-stopped",
    "container-removed",
    "sandbox-stopped",
    "pod-cleaned-up",
];

/// The points of a node of a cluster; its kill tests reach each of them.
pub const OF_CLUSTER: &[&str] = &["status-written", "mirror-created", "pod-deleted"];

#[cfg(debug_assertions)]
static ARMED: std::sync::OnceLock<String> = std::sync::OnceLock::new();

/// Chooses the point at which this process crashes. Does nothing in a release build.
pub fn arm(point: &str) {
    #[cfg(debug_assertions)]
    let _ = ARMED.set(point.to_owned());
    #[cfg(not(debug_assertions))]
    let _ = point;
}

/// Marks a point as reached.
#[cfg(debug_assertions)]
pub(crate) fn reached(point: &'static str) {
    debug_assert!(ALL.iter().chain(OF_CLUSTER).any(|each| *each == point), "{point} is not listed");
    if ARMED.get().is_some_and(|armed| armed == point) {
        tracing::error!(point, "Aborting at the crash point that a test armed");
        die();
    }
}

#[cfg(not(debug_assertions))]
pub(crate) fn reached(_: &'static str) {}

#[cfg(debug_assertions)]
fn die() -> ! {
    // The shell cannot send signals; aborting is as abrupt: nothing is unwound or flushed.
    std::process::abort()
}
