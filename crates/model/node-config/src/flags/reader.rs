//! Goes through the words of a command line and hands each flag its text.
//!
//! The rule it keeps: which word is a flag, which its value and which neither is decided as Go's
//! pflag decides it. After a mistake reading goes on, so that all mistakes are found at once; what
//! follows a mistake is guessed, and never counts because of the mistake.
//!
//! upstream: spf13/pflag flag.go, cmd/kubelet/app/server.go

use std::slice::Iter;

use super::kind::{FlagSpec, Target};
use super::table;
use super::value::{FlagValue, absorb};
use super::words::parse_bool;
use super::{Combine, CommandLine, ConfigEdit, GivenFlag, KUBERNETES_VERSION, VersionRequest};
use crate::problem::{Origin, Problem};

/// A flag that was used, with what its uses add up to.
struct Used {
    flag: &'static FlagSpec,
    value: FlagValue,
}

struct Reader<'a> {
    words: Iter<'a, String>,
    used: Vec<Used>,
    line: CommandLine,
    /// The first word that is no flag; the reference names only this one.
    stray: Option<&'a str>,
}

pub(super) fn read(args: &[String]) -> CommandLine {
    let mut reader =
        Reader { words: args.iter(), used: Vec::new(), line: CommandLine::default(), stray: None };
    while let Some(word) = reader.words.next() {
        if word == "--" {
            // Everything behind is no flag, whatever it looks like.
            let behind = reader.words.next().map(String::as_str);
            reader.stray = reader.stray.or(behind);
            break;
        }
        match word.strip_prefix('-') {
            None | Some("") => reader.stray = reader.stray.or(Some(word)),
            Some(rest) => match rest.strip_prefix('-') {
                Some(long) => reader.long(word, long),
                None => reader.letters(rest),
            },
        }
    }
    reader.finish()
}

impl<'a> Reader<'a> {
    /// `--name`, `--name=value`, `--name value`.
    fn long(&mut self, word: &str, text: &'a str) {
        if text.starts_with(['-', '=']) {
            self.refuse(format!("bad flag syntax: {word}"));
            return;
        }
        let (name, attached) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (text, None),
        };
        let Some(flag) = table::find(name) else {
            self.refuse(format!("unknown flag: --{name}"));
            if attached.is_none() {
                self.skip_value();
            }
            return;
        };
        let next = || self.words.next().map(String::as_str);
        match attached.or(flag.kind().bare_value()).or_else(next) {
            Some(text) => self.take(flag, text),
            None => self.refuse(format!("flag needs an argument: --{name}")),
        }
    }

    /// `-v4`, `-v=4`, `-v 4`, and several letters behind one dash.
    fn letters(&mut self, group: &'a str) {
        // The reference passes over what looks like a flag of Go's own test programs.
        if group.starts_with("test.") {
            return;
        }
        let mut rest = group;
        while let Some(letter) = rest.chars().next() {
            let behind = &rest[letter.len_utf8()..];
            let Some(flag) = table::find_shorthand(letter) else {
                self.refuse(format!("unknown shorthand flag: '{letter}' in -{rest}"));
                if !behind.starts_with('=') {
                    self.skip_value();
                }
                return;
            };
            let attached = behind.strip_prefix('=').filter(|value| !value.is_empty());
            if attached.is_none()
                && let Some(bare) = flag.kind().bare_value()
            {
                self.take(flag, bare);
                rest = behind;
                continue;
            }
            let joined = Some(behind).filter(|text| !text.is_empty());
            let next = || self.words.next().map(String::as_str);
            match attached.or(joined).or_else(next) {
                Some(text) => self.take(flag, text),
                None => self.refuse(format!("flag needs an argument: '{letter}' in -{rest}")),
            }
            return;
        }
    }

    /// Whatever follows an unknown flag is more likely its value than a word on its own.
    fn skip_value(&mut self) {
        if self.words.as_slice().first().is_some_and(|word| !word.starts_with('-')) {
            self.words.next();
        }
    }

    fn take(&mut self, flag: &'static FlagSpec, text: &str) {
        let outcome = match flag.target {
            Target::Version => self.version(text),
            Target::Help => parse_bool(text).map(|wanted| self.line.help = wanted),
            Target::Config(..) | Target::Node(_) => self.absorb(flag, text),
        };
        match outcome {
            Ok(()) => {
                self.warn_once(flag);
                self.line.given.push(GivenFlag { flag: flag.name, value: text.to_owned() });
            }
            Err(expected) => {
                let problem = Problem::error(flag.path(), expected).with_value(text);
                self.line.problems.push(problem.at(Origin::flag(flag.name)));
            }
        }
    }

    fn absorb(&mut self, flag: &'static FlagSpec, text: &str) -> Result<(), String> {
        match self.used.iter_mut().find(|used| used.flag.name == flag.name) {
            Some(used) => used.value = absorb(flag.kind(), Some(used.value.clone()), text)?,
            None => {
                let value = absorb(flag.kind(), None, text)?;
                self.used.push(Used { flag, value });
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
        if let (true, Some(advice)) = (first_use, flag.standing.advice()) {
            let message = format!("Flag --{} has been deprecated, {advice}", flag.name);
            self.line.problems.push(Problem::warning("", message));
        }
    }

    fn refuse(&mut self, message: String) {
        self.line.problems.push(Problem::error("", message));
    }

    fn finish(mut self) -> CommandLine {
        if let Some(stray) = self.stray {
            self.refuse(format!("unknown command {stray}"));
        }
        for Used { flag, value } in self.used {
            match flag.target {
                Target::Config(path, _) => {
                    let combine = combine(path);
                    let edit = |value| ConfigEdit { flag: flag.name, path, value, combine };
                    self.line.edits.extend(value.into_json().map(edit));
                }
                Target::Node(field) => value.write_into(field, &mut self.line.node),
                Target::Help | Target::Version => {}
            }
        }
        self.line
    }
}

/// The reference reads the command line again on top of the files. Its values for these two add to
/// what they find; all others start afresh.
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
    let words = |text: &str| text.split('.').all(word);
    let number_without_zero = |part: &str| {
        !(part.len() > 1 && part.starts_with('0') && part.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let fits = text.strip_prefix(KUBERNETES_VERSION).is_some_and(|suffix| {
        let (before, build) = match suffix.split_once('+') {
            Some((before, build)) => (before, Some(build)),
            None => (suffix, None),
        };
        let pre_release_fits = match before.strip_prefix('-') {
            Some(pre) => words(pre) && pre.split('.').all(number_without_zero),
            None => before.is_empty(),
        };
        pre_release_fits && build.is_none_or(words)
    });
    if fits { Ok(()) } else { Err(format!("expected {KUBERNETES_VERSION}, or that with a suffix")) }
}
