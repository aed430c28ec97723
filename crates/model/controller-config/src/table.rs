//! Every flag: name, kind, default, its field in the file, and its effect.
//!
//! The rule it keeps: name, kind and default equal those of the pinned kube-controller-manager (a
//! test compares them with a golden file generated from it), except for flags of our own; the help
//! is ours. Rows only: `command_line` and `file` read them.

use node_config::flags::FlagKind;
use pod_model::GoDuration;

use crate::settings::ControllerSettings;

mod elsewhere;
mod own;

pub(crate) use elsewhere::{FOREIGN_SECTIONS, UNUSED_FIELDS};

/// A field of the settings, with the kind that fits it.
#[derive(Clone, Copy)]
pub(crate) enum SettingField {
    Bool(fn(&mut ControllerSettings) -> &mut bool),
    Int32(fn(&mut ControllerSettings) -> &mut i32),
    Int(fn(&mut ControllerSettings) -> &mut i64),
    Float(fn(&mut ControllerSettings) -> &mut f32),
    Duration(fn(&mut ControllerSettings) -> &mut GoDuration),
    Text(fn(&mut ControllerSettings) -> &mut String),
    Address(fn(&mut ControllerSettings) -> &mut String),
    StringList(fn(&mut ControllerSettings) -> &mut Vec<String>),
    Level(fn(&mut ControllerSettings) -> &mut i64),
    Gates,
    Modules,
    Help,
    Version,
    /// Checked for its form and otherwise ignored.
    Unused(FlagKind, UnusedReason),
}

/// Why a flag of upstream has no effect here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnusedReason {
    /// It belongs to a controller that runs in kube-controller-manager only.
    Controller(&'static str),
    /// For this reason.
    Because(&'static str),
}

/// One flag.
#[derive(Clone, Copy)]
pub(crate) struct ControllerFlag {
    pub(crate) name: &'static str,
    pub(crate) field: SettingField,
    /// The path in `KubeControllerManagerConfiguration`; empty if it is not there.
    pub(crate) path: &'static str,
    /// As Go's flag library prints it.
    pub(crate) default: &'static str,
    pub(crate) help: &'static str,
}

impl ControllerFlag {
    pub(crate) fn kind(&self) -> FlagKind {
        match self.field {
            SettingField::Bool(_) | SettingField::Help => FlagKind::Bool,
            SettingField::Int32(_) => FlagKind::Int32,
            SettingField::Int(_) => FlagKind::Int,
            SettingField::Float(_) => FlagKind::Float,
            SettingField::Duration(_) => FlagKind::Duration,
            SettingField::Text(_) => FlagKind::Text,
            SettingField::Address(_) => FlagKind::Address,
            SettingField::StringList(_) => FlagKind::TextList,
            SettingField::Level(_) => FlagKind::Level,
            SettingField::Gates => FlagKind::Switches,
            SettingField::Modules => FlagKind::ModuleLevels,
            SettingField::Version => FlagKind::Version,
            SettingField::Unused(kind, _) => kind,
        }
    }

    pub(crate) fn letter(&self) -> Option<char> {
        match self.field {
            SettingField::Help => Some('h'),
            SettingField::Level(_) => Some('v'),
            _ => None,
        }
    }
}

/// Every flag, in no particular order.
pub(crate) fn all() -> impl Iterator<Item = &'static ControllerFlag> {
    own::OWN.iter().chain(elsewhere::IN_KUBE_CONTROLLER_MANAGER)
}

/// The flags that have an effect here.
pub(crate) fn own() -> &'static [ControllerFlag] {
    own::OWN
}

/// The flag with this name. Underscores may stand for dashes.
pub(crate) fn find(name: &str) -> Option<&'static ControllerFlag> {
    if name.contains('_') {
        let dashed = name.replace('_', "-");
        return all().find(|row| row.name == dashed);
    }
    all().find(|row| row.name == name)
}

pub(crate) fn find_letter(letter: char) -> Option<&'static ControllerFlag> {
    all().find(|row| row.letter() == Some(letter))
}
