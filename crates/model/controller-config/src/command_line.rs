//! Parses a command line: which flags were used, and their final values.
//!
//! The rule it keeps: arguments are parsed as Go's flag library does (node-config's grammar), a
//! flag that is used more than once accumulates as there, and every error is reported. It does not
//! validate values.

use std::collections::BTreeMap;

use document::diagnostic::{Diagnostic, Origin, shown_value};
use node_config::flags::grammar::{self, FlagSet};
use node_config::flags::{FlagKind, FlagValue, VersionRequest, add_value, parse_bool};

use crate::settings::ControllerSettings;
use crate::table::{self, ControllerFlag, SettingField, UnusedReason};

/// A parsed command line. Errors among the problems come before `help`, and `help` before
/// `version`.
#[derive(Debug, Clone, Default)]
pub struct ControllerCommandLine {
    pub diagnostics: Vec<Diagnostic>,
    pub help: bool,
    pub version: Option<VersionRequest>,
    /// Every flag that was accepted, as `--name="value"`, for the log.
    pub given: Vec<String>,
    /// The file of `--config`; empty for none.
    pub config: String,
    pub(crate) used: Vec<FlagUse>,
}

/// A flag that was used, with the combined value of its uses.
#[derive(Clone)]
pub(crate) struct FlagUse {
    pub(crate) row: &'static ControllerFlag,
    pub(crate) value: FlagValue,
}

impl std::fmt::Debug for FlagUse {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "--{}={:?}", self.row.name, self.value)
    }
}

impl ControllerCommandLine {
    /// Whether there is an error, so that nothing else in here is valid.
    pub fn has_errors(&self) -> bool {
        self.diagnostics.iter().any(Diagnostic::is_error)
    }
}

/// Parses a command line, without the program's own name in front.
pub fn parse(args: &[String]) -> ControllerCommandLine {
    let mut reader = CommandLineReader { line: ControllerCommandLine::default() };
    if let Some(stray) = grammar::read(args, &mut reader) {
        let shown = shown_value("", stray);
        reader.refuse(format!("expected flags only, found the word {shown:?}"));
    }
    let mut line = reader.line;
    let config = line.used.iter().find(|used| used.row.name == "config");
    if let Some(FlagUse { value: FlagValue::Text(path), .. }) = config {
        line.config.clone_from(path);
    }
    line
}

struct CommandLineReader {
    line: ControllerCommandLine,
}

impl FlagSet for CommandLineReader {
    type Flag = &'static ControllerFlag;

    fn named(&self, name: &str) -> Option<Self::Flag> {
        table::find(name)
    }

    fn lettered(&self, letter: char) -> Option<Self::Flag> {
        table::find_letter(letter)
    }

    fn bare_value(&self, row: Self::Flag) -> Option<&'static str> {
        row.kind().bare_value()
    }

    fn take(&mut self, row: Self::Flag, text: &str) {
        let outcome = match row.field {
            SettingField::Help => parse_bool(text).map(|wanted| self.line.help = wanted),
            SettingField::Version => self.version_wanted(text),
            _ => self.add_value(row, text),
        };
        match outcome {
            Ok(()) => {
                self.warn_once(row);
                self.line.given.push(format!("--{}={:?}", row.name, shown_value(row.path, text)));
            }
            Err(expected) => {
                let diagnostic = Diagnostic::error("", expected).with_value(text);
                self.line.diagnostics.push(diagnostic.at(Origin::flag(row.name)));
            }
        }
    }

    fn refuse(&mut self, message: String) {
        self.line.diagnostics.push(Diagnostic::error("", message));
    }
}

impl CommandLineReader {
    fn add_value(&mut self, row: &'static ControllerFlag, text: &str) -> Result<(), String> {
        let known = self.line.used.iter().position(|used| used.row.name == row.name);
        let earlier = known.and_then(|at| self.line.used.get(at)).map(|used| used.value.clone());
        let value = match row.field {
            SettingField::Gates => add_gates(earlier, text)?,
            _ => add_value(row.kind(), earlier, text)?,
        };
        match known.and_then(|at| self.line.used.get_mut(at)) {
            Some(used) => used.value = value,
            None => self.line.used.push(FlagUse { row, value }),
        }
        Ok(())
    }

    fn version_wanted(&mut self, text: &str) -> Result<(), String> {
        self.line.version = match text {
            "raw" => Some(VersionRequest::Raw),
            _ => parse_bool(text)
                .map_err(|_| "expected true, false or raw".to_owned())?
                .then_some(VersionRequest::Plain),
        };
        Ok(())
    }

    /// One warning per flag is enough, however often it is used.
    fn warn_once(&mut self, row: &'static ControllerFlag) {
        let beginning = format!("--{}=", row.name);
        if self.line.given.iter().any(|given| given.starts_with(&beginning)) {
            return;
        }
        let SettingField::Unused(_, why) = row.field else { return };
        let message = match why {
            UnusedReason::Controller(name) => format!(
                "it belongs to the {name} of kube-controller-manager, which does not run here"
            ),
            UnusedReason::Because(reason) => format!("it has no effect here: {reason}"),
        };
        self.line.diagnostics.push(Diagnostic::warning("", message).at(Origin::flag(row.name)));
    }
}

/// `Gate=true`, or `component:Gate=true` where the component is ours (`kube`).
fn add_gates(earlier: Option<FlagValue>, text: &str) -> Result<FlagValue, String> {
    let mut plain = Vec::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        match part.split_once(':') {
            None => plain.push(part),
            Some(("kube", gate)) => plain.push(gate),
            Some((component, _)) => {
                return Err(format!("expected the component kube, found {component:?}"));
            }
        }
    }
    add_value(FlagKind::Switches, earlier, &plain.join(","))
}

/// Writes a value into the field that its flag, or its path in the file, sets.
pub(crate) fn write(
    row: &ControllerFlag,
    value: FlagValue,
    settings: &mut ControllerSettings,
) -> Result<(), &'static str> {
    match (row.field, value) {
        (SettingField::Bool(field), FlagValue::Bool(value)) => *field(settings) = value,
        (SettingField::Int32(field), FlagValue::Integer(value)) => {
            *field(settings) = i32::try_from(value).map_err(|_| "expected 32 bits")?;
        }
        (SettingField::Int(field) | SettingField::Level(field), FlagValue::Integer(value)) => {
            *field(settings) = value;
        }
        (SettingField::Float(field), FlagValue::Float(value)) => {
            // Upstream's are single, and so is every boundary that is computed from them.
            #[allow(clippy::cast_possible_truncation)]
            let single = value as f32;
            if !single.is_finite() {
                return Err("expected a number that fits into 32 bits");
            }
            *field(settings) = single;
        }
        (SettingField::Duration(field), FlagValue::Duration(value)) => *field(settings) = value,
        (SettingField::Text(field) | SettingField::Address(field), FlagValue::Text(value)) => {
            *field(settings) = value;
        }
        (SettingField::StringList(field), FlagValue::List(value)) => *field(settings) = value,
        (SettingField::Gates, FlagValue::Switches(value)) => settings.feature_gates.extend(value),
        (SettingField::Modules, FlagValue::Modules(modules)) => {
            settings.vmodule =
                modules.into_iter().map(|it| (it.file_pattern, it.verbosity)).collect();
        }
        // `Row::kind` gives each field the kind that yields its value; an empty address is no use.
        _ => {}
    }
    Ok(())
}

/// The origin of each setting, by its flag's name; a setting that is not here is a default.
pub(crate) type Origins = BTreeMap<&'static str, Origin>;
