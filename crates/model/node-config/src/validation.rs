//! Every rule that makes a configuration invalid, or worth a warning, checked on the configuration
//! alone.
//!
//! The rule it keeps: all rules run, whatever the others found, so that one start shows every
//! error; and what the reference kubelet v1.36 rejects on Linux, at validation or later while it
//! starts, is rejected here. A rule that depends on a locked gate is left out. What depends on the
//! machine (CPUs, NUMA nodes, cgroup version, files) is not checked here.
//!
//! upstream: pkg/kubelet/apis/config/validation, cmd/kubelet/app/server.go, pkg/kubelet/kubelet.go

use std::fmt;
use std::ops::RangeInclusive;

use crate::diagnostic::Diagnostic;
use crate::feature_gates::{FeatureGates, Gate};
use crate::flags::{self, FlagSettings};
use crate::kubelet_configuration::KubeletConfiguration;

mod allocatable;
mod eviction;
mod images;
mod logging;
mod managers;
mod memory;
mod node;
mod numbers;
mod server;
mod shutdown;
#[cfg(test)]
mod tests;
mod text_forms;
pub(crate) mod url;

/// The input of the rules: the settled configuration, the flags that are not part of it, the gates.
#[derive(Clone, Copy)]
pub(crate) struct ValidationInput<'a> {
    pub(crate) settings: &'a KubeletConfiguration,
    pub(crate) flags: &'a FlagSettings,
    pub(crate) gates: &'a FeatureGates,
}

impl ValidationInput<'_> {
    fn gate(&self, gate: Gate) -> bool {
        self.gates.enabled(gate)
    }
}

/// Collects the findings of the rules, in order.
#[derive(Default)]
pub(crate) struct ValidationFindings {
    diagnostics: Vec<Diagnostic>,
}

impl ValidationFindings {
    /// Adds an error about a field's value; `expected` names what would be valid.
    pub(crate) fn refuse(
        &mut self,
        field: impl Into<String>,
        value: impl fmt::Display,
        expected: impl Into<String>,
    ) {
        let field = field.into();
        let message = with_flag(&field, expected.into());
        self.diagnostics.push(Diagnostic::error(field, message).with_value(value));
    }

    /// Adds a warning: the value is valid, but may not have the effect that its author expects.
    pub(crate) fn warn(
        &mut self,
        field: impl Into<String>,
        value: impl fmt::Display,
        note: impl Into<String>,
    ) {
        let field = field.into();
        let message = with_flag(&field, note.into());
        self.diagnostics.push(Diagnostic::warning(field, message).with_value(value));
    }

    /// Rejects a number outside the range.
    pub(crate) fn within<N>(&mut self, field: &str, value: N, range: RangeInclusive<N>)
    where
        N: PartialOrd + fmt::Display,
    {
        let (least, most) = range.into_inner();
        if value < least || value > most {
            self.refuse(field, value, format!("must be between {least} and {most}"));
        }
    }

    /// Rejects a number below `least`.
    pub(crate) fn at_least<N>(&mut self, field: &str, value: N, least: N)
    where
        N: PartialOrd + fmt::Display + Copy,
    {
        if value < least {
            self.refuse(field, value, format!("must be {least} or more"));
        }
    }

    /// Rejects a value that is not one of those known.
    pub(crate) fn one_of(&mut self, field: &str, value: &str, known: &[&str]) {
        if !known.contains(&value) {
            self.refuse(field, value, format!("must be one of {}", quoted_list(known)));
        }
    }
}

/// The rules of one area.
type RuleGroup = fn(&ValidationInput<'_>, &mut ValidationFindings);

const RULE_GROUPS: &[RuleGroup] = &[
    numbers::check,
    images::check,
    shutdown::check,
    allocatable::check,
    managers::check,
    memory::check,
    eviction::check,
    server::check,
    logging::check,
    node::check,
];

/// Everything that is wrong with a settled configuration, errors and warnings together.
pub fn validate(
    settings: &KubeletConfiguration,
    flags: &FlagSettings,
    gates: &FeatureGates,
) -> Vec<Diagnostic> {
    let input = ValidationInput { settings, flags, gates };
    let mut findings = ValidationFindings::default();
    for check in RULE_GROUPS {
        check(&input, &mut findings);
    }
    findings.diagnostics
}

/// `"a", "b" or "c"`.
pub(crate) fn quoted_list(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("{word:?}")).collect();
    match quoted.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
        None => String::new(),
    }
}

/// A field's message, with the flag that sets the same field.
fn with_flag(field: &str, message: String) -> String {
    let top = field.split('[').next().unwrap_or(field);
    match flags::alias_of(top) {
        Some(flag) => format!("{message} (flag --{flag})"),
        None => message,
    }
}
