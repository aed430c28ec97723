//! The types of value a flag can have, and the columns of a flag's row in the table.
//!
//! Declarations only: parsing is in `value`, the rows are in `table`.

use super::settings::FlagSettings;
use std::collections::BTreeMap;

use pod_model::GoDuration;

/// How the text of a flag is parsed, and how repeated uses combine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlagKind {
    Bool,
    Int32,
    Int64,
    /// Go's `int`: 64 bits, with another name in the help.
    Int,
    /// A number with a fraction.
    Float,
    Duration,
    Text,
    /// Comma-separated strings with CSV quoting; the first use replaces the default, further ones
    /// append.
    TextList,
    /// `key=value,key=value`; more uses add keys.
    Pairs,
    /// One `key=value` per use: commas belong to the value.
    OnePair,
    /// `signal<value,signal<value`; more uses add keys.
    ThresholdPairs,
    /// `key=value,key`: a key without a value is allowed.
    LabelPairs,
    /// `Gate=true,Gate=false`; more uses add keys.
    Switches,
    /// `name:value,name:value`; a name may come more than once.
    Headers,
    /// An IP address; the empty text changes nothing.
    Address,
    /// `key=value:Effect,…`; the last use wins.
    Taints,
    /// `0:memory=1Gi,hugepages-2Mi=2Mi;1:…`; more uses append.
    MemoryReservations,
    Quantity,
    /// A log level: digits only.
    Level,
    /// `pattern=N,…`; more uses append.
    ModuleLevels,
    /// Nothing, `true`, `false`, `raw`, or the version to report.
    Version,
}

impl FlagKind {
    /// The name of this kind in Go's flag library.
    pub fn type_name(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::Int32 => "int32",
            Self::Int64 => "int64",
            Self::Int => "int",
            Self::Float => "float",
            Self::Duration => "duration",
            Self::Text => "string",
            Self::TextList => "stringSlice",
            Self::Pairs | Self::OnePair | Self::ThresholdPairs | Self::LabelPairs => {
                "mapStringString"
            }
            Self::Switches => "mapStringBool",
            Self::Headers => "colonSeparatedMultimapStringString",
            Self::Address => "ip",
            Self::Taints => "[]v1.Taint",
            Self::MemoryReservations => "reserved-memory",
            Self::Quantity => "quantity",
            Self::Level => "Level",
            Self::ModuleLevels => "pattern=N,...",
            Self::Version => "version",
        }
    }

    /// The placeholder after the flag's name in the help.
    pub fn placeholder(self) -> &'static str {
        match self {
            Self::Bool => "",
            Self::Int32 | Self::Int64 | Self::Int | Self::Float => "NUMBER",
            Self::Duration => "DURATION",
            Self::Text => "TEXT",
            Self::TextList => "WORD,...",
            Self::Pairs => "KEY=VALUE,...",
            Self::OnePair => "KEY=VALUE",
            Self::ThresholdPairs => "SIGNAL<VALUE,...",
            Self::LabelPairs => "KEY=VALUE,...",
            Self::Switches => "NAME=true|false,...",
            Self::Headers => "NAME:VALUE,...",
            Self::Address => "ADDRESS",
            Self::Taints => "KEY=VALUE:EFFECT,...",
            Self::MemoryReservations => "NODE:TYPE=SIZE,...",
            Self::Quantity => "SIZE",
            Self::Level => "LEVEL",
            Self::ModuleLevels => "PATTERN=LEVEL,...",
            Self::Version => "[=true|raw|vX.Y.Z]",
        }
    }

    /// The value of the bare flag; other kinds take the next argument.
    pub fn bare_value(self) -> Option<&'static str> {
        matches!(self, Self::Bool | Self::Version).then_some("true")
    }
}

/// Whether and why a flag is deprecated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deprecation {
    NotDeprecated,
    /// The same thing is a field of the configuration file.
    MovedToFile,
    /// A library's flag that the kubelet never meant to expose.
    FromLibrary,
    /// Collection of dead containers follows the eviction settings now.
    MovedToEviction,
    /// Removed without replacement.
    Removed,
}

impl Deprecation {
    /// The text after "has been deprecated, " when the flag is used.
    pub fn advice(self) -> Option<&'static str> {
        match self {
            Self::NotDeprecated => None,
            Self::MovedToFile => {
                Some("set the field of the same meaning in the file given with --config instead.")
            }
            Self::FromLibrary => {
                Some("it came from a statistics library by accident, and a later release drops it.")
            }
            Self::MovedToEviction => {
                Some("use --eviction-hard or --eviction-soft; a later release drops it.")
            }
            Self::Removed => Some("a later release drops it, and nothing takes its place."),
        }
    }
}

/// A field of the flag-only settings, with the kind that fits it.
#[derive(Clone, Copy)]
pub enum NodeField {
    Bool(fn(&mut FlagSettings) -> &mut bool),
    Int32(fn(&mut FlagSettings) -> &mut i32),
    Int(fn(&mut FlagSettings) -> &mut i64),
    Duration(fn(&mut FlagSettings) -> &mut GoDuration),
    Text(fn(&mut FlagSettings) -> &mut String),
    Labels(fn(&mut FlagSettings) -> &mut BTreeMap<String, String>),
}

/// What a flag sets.
#[derive(Clone, Copy)]
pub enum FlagTarget {
    /// A field of `KubeletConfiguration`, by its path.
    Config(&'static str, FlagKind),
    Node(NodeField),
    Help,
    Version,
}

/// One row of the table.
#[derive(Clone, Copy)]
pub struct FlagSpec {
    pub name: &'static str,
    pub shorthand: Option<char>,
    pub target: FlagTarget,
    pub deprecation: Deprecation,
    /// As Go's flag library prints it.
    pub default: &'static str,
    pub help: &'static str,
}

impl FlagSpec {
    pub fn kind(&self) -> FlagKind {
        match self.target {
            FlagTarget::Config(_, kind) => kind,
            FlagTarget::Node(NodeField::Bool(_)) | FlagTarget::Help => FlagKind::Bool,
            FlagTarget::Node(NodeField::Int32(_)) => FlagKind::Int32,
            FlagTarget::Node(NodeField::Int(_)) => FlagKind::Int,
            FlagTarget::Node(NodeField::Duration(_)) => FlagKind::Duration,
            FlagTarget::Node(NodeField::Text(_)) => FlagKind::Text,
            FlagTarget::Node(NodeField::Labels(_)) => FlagKind::LabelPairs,
            FlagTarget::Version => FlagKind::Version,
        }
    }

    /// The path in `KubeletConfiguration`; empty for a flag that sets something else.
    pub fn path(&self) -> &'static str {
        match self.target {
            FlagTarget::Config(path, _) => path,
            _ => "",
        }
    }
}
