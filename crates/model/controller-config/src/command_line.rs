//! Parses a command line: which flags were used, and their final values.
//!
//! The rule it keeps: arguments are parsed as Go's flag library does (node-config's grammar), a
//! flag that is used more than once accumulates as there, and every error is reported. It does not
//! validate values.

use std::collections::BTreeMap;

use document::problem::{Origin, Problem, shown_value};
use node_config::flags::grammar::{self, FlagSet};
use node_config::flags::{FlagValue, Kind, VersionRequest, absorb, parse_bool};

use crate::settings::Settings;
use crate::table::{self, Field, Row, Why};

/// A parsed command line. Errors among the problems come before `help`, and `help` before
/// `version`.
#[derive(Debug, Clone, Default)]
pub struct CommandLine {
    pub problems: Vec<Problem>,
    pub help: bool,
    pub version: Option<VersionRequest>,
    /// Every flag that was accepted, as `--name="value"`, for the log.
    pub given: Vec<String>,
    /// The file of `--config`; empty for none.
    pub config: String,
    pub(crate) used: Vec<Used>,
}

/// A flag that was used, with the combined value of its uses.
#[derive(Clone)]
pub(crate) struct Used {
    pub(crate) row: &'static Row,
    pub(crate) value: FlagValue,
}

impl std::fmt::Debug for Used {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "--{}={:?}", self.row.name, self.value)
    }
}

impl CommandLine {
    /// Whether there is an error, so that nothing else in here is valid.
    pub fn has_errors(&self) -> bool {
        self.problems.iter().any(Problem::is_error)
    }
}

/// Parses a command line, without the program's own name in front.
pub fn parse(args: &[String]) -> CommandLine {
    let mut reader = Reader { line: CommandLine::default() };
    if let Some(stray) = grammar::read(args, &mut reader) {
        let shown = shown_value("", stray);
        reader.refuse(format!("expected flags only, found the word {shown:?}"));
    }
    let mut line = reader.line;
    let config = line.used.iter().find(|used| used.row.name == "config");
    if let Some(Used { value: FlagValue::Text(path), .. }) = config {
        line.config.clone_from(path);
    }
    line
}

struct Reader {
    line: CommandLine,
}

impl FlagSet for Reader {
    type Flag = &'static Row;

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
            Field::Help => parse_bool(text).map(|wanted| self.line.help = wanted),
            Field::Version => self.version_wanted(text),
            _ => self.absorb(row, text),
        };
        match outcome {
            Ok(()) => {
                self.warn_once(row);
                self.line.given.push(format!("--{}={:?}", row.name, shown_value(row.path, text)));
            }
            Err(expected) => {
                let problem = Problem::error("", expected).with_value(text);
                self.line.problems.push(problem.at(Origin::flag(row.name)));
            }
        }
    }

    fn refuse(&mut self, message: String) {
        self.line.problems.push(Problem::error("", message));
    }
}

impl Reader {
    fn absorb(&mut self, row: &'static Row, text: &str) -> Result<(), String> {
        let known = self.line.used.iter().position(|used| used.row.name == row.name);
        let earlier = known.and_then(|at| self.line.used.get(at)).map(|used| used.value.clone());
        let value = match row.field {
            Field::Gates => add_gates(earlier, text)?,
            _ => absorb(row.kind(), earlier, text)?,
        };
        match known.and_then(|at| self.line.used.get_mut(at)) {
            Some(used) => used.value = value,
            None => self.line.used.push(Used { row, value }),
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
    fn warn_once(&mut self, row: &'static Row) {
        let beginning = format!("--{}=", row.name);
        if self.line.given.iter().any(|given| given.starts_with(&beginning)) {
            return;
        }
        let Field::Unused(_, why) = row.field else { return };
        let message = match why {
            Why::Controller(name) => format!(
                "it belongs to the {name} of kube-controller-manager, which does not run here"
            ),
            Why::Because(reason) => format!("it has no effect here: {reason}"),
        };
        self.line.problems.push(Problem::warning("", message).at(Origin::flag(row.name)));
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
    absorb(Kind::Switches, earlier, &plain.join(","))
}

/// Writes a value into the field that its flag, or its path in the file, sets.
pub(crate) fn write(
    row: &Row,
    value: FlagValue,
    settings: &mut Settings,
) -> Result<(), &'static str> {
    match (row.field, value) {
        (Field::Bool(field), FlagValue::Bool(value)) => *field(settings) = value,
        (Field::Int32(field), FlagValue::Integer(value)) => {
            *field(settings) = i32::try_from(value).map_err(|_| "expected 32 bits")?;
        }
        (Field::Int(field) | Field::Level(field), FlagValue::Integer(value)) => {
            *field(settings) = value;
        }
        (Field::Float(field), FlagValue::Float(value)) => {
            // Upstream's are single, and so is every boundary that is computed from them.
            #[allow(clippy::cast_possible_truncation)]
            let single = value as f32;
            if !single.is_finite() {
                return Err("expected a number that fits into 32 bits");
            }
            *field(settings) = single;
        }
        (Field::Duration(field), FlagValue::Duration(value)) => *field(settings) = value,
        (Field::Text(field) | Field::Address(field), FlagValue::Text(value)) => {
            *field(settings) = value;
        }
        (Field::Words(field), FlagValue::List(value)) => *field(settings) = value,
        (Field::Gates, FlagValue::Switches(value)) => settings.feature_gates.extend(value),
        (Field::Modules, FlagValue::Modules(modules)) => {
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
