//! State of a list and watch: what to request next, given the responses.
//!
//! Rule: a pure state machine. A list that failed half-way resumes at its next page; an expired
//! version starts over; a page that is too large is requested in halves.
//!
//! ```text
//! Start ──page──> Page(token) ──last page──> At(version) ──bookmarks, events──> At(newer)
//!   ^────────────── expired ──────┴────────────── expired ───────┘
//! ```

use ports::ClusterApiError;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Progress {
    position: Position,
    page: u32,
    /// How many streams in a row have ended without an event.
    silent: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Position {
    Start,
    Page { token: String },
    At { version: String },
}

/// The next request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Question {
    List { token: Option<String>, limit: u32 },
    Watch { version: String },
}

impl Progress {
    pub(crate) fn new(page: u32) -> Self {
        Self { position: Position::Start, page: page.max(1), silent: 0 }
    }

    pub(crate) fn question(&self) -> Question {
        match &self.position {
            Position::Start => Question::List { token: None, limit: self.page },
            Position::Page { token } => {
                Question::List { token: Some(token.clone()), limit: self.page }
            }
            Position::At { version } => Question::Watch { version: version.clone() },
        }
    }

    /// A stream was silent, without even a bookmark. That is how a version behaves that the API
    /// server has not reached yet, after its storage was restored from a backup: so it is not
    /// requested for ever.
    pub(crate) fn heard_nothing(&mut self) {
        self.silent += 1;
        if self.silent >= 2 {
            self.silent = 0;
            self.position = Position::Start;
        }
    }

    /// A page arrived; whether it was the last.
    pub(crate) fn page_came(&mut self, version: &str, token: &str) -> bool {
        self.position = if token.is_empty() {
            Position::At { version: version.to_owned() }
        } else {
            Position::Page { token: token.to_owned() }
        };
        token.is_empty()
    }

    /// An event or a bookmark of that version arrived. One without a version changes nothing.
    pub(crate) fn reached(&mut self, version: &str) {
        self.silent = 0;
        if let Position::At { version: at } = &mut self.position
            && !version.is_empty()
        {
            version.clone_into(at);
        }
    }

    pub(crate) fn failed(&mut self, error: &ClusterApiError) {
        match (error, &self.position) {
            (ClusterApiError::Expired { .. }, _) => self.position = Position::Start,
            // An object that is too large for a watch event may still fit into a page.
            (ClusterApiError::TooLarge { .. }, Position::At { .. }) => {
                self.position = Position::Start;
            }
            (ClusterApiError::TooLarge { .. }, _) => self.page = (self.page / 2).max(1),
            // A version or token that this API server rejects, such as one from before its storage
            // was restored, would be rejected for ever; and what cannot be decoded would be sent
            // again.
            (ClusterApiError::Refused { .. } | ClusterApiError::Unreadable { .. }, _) => {
                self.position = Position::Start;
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
