//! Findings about a configuration: what is wrong, and where.
//!
//! The rule it keeps: a finding is one line that names the position, the field, the value and what
//! was expected, and it never shows a secret. Callers decide what a finding leads to.

use std::fmt;
use std::sync::Arc;

mod secrets;
#[cfg(test)]
mod tests;

pub use secrets::{MASK, is_secret, masked_text, may_be_secret, without_credentials};

/// How many characters of a value a message shows.
const MAX_SHOWN_VALUE: usize = 80;

/// Whether a finding stops the configuration from being used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    Error,
    Warning,
}

/// Where a value came from. Lines and columns count from 1; 0 means "not known".
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Origin {
    /// A default, or (for a finding) no position at all.
    #[default]
    Default,
    /// The file of `--config`.
    File { path: Arc<str>, line: u32, column: u32 },
    /// A file from `--config-dir`.
    DropIn { path: Arc<str>, line: u32, column: u32 },
    /// The command line; the name is without the leading dashes.
    Flag { name: Arc<str> },
}

impl Origin {
    pub fn flag(name: &str) -> Self {
        Self::Flag { name: Arc::from(name) }
    }

    pub fn is_default(&self) -> bool {
        matches!(self, Self::Default)
    }

    /// The same file at another position. A default or a flag has none.
    #[must_use]
    pub fn at(&self, line: u32, column: u32) -> Self {
        match self {
            Self::File { path, .. } => Self::File { path: path.clone(), line, column },
            Self::DropIn { path, .. } => Self::DropIn { path: path.clone(), line, column },
            other => other.clone(),
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => out.write_str("default"),
            Self::File { path, line, .. } | Self::DropIn { path, line, .. } => {
                out.write_str(path)?;
                if *line > 0 { write!(out, ":{line}") } else { Ok(()) }
            }
            Self::Flag { name } => write!(out, "--{name}"),
        }
    }
}

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Diagnostic {
    pub severity: Severity,
    pub origin: Origin,
    /// `authentication.webhook.cacheTTL`, `registerWithTaints[0].effect`; empty for a whole file.
    pub field: String,
    /// The value as shown: truncated, on one line, secrets masked.
    pub value: Option<String>,
    /// The error, and what was expected.
    pub message: String,
}

impl Diagnostic {
    pub fn error(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(Severity::Error, field.into(), message.into())
    }

    pub fn warning(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(Severity::Warning, field.into(), message.into())
    }

    fn new(severity: Severity, field: String, message: String) -> Self {
        Self { severity, origin: Origin::Default, field, value: None, message }
    }

    /// Adds the value that was found. The field decides whether it may be shown.
    #[must_use]
    pub fn with_value(mut self, value: impl fmt::Display) -> Self {
        self.value = Some(shown_value(&self.field, &value.to_string()));
        self
    }

    #[must_use]
    pub fn at(mut self, origin: Origin) -> Self {
        self.origin = origin;
        self
    }

    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.origin.is_default() {
            write!(out, "{}: ", self.origin)?;
        }
        if !self.field.is_empty() {
            write!(out, "{}: ", one_line(&without_credentials(&self.field)))?;
        }
        if let Some(value) = &self.value {
            let shown = if value.is_empty() { "\"\"" } else { value };
            write!(out, "{shown}: ")?;
        }
        // Messages quote values, which may be URLs with credentials.
        out.write_str(&one_line(&without_credentials(&self.message)))
    }
}

/// A value as it may be printed beside its field path: masked, truncated, on one line.
pub fn shown_value(field: &str, value: &str) -> String {
    let line = one_line(&masked_text(field, value));
    match line.char_indices().nth(MAX_SHOWN_VALUE) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line,
    }
}

fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() {
            line.extend(character.escape_default());
        } else {
            line.push(character);
        }
    }
    line
}
