//! What containers and calls of the fake runtime do, by default and with injected faults.

use std::time::Duration;

/// What a container does once it is started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Behaviour {
    /// Until it is stopped; then it ends at once with 143.
    RunsForEver,
    /// Ends by itself.
    Exits { after: Duration, code: i32 },
    /// Ignores SIGTERM; is killed after the grace period, with exit code 137.
    IgnoresStop,
}

/// An injected fault of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// The runtime returns an error with this text.
    Refuses(String),
    /// The runtime does not implement the call.
    Lacks,
    /// Never answers.
    Hangs,
    /// Does its work, and answers after this delay.
    AnswersLate(Duration),
    /// Does its work, but the response is lost.
    LosesAnswer,
    Panics,
}
