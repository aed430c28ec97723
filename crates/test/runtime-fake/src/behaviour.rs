//! What containers and calls do when a test says nothing, and when it does.

use std::time::Duration;

/// What a container does once it is started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Behaviour {
    /// Until it is stopped; then it ends at once with 143.
    RunsForEver,
    /// Ends by itself.
    Exits { after: Duration, code: i32 },
    /// Does not end before the grace is over, and then with 137.
    IgnoresStop,
}

/// What a call does instead of its work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// The runtime refuses with this text.
    Refuses(String),
    /// The runtime does not know the call.
    Lacks,
    /// Never answers.
    Hangs,
    /// Does its work, and answers so much later.
    AnswersLate(Duration),
    /// Does its work, but the answer is lost.
    LosesAnswer,
    Panics,
}
