//! State of a list and watch: what to request next, given the responses.
//!
//! Rule: a pure state machine. A list that failed half-way resumes at its next page; an expired
//! version starts over; a page that is too large is requested in halves. An API server that was not
//! reachable may come back with older data: a watch from a version that it has not reached yet would
//! be silent until then, so its current version is asked for first.
//!
//! ```text
//! Start ──page──> Page(token) ──last page──> At(version) ──bookmarks, events──> At(newer)
//!   ^────────────── expired ──────┴────────────── expired ───────┤
//!   ^──── its version is lower ──── Doubted(version) <──unreachable──┘
//! ```

use ports::ClusterApiError;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WatchProgress {
    position: WatchPosition,
    page: u32,
    /// How many streams in a row have ended without an event.
    silent: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum WatchPosition {
    Start,
    Page {
        token: String,
    },
    At {
        version: String,
    },
    /// Listed up to this version, by an API server that was unreachable since then.
    Doubted {
        version: String,
    },
}

/// The next request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum WatchRequest {
    List {
        token: Option<String>,
        limit: u32,
    },
    Watch {
        version: String,
    },
    /// The current version, by a list of one object.
    CurrentVersion,
}

impl WatchProgress {
    pub(crate) fn new(page: u32) -> Self {
        Self { position: WatchPosition::Start, page: page.max(1), silent: 0 }
    }

    pub(crate) fn next_request(&self) -> WatchRequest {
        match &self.position {
            WatchPosition::Start => WatchRequest::List { token: None, limit: self.page },
            WatchPosition::Page { token } => {
                WatchRequest::List { token: Some(token.clone()), limit: self.page }
            }
            WatchPosition::At { version } => WatchRequest::Watch { version: version.clone() },
            WatchPosition::Doubted { .. } => WatchRequest::CurrentVersion,
        }
    }

    /// A stream was silent, without even a bookmark. That is how a version behaves that the API
    /// server has not reached yet, after its storage was restored from a backup: so it is not
    /// requested for ever.
    pub(crate) fn record_silent_stream(&mut self) {
        self.silent += 1;
        if self.silent >= 2 {
            self.silent = 0;
            self.position = WatchPosition::Start;
        }
    }

    /// The current version arrived: a lower one is that of older data, to be listed again.
    pub(crate) fn record_current_version(&mut self, current: &str) {
        if let WatchPosition::Doubted { version } = &self.position {
            self.position = if is_lower(current, version) {
                WatchPosition::Start
            } else {
                WatchPosition::At { version: version.clone() }
            };
        }
    }

    /// A page arrived; whether it was the last.
    pub(crate) fn record_page(&mut self, version: &str, token: &str) -> bool {
        self.position = if token.is_empty() {
            WatchPosition::At { version: version.to_owned() }
        } else {
            WatchPosition::Page { token: token.to_owned() }
        };
        token.is_empty()
    }

    /// An event or a bookmark of that version arrived. One without a version changes nothing.
    pub(crate) fn record_version(&mut self, version: &str) {
        self.silent = 0;
        if let WatchPosition::At { version: at } = &mut self.position
            && !version.is_empty()
        {
            version.clone_into(at);
        }
    }

    pub(crate) fn failed(&mut self, error: &ClusterApiError) {
        match (error, &self.position) {
            (ClusterApiError::Expired { .. }, _) => self.position = WatchPosition::Start,
            // An object that is too large for a watch event may still fit into a page.
            (
                ClusterApiError::TooLarge { .. },
                WatchPosition::At { .. } | WatchPosition::Doubted { .. },
            ) => {
                self.position = WatchPosition::Start;
            }
            (ClusterApiError::Unreachable { .. }, WatchPosition::At { version }) => {
                self.position = WatchPosition::Doubted { version: version.clone() };
            }
            (ClusterApiError::TooLarge { .. }, _) => self.page = (self.page / 2).max(1),
            // A version or token that this API server rejects, such as one from before its storage
            // was restored, would be rejected for ever; and what cannot be decoded would be sent
            // again.
            (ClusterApiError::Refused { .. } | ClusterApiError::Unreadable { .. }, _) => {
                self.position = WatchPosition::Start;
            }
            _ => {}
        }
    }
}

/// Versions are numbers that only grow, since Kubernetes 1.35 by promise; any other text tells
/// nothing.
fn is_lower(current: &str, known: &str) -> bool {
    match (current.parse::<u64>(), known.parse::<u64>()) {
        (Ok(current), Ok(known)) => current < known,
        _ => false,
    }
}

#[cfg(test)]
mod tests;
