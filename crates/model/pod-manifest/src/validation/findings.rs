//! Findings and field paths, as the rules write them.

use std::fmt::{self, Display};

use document::problem::Problem;
use pod_model::NameProblem;

/// A field path: `spec.containers[0].ports[1].hostPort`.
#[derive(Debug, Clone)]
pub(super) struct Path(String);

impl Path {
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

impl Display for Path {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// Everything that was found so far.
#[derive(Debug, Default)]
pub(super) struct Findings(Vec<Problem>);

impl Findings {
    pub(super) fn into_problems(self) -> Vec<Problem> {
        self.0
    }

    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    pub(super) fn invalid(&mut self, path: &Path, value: impl Display, why: impl Into<String>) {
        self.0.push(Problem::error(&*path.0, why).with_value(value));
    }

    pub(super) fn required(&mut self, path: &Path) {
        self.forbidden(path, "a value is required");
    }

    /// Says that a required text is missing; true when it is there.
    pub(super) fn require(&mut self, text: &str, path: &Path) -> bool {
        if text.is_empty() {
            self.required(path);
        }
        !text.is_empty()
    }

    /// A finding that concerns the field's presence, not its value.
    pub(super) fn forbidden(&mut self, path: &Path, why: impl Into<String>) {
        self.0.push(Problem::error(&*path.0, why));
    }

    pub(super) fn unsupported(&mut self, path: &Path, value: impl Display, known: &[&str]) {
        self.invalid(path, value, format!("expected one of {}", known.join(", ")));
    }

    pub(super) fn duplicate(&mut self, path: &Path, value: impl Display) {
        self.invalid(path, value, "given more than once");
    }

    pub(super) fn not_found(&mut self, path: &Path, value: impl Display) {
        self.invalid(path, value, "there is nothing of this name");
    }

    pub(super) fn range(&mut self, path: &Path, value: i64, (low, high): (i64, i64)) {
        if !(low..=high).contains(&value) {
            self.invalid(path, value, format!("expected a number from {low} to {high}"));
        }
    }

    pub(super) fn not_negative(&mut self, path: &Path, value: i64) {
        if value < 0 {
            self.invalid(path, value, "expected zero or more");
        }
    }

    /// Passes the finding of a name rule on.
    pub(super) fn name(&mut self, path: &Path, value: &str, verdict: Result<(), NameProblem>) {
        if let Err(problem) = verdict {
            self.invalid(path, value, problem.to_string());
        }
    }

    /// Passes the finding of a word rule on.
    pub(super) fn word(&mut self, path: &Path, value: &str, verdict: Result<(), &'static str>) {
        if let Err(why) = verdict {
            self.invalid(path, value, why);
        }
    }
}
