//! The kubelet's command line: every flag of v1.36, parsed as the reference does.
//!
//! The rule it keeps: `parse` is a function from arguments to values that never fails as a whole;
//! errors come back as findings, all of them. It opens no file and knows nothing of precedence: the
//! flags' configuration fields come back as edits, to be applied over the files.
//!
//! upstream: cmd/kubelet/app/options, component-base/{cli/flag,logs,version/verflag}, spf13/pflag

use std::fmt;

use serde_json::Value;

use crate::diagnostic::{Diagnostic, MASK, masked_text, shown_value};

mod go_syntax;
pub mod grammar;
mod kind;
mod reader;
mod settings;
mod table;
#[cfg(test)]
mod tests;
mod usage;
mod value;

pub use go_syntax::parse_bool;
pub use kind::{Deprecation, FlagKind, FlagSpec, FlagTarget, NodeField};
pub use settings::{CadvisorSettings, FlagSettings, MaskedText};
pub use usage::{paragraph, usage};
pub use value::{FlagValue, add_value};

/// The release of Kubernetes whose command line this is.
pub const KUBERNETES_VERSION: &str = "v1.36.3";

/// A parsed command line.
///
/// Errors among the problems come before `help`, and `help` before `version`: a kubelet that is run
/// with a wrong flag and `--help` reports the wrong flag.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct KubeletCommandLine {
    /// Settings that are not part of `KubeletConfiguration`.
    pub node: FlagSettings,
    /// Fields to set over the configuration files, one edit per flag, in the order of first use.
    pub edits: Vec<ConfigEdit>,
    pub diagnostics: Vec<Diagnostic>,
    pub help: bool,
    pub version: Option<VersionRequest>,
    /// Every accepted use of a flag, in order.
    pub given: Vec<GivenFlag>,
}

impl KubeletCommandLine {
    /// Whether there is an error, so that nothing else in here is valid.
    pub fn has_errors(&self) -> bool {
        self.diagnostics.iter().any(Diagnostic::is_error)
    }
}

/// The configuration field that one flag, with all its uses, sets.
#[derive(Clone, PartialEq)]
pub struct ConfigEdit {
    pub flag: &'static str,
    /// The path in `KubeletConfiguration` v1beta1, such as `authentication.anonymous.enabled`.
    pub path: &'static str,
    /// The value in the JSON form of that field.
    pub value: Value,
    pub combine: Combine,
}

/// How an edit combines with the file's value of the same field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Combine {
    /// The flag's value replaces the file's, maps and lists included.
    Replace,
    /// Keys of the flag override, other keys of the file stay (feature gates).
    AddKeys,
    /// The flag's entries are appended to the file's (log levels by module).
    Append,
}

/// What `--version` asks to print.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VersionRequest {
    /// The one line that scripts read.
    Plain,
    /// Everything known about the build.
    Raw,
}

/// One use of a flag.
#[derive(Clone, PartialEq, Eq)]
pub struct GivenFlag {
    pub flag: &'static str,
    /// The text as given: not for logs, see [`GivenFlag::shown`].
    pub value: String,
}

impl GivenFlag {
    /// The text without secrets, on one line.
    pub fn shown(&self) -> String {
        if self.flag == "storage-driver-password" {
            return MASK.to_owned();
        }
        let path = table::find(self.flag).map_or("", FlagSpec::path);
        shown_value(path, &self.value)
    }
}

impl fmt::Debug for GivenFlag {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "--{}={:?}", self.flag, self.shown())
    }
}

impl fmt::Debug for ConfigEdit {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} = ", self.path)?;
        match &self.value {
            Value::String(text) => write!(out, "{:?}", masked_text(self.path, text))?,
            other => out.write_str(&masked_text(self.path, &other.to_string()))?,
        }
        write!(out, " (--{}, {:?})", self.flag, self.combine)
    }
}

/// Parses a command line, without the program's own name in front.
pub fn parse(args: &[String]) -> KubeletCommandLine {
    reader::read(args)
}

/// Every flag there is, in the order of names.
pub fn all() -> Vec<&'static FlagSpec> {
    let mut flags: Vec<_> = table::all().collect();
    flags.sort_unstable_by_key(|flag| flag.name);
    flags
}

/// The flag that sets this path of `KubeletConfiguration`, if there is one.
pub fn alias_of(path: &str) -> Option<&'static str> {
    table::all().find(|flag| !path.is_empty() && flag.path() == path).map(|flag| flag.name)
}
