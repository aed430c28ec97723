//! Which argument of a command line is a flag, which its value and which neither, as in Go's pflag.
//!
//! The rule it keeps: it knows no flags; a `FlagSet` provides them and receives what was found.
//! After an error parsing goes on, so that all errors are found at once; what follows an error is
//! guessed, and never takes effect because of the error.
//!
//! upstream: spf13/pflag flag.go

use std::slice::Iter;

/// The flags of one program, and the receiver of their values.
pub trait FlagSet {
    type Flag: Copy;

    fn named(&self, name: &str) -> Option<Self::Flag>;
    fn lettered(&self, letter: char) -> Option<Self::Flag>;
    /// The value of the bare flag; without one, the flag takes the next argument.
    fn bare_value(&self, flag: Self::Flag) -> Option<&'static str>;
    /// Receives one use of a flag.
    fn take(&mut self, flag: Self::Flag, text: &str);
    /// Receives an error of the line itself.
    fn refuse(&mut self, message: String);
}

/// Parses all arguments. Returns the first positional one: only this one is worth naming.
pub fn read<'a>(args: &'a [String], set: &mut impl FlagSet) -> Option<&'a str> {
    let mut remaining = Arguments { remaining: args.iter(), set };
    let mut stray = None;
    while let Some(arg) = remaining.remaining.next() {
        if arg == "--" {
            // Everything after it is positional, whatever it looks like.
            return stray.or(remaining.remaining.next().map(String::as_str));
        }
        match arg.strip_prefix('-') {
            None | Some("") => stray = stray.or(Some(arg.as_str())),
            Some(rest) => match rest.strip_prefix('-') {
                Some(long) => remaining.long(arg, long),
                None => remaining.letters(rest),
            },
        }
    }
    stray
}

struct Arguments<'a, 's, S> {
    remaining: Iter<'a, String>,
    set: &'s mut S,
}

impl<'a, S: FlagSet> Arguments<'a, '_, S> {
    /// `--name`, `--name=value`, `--name value`.
    fn long(&mut self, arg: &str, text: &'a str) {
        if text.starts_with(['-', '=']) {
            self.set.refuse(format!("bad flag syntax: {arg}"));
            return;
        }
        let (name, attached) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (text, None),
        };
        let Some(flag) = self.set.named(name) else {
            self.set.refuse(format!("unknown flag: --{name}"));
            if attached.is_none() {
                self.skip_value();
            }
            return;
        };
        let next = || self.remaining.next().map(String::as_str);
        match attached.or(self.set.bare_value(flag)).or_else(next) {
            Some(text) => self.set.take(flag, text),
            None => self.set.refuse(format!("flag needs an argument: --{name}")),
        }
    }

    /// `-v4`, `-v=4`, `-v 4`, and several letters behind one dash.
    fn letters(&mut self, group: &'a str) {
        // The reference ignores what looks like a flag of Go's own test programs.
        if group.starts_with("test.") {
            return;
        }
        let mut rest = group;
        while let Some(letter) = rest.chars().next() {
            let behind = &rest[letter.len_utf8()..];
            let Some(flag) = self.set.lettered(letter) else {
                self.set.refuse(format!("unknown shorthand flag: '{letter}' in -{rest}"));
                if !behind.starts_with('=') {
                    self.skip_value();
                }
                return;
            };
            let attached = behind.strip_prefix('=').filter(|value| !value.is_empty());
            if attached.is_none()
                && let Some(bare) = self.set.bare_value(flag)
            {
                self.set.take(flag, bare);
                rest = behind;
                continue;
            }
            let joined = Some(behind).filter(|text| !text.is_empty());
            let next = || self.remaining.next().map(String::as_str);
            match attached.or(joined).or_else(next) {
                Some(text) => self.set.take(flag, text),
                None => {
                    self.set.refuse(format!("flag needs an argument: '{letter}' in -{rest}"));
                }
            }
            return;
        }
    }

    /// The argument after an unknown flag is more likely its value than a positional one.
    fn skip_value(&mut self) {
        if self.remaining.as_slice().first().is_some_and(|arg| !arg.starts_with('-')) {
            self.remaining.next();
        }
    }
}
