//! The findings of all stages as one list for display: without duplicates, in the order of the
//! files, and limited in number.
//!
//! The rule it keeps: whether there is an error never changes, and what is left out is counted. It
//! costs no more than sorting, however many findings there are.

use std::collections::BTreeSet;

use crate::diagnostic::{Diagnostic, Origin, Severity};

#[cfg(test)]
mod tests;

/// How many errors, and how many warnings, are listed.
pub const LISTED: usize = 100;

/// The list: the command line first, then findings without a position, then files by name, line and
/// field.
pub(crate) fn listed(mut diagnostics: Vec<Diagnostic>) -> Vec<Diagnostic> {
    drop_repeats(&mut diagnostics);
    diagnostics.sort_by(|left, right| place(left).cmp(&place(right)));
    let mut left_out = Vec::new();
    for severity in [Severity::Error, Severity::Warning] {
        let mut seen = 0;
        diagnostics.retain(|diagnostic| {
            seen += usize::from(diagnostic.severity == severity);
            diagnostic.severity != severity || seen <= LISTED
        });
        left_out.extend(rest(severity, seen.saturating_sub(LISTED)));
    }
    diagnostics.extend(left_out);
    diagnostics
}

/// One line for all that is not listed.
fn rest(severity: Severity, count: usize) -> Option<Diagnostic> {
    match severity {
        _ if count == 0 => None,
        Severity::Error => Some(Diagnostic::error("", format!("and {count} more errors"))),
        Severity::Warning => Some(Diagnostic::warning("", format!("and {count} more warnings"))),
    }
}

/// The same finding from two stages is one finding.
pub(crate) fn drop_repeats(diagnostics: &mut Vec<Diagnostic>) {
    let mut seen = BTreeSet::new();
    let is_new: Vec<bool> = diagnostics.iter().map(|diagnostic| seen.insert(diagnostic)).collect();
    let mut is_new = is_new.into_iter();
    diagnostics.retain(|_| is_new.next().unwrap_or(true));
}

/// The sort key; findings with the same position stay in the order of the stages.
fn place(diagnostic: &Diagnostic) -> (u8, &str, u32, &str) {
    let (rank, file, line) = match &diagnostic.origin {
        Origin::Flag { name } => (0, &**name, 0),
        Origin::Default => (1, "", 0),
        Origin::File { path, line, .. } | Origin::DropIn { path, line, .. } => (2, &**path, *line),
    };
    (rank, file, line, &diagnostic.field)
}
