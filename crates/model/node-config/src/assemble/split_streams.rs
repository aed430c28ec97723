//! An oddity of Kubernetes: parsing its flags a second time, over the file, it resets `splitStream`
//! of both log formats, and so never validates the file's value. A file that sets it without the
//! gate is therefore accepted there, without effect; so it is here, with a warning. With the gate
//! on, the field has its normal effect here.
//! upstream: component-base/logs/api/v1/options.go

use crate::diagnostic::{Diagnostic, Origin};
use crate::document::{Node, Value};
use crate::feature_gates::{FeatureGates, Gate};

pub(super) fn forget_without_gate(
    tree: &mut Node,
    gates: &FeatureGates,
    diagnostics: &mut Vec<Diagnostic>,
) {
    if gates.enabled(Gate::LoggingAlphaOptions) {
        return;
    }
    for format in ["text", "json"] {
        let path = format!("logging.options.{format}.splitStream");
        let Some(explicit) = child(tree, &["logging", "options", format, "splitStream"]) else {
            continue;
        };
        if explicit.value != Value::Bool(true) {
            continue;
        }
        let message = "has no effect without the feature gate LoggingAlphaOptions";
        diagnostics.push(
            Diagnostic::warning(path, message).with_value("true").at(explicit.origin.clone()),
        );
        *explicit = Node { value: Value::Bool(false), origin: Origin::Default };
    }
}

fn child<'tree>(tree: &'tree mut Node, names: &[&str]) -> Option<&'tree mut Node> {
    names.iter().try_fold(tree, |node, name| match &mut node.value {
        Value::Map(entries) => entries.get_mut(*name),
        _ => None,
    })
}
