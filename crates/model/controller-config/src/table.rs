//! Every flag: name, kind, default, its field in the file, and its effect.
//!
//! The rule it keeps: name, kind and default equal those of the pinned kube-controller-manager (a
//! test compares them with a golden file generated from it), except for flags of our own; the help
//! is ours. Rows only: `command_line` and `file` read them.

use node_config::flags::Kind;
use pod_model::GoDuration;

use crate::settings::Settings;

mod elsewhere;
mod own;

pub(crate) use elsewhere::{FOREIGN_SECTIONS, UNUSED_FIELDS};

/// A field of the settings, with the kind that fits it.
#[derive(Clone, Copy)]
pub(crate) enum Field {
    Bool(fn(&mut Settings) -> &mut bool),
    Int32(fn(&mut Settings) -> &mut i32),
    Int(fn(&mut Settings) -> &mut i64),
    Float(fn(&mut Settings) -> &mut f32),
    Duration(fn(&mut Settings) -> &mut GoDuration),
    Text(fn(&mut Settings) -> &mut String),
    Address(fn(&mut Settings) -> &mut String),
    Words(fn(&mut Settings) -> &mut Vec<String>),
    Level(fn(&mut Settings) -> &mut i64),
    Gates,
    Modules,
    Help,
    Version,
    /// Checked for its form and otherwise ignored.
    Unused(Kind, Why),
}

/// Why a flag of upstream has no effect here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// It belongs to a controller that runs in kube-controller-manager only.
    Controller(&'static str),
    /// For this reason.
    Because(&'static str),
}

/// One flag.
#[derive(Clone, Copy)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) field: Field,
    /// The path in `KubeControllerManagerConfiguration`; empty if it is not there.
    pub(crate) path: &'static str,
    /// As Go's flag library prints it.
    pub(crate) default: &'static str,
    pub(crate) help: &'static str,
}

impl Row {
    pub(crate) fn kind(&self) -> Kind {
        match self.field {
            Field::Bool(_) | Field::Help => Kind::Bool,
            Field::Int32(_) => Kind::Int32,
            Field::Int(_) => Kind::Int,
            Field::Float(_) => Kind::Float,
            Field::Duration(_) => Kind::Duration,
            Field::Text(_) => Kind::Text,
            Field::Address(_) => Kind::Address,
            Field::Words(_) => Kind::TextList,
            Field::Level(_) => Kind::Level,
            Field::Gates => Kind::Switches,
            Field::Modules => Kind::ModuleLevels,
            Field::Version => Kind::Version,
            Field::Unused(kind, _) => kind,
        }
    }

    pub(crate) fn letter(&self) -> Option<char> {
        match self.field {
            Field::Help => Some('h'),
            Field::Level(_) => Some('v'),
            _ => None,
        }
    }
}

/// Every flag, in no particular order.
pub(crate) fn all() -> impl Iterator<Item = &'static Row> {
    own::OWN.iter().chain(elsewhere::ELSEWHERE)
}

/// The flags that have an effect here.
pub(crate) fn own() -> &'static [Row] {
    own::OWN
}

/// The flag with this name. Underscores may stand for dashes.
pub(crate) fn find(name: &str) -> Option<&'static Row> {
    if name.contains('_') {
        let dashed = name.replace('_', "-");
        return all().find(|row| row.name == dashed);
    }
    all().find(|row| row.name == name)
}

pub(crate) fn find_letter(letter: char) -> Option<&'static Row> {
    all().find(|row| row.letter() == Some(letter))
}
