//! The text of `--help`: every flag that has an effect here, its value, its default.
//!
//! The rule it keeps: lines fit the width that the caller passes; flags without effect are counted,
//! not listed. It does not query the terminal.

use node_config::flags::{FlagKind, paragraph};

use crate::table::{self, ControllerFlag};

/// The column at which the explanation of a flag begins.
const INDENT: usize = 10;
/// The minimum width.
const NARROWEST: usize = 40;

/// The help text, wrapped to `width` columns; 0 means no wrapping.
pub fn usage(width: usize) -> String {
    let width = if width == 0 { usize::MAX } else { width.max(NARROWEST) };
    let mut text = String::new();
    paragraph(
        &mut text,
        "The node controller: watches over the nodes of a cluster. It says which nodes are silent, \
         taints them, sends pods away, clears pods that nobody else will, and gives nodes their pod \
         ranges, in the place of kube-controller-manager's controllers of the same names (there: \
         --controllers=*,-node-lifecycle-controller,-taint-eviction-controller,\
         -node-ipam-controller,-pod-garbage-collector-controller).",
        0,
        width,
    );
    text.push_str("\nUsage:\n  keelson node-controller [flags]\n");
    text.push_str("  keelson node-controller explain NODE [--explain-socket PATH]\n\nExamples:\n");
    text.push_str("  keelson node-controller --kubeconfig controller-manager.conf\n");
    text.push_str("  keelson node-controller explain worker-1\n\nFlags:\n");
    for row in table::own() {
        one_flag(&mut text, row, width);
    }
    let others = table::all().count() - table::own().len();
    text.push('\n');
    paragraph(
        &mut text,
        &format!(
            "{others} more flags of kube-controller-manager {} are taken without effect, each with \
             a warning.",
            crate::KUBERNETES_VERSION
        ),
        0,
        width,
    );
    text
}

fn one_flag(text: &mut String, row: &ControllerFlag, width: usize) {
    match row.letter() {
        Some(letter) => text.push_str(&format!("  -{letter}, --{}", row.name)),
        None => text.push_str(&format!("      --{}", row.name)),
    }
    let kind = row.kind();
    if kind != FlagKind::Version && !kind.placeholder().is_empty() {
        text.push(' ');
    }
    text.push_str(kind.placeholder());
    text.push('\n');
    let mut explanation = row.help.to_owned();
    if !matches!(row.default, "" | "false" | "[]") {
        explanation.push_str(&format!(" (default {})", row.default));
    }
    paragraph(text, &explanation, INDENT, width);
}
