//! Applies each flag of a kubelet's command line to the settings and the configuration.
//!
//! The rule it keeps: every use of a flag is combined with its earlier ones, and the final values
//! are written once. Which argument is a flag is decided by the grammar.
//!
//! upstream: cmd/kubelet/app/server.go

use super::go_syntax::parse_bool;
use super::grammar::{self, FlagSet};
use super::kind::{FlagSpec, FlagTarget};
use super::table;
use super::value::{FlagValue, add_value};
use super::{
    Combine, ConfigEdit, GivenFlag, KUBERNETES_VERSION, KubeletCommandLine, VersionRequest,
};
use crate::diagnostic::{Diagnostic, Origin};

/// A flag that was used, with the combined value of its uses.
struct UsedFlag {
    flag: &'static FlagSpec,
    value: FlagValue,
}

#[derive(Default)]
struct FlagReader {
    used: Vec<UsedFlag>,
    line: KubeletCommandLine,
}

pub(super) fn read(args: &[String]) -> KubeletCommandLine {
    let mut reader = FlagReader::default();
    let stray = grammar::read(args, &mut reader);
    reader.finish(stray)
}

impl FlagSet for FlagReader {
    type Flag = &'static FlagSpec;

    fn named(&self, name: &str) -> Option<Self::Flag> {
        table::find(name)
    }

    fn lettered(&self, letter: char) -> Option<Self::Flag> {
        table::find_shorthand(letter)
    }

    fn bare_value(&self, flag: Self::Flag) -> Option<&'static str> {
        flag.kind().bare_value()
    }

    fn take(&mut self, flag: &'static FlagSpec, text: &str) {
        let outcome = match flag.target {
            FlagTarget::Version => self.version(text),
            FlagTarget::Help => parse_bool(text).map(|wanted| self.line.help = wanted),
            FlagTarget::Config(..) | FlagTarget::Node(_) => self.add_value(flag, text),
        };
        match outcome {
            Ok(()) => {
                self.warn_once(flag);
                self.line.given.push(GivenFlag { flag: flag.name, value: text.to_owned() });
            }
            Err(expected) => {
                let diagnostic = Diagnostic::error(flag.path(), expected).with_value(text);
                self.line.diagnostics.push(diagnostic.at(Origin::flag(flag.name)));
            }
        }
    }

    fn refuse(&mut self, message: String) {
        self.line.diagnostics.push(Diagnostic::error("", message));
    }
}

impl FlagReader {
    fn add_value(&mut self, flag: &'static FlagSpec, text: &str) -> Result<(), String> {
        match self.used.iter_mut().find(|used| used.flag.name == flag.name) {
            Some(used) => used.value = add_value(flag.kind(), Some(used.value.clone()), text)?,
            None => {
                let value = add_value(flag.kind(), None, text)?;
                self.used.push(UsedFlag { flag, value });
            }
        }
        Ok(())
    }

    fn version(&mut self, text: &str) -> Result<(), String> {
        if text == "raw" {
            self.line.version = Some(VersionRequest::Raw);
        } else if text.starts_with('v') {
            check_reported_version(text)?;
            self.line.version = None;
            self.line.node.reported_version = Some(text.to_owned());
        } else {
            let wanted = parse_bool(text).map_err(|_| {
                format!("expected true, false, raw or a version such as {KUBERNETES_VERSION}-mine")
            })?;
            self.line.version = wanted.then_some(VersionRequest::Plain);
        }
        Ok(())
    }

    /// One warning per flag is enough, however often it is used.
    fn warn_once(&mut self, flag: &FlagSpec) {
        let first_use = !self.line.given.iter().any(|given| given.flag == flag.name);
        if let (true, Some(advice)) = (first_use, flag.deprecation.advice()) {
            let message = format!("Flag --{} has been deprecated, {advice}", flag.name);
            self.line.diagnostics.push(Diagnostic::warning("", message));
        }
    }

    fn finish(mut self, stray: Option<&str>) -> KubeletCommandLine {
        if let Some(stray) = stray {
            self.refuse(format!("unknown command {stray}"));
        }
        for UsedFlag { flag, value } in self.used {
            match flag.target {
                FlagTarget::Config(path, _) => {
                    let combine = combine(path);
                    let edit = |value| ConfigEdit { flag: flag.name, path, value, combine };
                    self.line.edits.extend(value.into_json().map(edit));
                }
                FlagTarget::Node(field) => value.write_into(field, &mut self.line.node),
                FlagTarget::Help | FlagTarget::Version => {}
            }
        }
        self.line
    }
}

/// The reference parses the command line again on top of the files. Its values for these two add to
/// what they find; all others replace it.
fn combine(path: &str) -> Combine {
    match path {
        "featureGates" => Combine::AddKeys,
        "logging.vmodule" => Combine::Append,
        _ => Combine::Replace,
    }
}

/// A version to report must be ours, with a suffix at most.
fn check_reported_version(text: &str) -> Result<(), String> {
    let word = |part: &str| {
        !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    let identifiers = |text: &str| text.split('.').all(word);
    let number_without_zero = |part: &str| {
        !(part.len() > 1 && part.starts_with('0') && part.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let fits = text.strip_prefix(KUBERNETES_VERSION).is_some_and(|suffix| {
        let (before, build) = match suffix.split_once('+') {
            Some((before, build)) => (before, Some(build)),
            None => (suffix, None),
        };
        let pre_release_fits = match before.strip_prefix('-') {
            Some(pre) => identifiers(pre) && pre.split('.').all(number_without_zero),
            None => before.is_empty(),
        };
        pre_release_fits && build.is_none_or(identifiers)
    });
    if fits { Ok(()) } else { Err(format!("expected {KUBERNETES_VERSION}, or that with a suffix")) }
}
