//! The query of a request, as Go reads it.
//!
//! Rule: pure; a pair that cannot be decoded is skipped, the first of several values counts, as in
//! Go's net/url.

use crate::health_reply::parameters;

/// Names and values, decoded, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct QueryParameters(Vec<(String, String)>);

impl QueryParameters {
    pub(super) fn parse(query: &str) -> Self {
        Self(parameters(query))
    }

    /// The first value of this name.
    pub(super) fn first(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    pub(super) fn all<'a>(&'a self, name: &'a str) -> impl DoubleEndedIterator<Item = &'a str> {
        self.0.iter().filter(move |(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    /// Whether an API parameter of this name is true: any value but `0` and `false`.
    /// upstream: apimachinery pkg/runtime/conversion.go
    pub(super) fn is_true(&self, name: &str) -> bool {
        self.first(name).is_some_and(|value| value != "0" && !value.eq_ignore_ascii_case("false"))
    }

    /// Whether a stream parameter of this name is set: only `1` is.
    /// upstream: cri-streaming pkg/streaming/remotecommand (NewOptions)
    pub(super) fn is_one(&self, name: &str) -> bool {
        self.first(name) == Some("1")
    }
}
