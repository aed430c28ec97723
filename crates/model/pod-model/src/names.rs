//! Rules for names: label keys and values, DNS names, taint effects, ports.
//!
//! Each check says which rule is broken and where, in our own words; the set of names that pass is
//! the one Kubernetes lets pass. A check stops at the first broken rule. Lengths count bytes, which
//! is the same as characters for every name that passes.

use std::fmt;

#[cfg(test)]
mod tests;

/// Longest label value, name part of a label key, and DNS label.
const LABEL_LIMIT: usize = 63;
/// Longest DNS subdomain.
const SUBDOMAIN_LIMIT: usize = 253;

/// A name that breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind} {value:?}: {part}{rule}")]
pub struct NameError {
    /// What the name was to be.
    pub kind: NameKind,
    /// The name as it was given.
    pub value: String,
    /// Which part of it breaks the rule.
    pub part: NamePart,
    /// The rule that it breaks.
    pub rule: NameRule,
}

/// What a name is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameKind {
    /// The key of a label, an annotation, a taint or a resource: `example.com/name`.
    QualifiedName,
    /// The value of a label or taint.
    LabelValue,
    /// A DNS name of one or more parts, in lowercase letters.
    DnsSubdomain,
    /// A DNS name of one part, in lowercase letters.
    DnsLabel,
    /// What a taint does.
    TaintEffect,
    /// A TCP or UDP port.
    Port,
}

/// The part of a name that breaks a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamePart {
    /// All of it.
    Whole,
    /// What stands before the slash.
    Prefix,
    /// What stands behind the slash, or everything if there is none.
    Name,
}

/// A rule for names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameRule {
    /// Something must be there.
    #[error("it must not be empty")]
    Empty,
    /// There is a longest length.
    #[error("it must have at most {limit} characters, not {actual}")]
    TooLong {
        /// The longest length, in bytes.
        limit: usize,
        /// The length found, in bytes.
        actual: usize,
    },
    /// Only some characters may occur.
    #[error("{character:?} is not allowed; allowed are {allowed}")]
    Character {
        /// The first character that may not occur.
        character: char,
        /// What may occur, in words.
        allowed: &'static str,
    },
    /// The first and the last character are more restricted than the others.
    #[error("it must start and end with a letter or digit, and {character:?} is none")]
    Edge {
        /// The character at the start or end.
        character: char,
    },
    /// Between two dots there must be something.
    #[error("two dots must not stand next to each other")]
    EmptyLabel,
    /// Next to a dot there must be a letter or digit.
    #[error("a hyphen must not stand next to a dot")]
    HyphenAtDot,
    /// A label key has at most one slash.
    #[error("at most one '/' may separate prefix and name")]
    Slashes,
    /// A taint effect is one of three words.
    #[error("it must be NoSchedule, PreferNoSchedule or NoExecute")]
    UnknownEffect,
    /// Ports are numbers from 1 to 65535.
    #[error("it must be between 1 and 65535")]
    PortRange,
}

/// What a taint does to pods that do not tolerate it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TaintEffect {
    /// Keeps new pods away.
    NoSchedule,
    /// Keeps new pods away if there is another place.
    PreferNoSchedule,
    /// Keeps new pods away and sends running ones off.
    NoExecute,
}

impl TaintEffect {
    /// Reads an effect; case matters.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        match text {
            "NoSchedule" => Ok(Self::NoSchedule),
            "PreferNoSchedule" => Ok(Self::PreferNoSchedule),
            "NoExecute" => Ok(Self::NoExecute),
            _ => {
                Err(NameKind::TaintEffect.error_of(text, NamePart::Whole, NameRule::UnknownEffect))
            }
        }
    }
}

impl fmt::Display for TaintEffect {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::NoSchedule => "NoSchedule",
            Self::PreferNoSchedule => "PreferNoSchedule",
            Self::NoExecute => "NoExecute",
        })
    }
}

/// A label key: a name of at most 63 characters, and before it, if wanted, a DNS subdomain and `/`.
pub fn check_qualified_name(value: &str) -> Result<(), NameError> {
    let error_of = |part, rule| NameKind::QualifiedName.error_of(value, part, rule);
    let (prefix, name) = match value.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, value),
    };
    if name.contains('/') {
        return Err(error_of(NamePart::Whole, NameRule::Slashes));
    }
    if let Some(prefix) = prefix {
        subdomain_rule(prefix).map_err(|rule| error_of(NamePart::Prefix, rule))?;
    }
    if name.is_empty() {
        return Err(error_of(NamePart::Name, NameRule::Empty));
    }
    label_text_rule(name).map_err(|rule| error_of(NamePart::Name, rule))
}

/// A label value: empty, or at most 63 letters, digits, `-`, `_`, `.`.
pub fn check_label_value(value: &str) -> Result<(), NameError> {
    if value.is_empty() {
        return Ok(());
    }
    label_text_rule(value)
        .map_err(|rule| NameKind::LabelValue.error_of(value, NamePart::Whole, rule))
}

/// A DNS-1123 subdomain: at most 253 lowercase letters, digits, `-` and `.`.
pub fn check_dns_subdomain(value: &str) -> Result<(), NameError> {
    subdomain_rule(value)
        .map_err(|rule| NameKind::DnsSubdomain.error_of(value, NamePart::Whole, rule))
}

/// A DNS-1123 label: at most 63 lowercase letters, digits and `-`.
pub fn check_dns_label(value: &str) -> Result<(), NameError> {
    dns_label_rule(value).map_err(|rule| NameKind::DnsLabel.error_of(value, NamePart::Whole, rule))
}

/// A taint effect, spelled exactly.
pub fn check_taint_effect(value: &str) -> Result<(), NameError> {
    TaintEffect::parse(value).map(|_| ())
}

/// A port number that a program can listen on: 1 to 65535.
pub fn check_port(port: i64) -> Result<(), NameError> {
    if (1..=65535).contains(&port) {
        return Ok(());
    }
    Err(NameKind::Port.error_of(&port.to_string(), NamePart::Whole, NameRule::PortRange))
}

fn length_rule(text: &str, limit: usize) -> Result<(), NameRule> {
    match text.len() {
        0 => Err(NameRule::Empty),
        actual if actual > limit => Err(NameRule::TooLong { limit, actual }),
        _ => Ok(()),
    }
}

fn character_rule(
    text: &str,
    allowed: &'static str,
    fits: impl Fn(char) -> bool,
) -> Result<(), NameRule> {
    match text.chars().find(|character| !fits(*character)) {
        Some(character) => Err(NameRule::Character { character, allowed }),
        None => Ok(()),
    }
}

fn edge_rule(text: &str) -> Result<(), NameRule> {
    let edges = text.chars().next().into_iter().chain(text.chars().next_back());
    match edges.into_iter().find(|character| !character.is_ascii_alphanumeric()) {
        Some(character) => Err(NameRule::Edge { character }),
        None => Ok(()),
    }
}

fn label_text_rule(text: &str) -> Result<(), NameRule> {
    length_rule(text, LABEL_LIMIT)?;
    character_rule(text, "letters, digits, '-', '_' and '.'", |character| {
        character.is_ascii_alphanumeric() || matches!(character, '-' | '_' | '.')
    })?;
    edge_rule(text)
}

fn is_dns_character(character: char) -> bool {
    matches!(character, 'a'..='z' | '0'..='9' | '-')
}

fn dns_label_rule(text: &str) -> Result<(), NameRule> {
    length_rule(text, LABEL_LIMIT)?;
    character_rule(text, "small letters, digits and '-'", is_dns_character)?;
    edge_rule(text)
}

/// Only the whole is limited in length: Kubernetes does not count the parts of a subdomain.
fn subdomain_rule(text: &str) -> Result<(), NameRule> {
    length_rule(text, SUBDOMAIN_LIMIT)?;
    character_rule(text, "small letters, digits, '-' and '.'", |character| {
        is_dns_character(character) || character == '.'
    })?;
    edge_rule(text)?;
    if text.contains("..") {
        return Err(NameRule::EmptyLabel);
    }
    if text.contains("-.") || text.contains(".-") {
        return Err(NameRule::HyphenAtDot);
    }
    Ok(())
}

impl NameKind {
    fn error_of(self, value: &str, part: NamePart, rule: NameRule) -> NameError {
        NameError { kind: self, value: value.to_owned(), part, rule }
    }
}

impl fmt::Display for NameKind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::QualifiedName => "qualified name",
            Self::LabelValue => "label value",
            Self::DnsSubdomain => "DNS subdomain",
            Self::DnsLabel => "DNS label",
            Self::TaintEffect => "taint effect",
            Self::Port => "port",
        })
    }
}

impl fmt::Display for NamePart {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Whole => "",
            Self::Prefix => "in the prefix before '/', ",
            Self::Name => "in the name part, ",
        })
    }
}
