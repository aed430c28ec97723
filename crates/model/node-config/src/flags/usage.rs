//! The text of `--help`: every flag, its value, its effect, its default.
//!
//! The rule it keeps: lines fit the width that the caller passes. It does not query the terminal.

use super::kind::{Deprecation, FlagKind, FlagSpec};

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
        "The node agent: it runs the pods that the API server assigns to this machine, and those \
         in files beside it, through a container runtime; it keeps them healthy and reports how \
         they are.",
        0,
        width,
    );
    text.push_str("\nUsage:\n  kubelet [flags]\n\nExamples:\n");
    text.push_str("  kubelet --config /var/lib/kubelet/config.yaml\n");
    text.push_str(
        "  kubelet --config config.yaml --kubeconfig kubelet.conf --hostname-override node-1\n",
    );
    text.push_str("\nFlags:\n");
    for flag in super::all() {
        one_flag(&mut text, flag, width);
    }
    text
}

fn one_flag(text: &mut String, flag: &FlagSpec, width: usize) {
    match flag.shorthand {
        Some(letter) => text.push_str(&format!("  -{letter}, --{}", flag.name)),
        None => text.push_str(&format!("      --{}", flag.name)),
    }
    let kind = flag.kind();
    if kind != FlagKind::Version && !kind.placeholder().is_empty() {
        text.push(' ');
    }
    text.push_str(kind.placeholder());
    text.push('\n');
    let mut explanation = flag.help.to_owned();
    if !matches!(flag.default, "" | "false" | "[]") {
        explanation.push_str(&format!(" (default {})", flag.default));
    }
    match flag.deprecation {
        Deprecation::NotDeprecated => {}
        Deprecation::MovedToFile => {
            explanation.push_str(&format!(" (DEPRECATED: in the file it is {})", flag.path()));
        }
        Deprecation::FromLibrary | Deprecation::MovedToEviction | Deprecation::Removed => {
            explanation.push_str(" (DEPRECATED)");
        }
    }
    paragraph(text, &explanation, INDENT, width);
}

/// Wraps words to lines of at most `width`, unless one word alone is longer.
pub fn paragraph(text: &mut String, words: &str, indent: usize, width: usize) {
    let mut column = 0;
    for word in words.split(' ').filter(|word| !word.is_empty()) {
        let length = word.chars().count();
        if column > 0 && column + 1 + length > width {
            text.push('\n');
            column = 0;
        }
        if column == 0 {
            text.push_str(&" ".repeat(indent));
            column = indent;
        } else {
            text.push(' ');
            column += 1;
        }
        text.push_str(word);
        column += length;
    }
    text.push('\n');
}
