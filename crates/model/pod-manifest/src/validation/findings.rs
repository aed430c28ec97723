//! Findings and field paths, as the rules write them.

use std::fmt::{self, Display};
use std::ops::RangeInclusive;

use document::diagnostic::Diagnostic;
use pod_model::NameError;

/// A field path: `spec.containers[0].ports[1].hostPort`.
#[derive(Debug, Clone)]
pub(super) struct FieldPath(String);

impl FieldPath {
    pub(super) fn new(root: &str) -> Self {
        Self(root.to_owned())
    }

    pub(super) fn child(&self, name: &str) -> Self {
        Self(format!("{}.{name}", self.0))
    }

    pub(super) fn index(&self, index: usize) -> Self {
        Self(format!("{}[{index}]", self.0))
    }

    pub(super) fn key(&self, key: &str) -> Self {
        Self(format!("{}[{key}]", self.0))
    }
}

impl Display for FieldPath {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// Everything that was found so far.
#[derive(Debug, Default)]
pub(super) struct PodFindings(Vec<Diagnostic>);

impl PodFindings {
    pub(super) fn into_diagnostics(self) -> Vec<Diagnostic> {
        self.0
    }

    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    pub(super) fn invalid(
        &mut self,
        path: &FieldPath,
        value: impl Display,
        why: impl Into<String>,
    ) {
        self.0.push(Diagnostic::error(&*path.0, why).with_value(value));
    }

    pub(super) fn required(&mut self, path: &FieldPath) {
        self.forbidden(path, "a value is required");
    }

    /// Says that a required text is missing; true when it is there.
    pub(super) fn require(&mut self, text: &str, path: &FieldPath) -> bool {
        if text.is_empty() {
            self.required(path);
        }
        !text.is_empty()
    }

    /// A finding that concerns the field's presence, not its value.
    pub(super) fn forbidden(&mut self, path: &FieldPath, why: impl Into<String>) {
        self.0.push(Diagnostic::error(&*path.0, why));
    }

    pub(super) fn unsupported(&mut self, path: &FieldPath, value: impl Display, known: &[&str]) {
        self.invalid(path, value, format!("expected one of {}", known.join(", ")));
    }

    pub(super) fn duplicate(&mut self, path: &FieldPath, value: impl Display) {
        self.invalid(path, value, "given more than once");
    }

    pub(super) fn not_found(&mut self, path: &FieldPath, value: impl Display) {
        self.invalid(path, value, "there is nothing of this name");
    }

    pub(super) fn range(&mut self, path: &FieldPath, value: i64, range: RangeInclusive<i64>) {
        let (low, high) = range.into_inner();
        if !(low..=high).contains(&value) {
            self.invalid(path, value, format!("expected a number from {low} to {high}"));
        }
    }

    pub(super) fn not_negative(&mut self, path: &FieldPath, value: i64) {
        if value < 0 {
            self.invalid(path, value, "expected zero or more");
        }
    }

    /// Passes the finding of a name rule on.
    pub(super) fn name(
        &mut self,
        path: &FieldPath,
        value: &str,
        format_result: Result<(), NameError>,
    ) {
        if let Err(diagnostic) = format_result {
            self.invalid(path, value, diagnostic.to_string());
        }
    }

    /// Passes the finding of a word rule on.
    pub(super) fn check_format(
        &mut self,
        path: &FieldPath,
        value: &str,
        format_result: Result<(), &'static str>,
    ) {
        if let Err(why) = format_result {
            self.invalid(path, value, why);
        }
    }
}
