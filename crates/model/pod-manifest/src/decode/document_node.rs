//! The adapter from a document tree to the decoding traits of the pod model.
//!
//! The rule it keeps: a path is only formatted when there is a finding.

use std::cell::RefCell;

use document::diagnostic::Diagnostic;
use document::{Node, Number, Value, child_path, item_path};
use pod_model::pod::codec::{DecodeNode, NodeShape};

use super::Strictness;

/// Findings, collected while a tree is read.
pub(super) struct DiagnosticSink {
    strictness: Strictness,
    diagnostics: RefCell<Vec<Diagnostic>>,
}

impl DiagnosticSink {
    pub(super) fn new(strictness: Strictness) -> Self {
        Self { strictness, diagnostics: RefCell::default() }
    }

    pub(super) fn into_diagnostics(self) -> Vec<Diagnostic> {
        self.diagnostics.into_inner()
    }

    fn add_diagnostic(&self, diagnostic: Diagnostic) {
        self.diagnostics.borrow_mut().push(diagnostic);
    }
}

/// The path from the root to a node.
enum PathStep<'way> {
    Root(&'way str),
    Key(&'way PathStep<'way>, &'way str),
    Item(&'way PathStep<'way>, usize),
}

impl PathStep<'_> {
    fn path(&self) -> String {
        match self {
            Self::Root(base) => (*base).to_owned(),
            Self::Key(parent, key) => child_path(&parent.path(), key),
            Self::Item(parent, index) => item_path(&parent.path(), *index),
        }
    }
}

/// A node of a document, and how it was reached.
pub(super) struct DocumentNode<'way> {
    node: &'way Node,
    step: PathStep<'way>,
    sink: &'way DiagnosticSink,
}

impl<'way> DocumentNode<'way> {
    pub(super) fn root(node: &'way Node, base: &'way str, sink: &'way DiagnosticSink) -> Self {
        Self { node, step: PathStep::Root(base), sink }
    }

    fn finding(&self, diagnostic: Diagnostic) {
        let shown = diagnostic.with_value(self.node.shown());
        self.sink.add_diagnostic(shown.at(self.node.origin.clone()));
    }
}

impl DecodeNode for DocumentNode<'_> {
    fn shape(&self) -> NodeShape<'_> {
        match &self.node.value {
            Value::Null => NodeShape::Null,
            Value::Bool(value) => NodeShape::Bool(*value),
            Value::Number(Number::Integer(whole)) => NodeShape::Whole(*whole),
            Value::Number(Number::Float(number)) => NodeShape::Fraction(*number),
            Value::String(text) => NodeShape::Text(text),
            Value::List(_) => NodeShape::List,
            Value::Map(_) => NodeShape::Object,
        }
    }

    fn each_item(&self, visit: &mut dyn FnMut(&dyn DecodeNode)) {
        let Value::List(items) = &self.node.value else { return };
        for (index, node) in items.iter().enumerate() {
            let step = PathStep::Item(&self.step, index);
            visit(&DocumentNode { node, step, sink: self.sink });
        }
    }

    fn each_entry(&self, visit: &mut dyn FnMut(&str, &dyn DecodeNode)) {
        let Value::Map(entries) = &self.node.value else { return };
        for (key, node) in entries {
            let step = PathStep::Key(&self.step, key);
            visit(key, &DocumentNode { node, step, sink: self.sink });
        }
    }

    fn refuse(&self, expected: &str) {
        let message = format!("expected {expected}, found {}", self.node.kind_name());
        self.finding(Diagnostic::error(self.step.path(), message));
    }

    fn unknown(&self, known: &[&str]) {
        let PathStep::Key(_, name) = &self.step else { return };
        let near = known.iter().find(|each| each.eq_ignore_ascii_case(name));
        let hint = near.map(|each| format!("; did you mean {each}?")).unwrap_or_default();
        let path = self.step.path();
        self.finding(match self.sink.strictness {
            Strictness::Lenient => {
                Diagnostic::warning(path, format!("unknown field, ignored{hint}"))
            }
            Strictness::Strict => Diagnostic::error(path, format!("unknown field{hint}")),
        });
    }
}
