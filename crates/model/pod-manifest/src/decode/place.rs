//! The adapter from a document tree to the decoding traits of the pod model.
//!
//! The rule it keeps: a path is only formatted when there is a finding.

use std::cell::RefCell;

use document::problem::Problem;
use document::{Node, Number, Value, child_path, item_path};
use pod_model::pod::form::{Place, Shape};

use super::Strictness;

/// Findings, collected while a tree is read.
pub(super) struct Report {
    strictness: Strictness,
    problems: RefCell<Vec<Problem>>,
}

impl Report {
    pub(super) fn new(strictness: Strictness) -> Self {
        Self { strictness, problems: RefCell::default() }
    }

    pub(super) fn into_problems(self) -> Vec<Problem> {
        self.problems.into_inner()
    }

    fn tell(&self, problem: Problem) {
        self.problems.borrow_mut().push(problem);
    }
}

/// The path from the root to a node.
enum Step<'way> {
    Root(&'way str),
    Key(&'way Step<'way>, &'way str),
    Item(&'way Step<'way>, usize),
}

impl Step<'_> {
    fn path(&self) -> String {
        match self {
            Self::Root(base) => (*base).to_owned(),
            Self::Key(parent, key) => child_path(&parent.path(), key),
            Self::Item(parent, index) => item_path(&parent.path(), *index),
        }
    }
}

/// A node of a document, and how it was reached.
pub(super) struct NodePlace<'way> {
    node: &'way Node,
    step: Step<'way>,
    report: &'way Report,
}

impl<'way> NodePlace<'way> {
    pub(super) fn root(node: &'way Node, base: &'way str, report: &'way Report) -> Self {
        Self { node, step: Step::Root(base), report }
    }

    fn finding(&self, problem: Problem) {
        let shown = problem.with_value(self.node.shown());
        self.report.tell(shown.at(self.node.origin.clone()));
    }
}

impl Place for NodePlace<'_> {
    fn shape(&self) -> Shape<'_> {
        match &self.node.value {
            Value::Null => Shape::Null,
            Value::Bool(value) => Shape::Bool(*value),
            Value::Number(Number::Integer(whole)) => Shape::Whole(*whole),
            Value::Number(Number::Float(number)) => Shape::Fraction(*number),
            Value::String(text) => Shape::Text(text),
            Value::List(_) => Shape::List,
            Value::Map(_) => Shape::Object,
        }
    }

    fn each_item(&self, visit: &mut dyn FnMut(&dyn Place)) {
        let Value::List(items) = &self.node.value else { return };
        for (index, node) in items.iter().enumerate() {
            let step = Step::Item(&self.step, index);
            visit(&NodePlace { node, step, report: self.report });
        }
    }

    fn each_entry(&self, visit: &mut dyn FnMut(&str, &dyn Place)) {
        let Value::Map(entries) = &self.node.value else { return };
        for (key, node) in entries {
            let step = Step::Key(&self.step, key);
            visit(key, &NodePlace { node, step, report: self.report });
        }
    }

    fn refuse(&self, expected: &str) {
        let message = format!("expected {expected}, found {}", self.node.kind_name());
        self.finding(Problem::error(self.step.path(), message));
    }

    fn unknown(&self, known: &[&str]) {
        let Step::Key(_, name) = &self.step else { return };
        let near = known.iter().find(|each| each.eq_ignore_ascii_case(name));
        let hint = near.map(|each| format!("; did you mean {each}?")).unwrap_or_default();
        let path = self.step.path();
        self.finding(match self.report.strictness {
            Strictness::Lenient => Problem::warning(path, format!("unknown field, ignored{hint}")),
            Strictness::Strict => Problem::error(path, format!("unknown field{hint}")),
        });
    }
}
