//! Which word of a command line is a flag, which its value and which neither, as Go's pflag has it.
//!
//! The rule it keeps: it knows no flags; a set of flags tells what there is and takes what was
//! found. After a mistake reading goes on, so that all mistakes are found at once; what follows a
//! mistake is guessed, and never counts because of the mistake.
//!
//! upstream: spf13/pflag flag.go

use std::slice::Iter;

/// The flags of one program, and what became of them.
pub trait FlagSet {
    type Flag: Copy;

    fn named(&self, name: &str) -> Option<Self::Flag>;
    fn lettered(&self, letter: char) -> Option<Self::Flag>;
    /// The value that the bare flag stands for; without one, it takes the next word.
    fn bare_value(&self, flag: Self::Flag) -> Option<&'static str>;
    /// One use of a flag.
    fn take(&mut self, flag: Self::Flag, text: &str);
    /// Something that is wrong with the line itself.
    fn refuse(&mut self, message: String);
}

/// Goes through all words. Returns the first that is no flag: only this one is worth naming.
pub fn read<'a>(args: &'a [String], set: &mut impl FlagSet) -> Option<&'a str> {
    let mut words = Words { words: args.iter(), set };
    let mut stray = None;
    while let Some(word) = words.words.next() {
        if word == "--" {
            // Everything behind is no flag, whatever it looks like.
            return stray.or(words.words.next().map(String::as_str));
        }
        match word.strip_prefix('-') {
            None | Some("") => stray = stray.or(Some(word.as_str())),
            Some(rest) => match rest.strip_prefix('-') {
                Some(long) => words.long(word, long),
                None => words.letters(rest),
            },
        }
    }
    stray
}

struct Words<'a, 's, S> {
    words: Iter<'a, String>,
    set: &'s mut S,
}

impl<'a, S: FlagSet> Words<'a, '_, S> {
    /// `--name`, `--name=value`, `--name value`.
    fn long(&mut self, word: &str, text: &'a str) {
        if text.starts_with(['-', '=']) {
            self.set.refuse(format!("bad flag syntax: {word}"));
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
        let next = || self.words.next().map(String::as_str);
        match attached.or(self.set.bare_value(flag)).or_else(next) {
            Some(text) => self.set.take(flag, text),
            None => self.set.refuse(format!("flag needs an argument: --{name}")),
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
            let next = || self.words.next().map(String::as_str);
            match attached.or(joined).or_else(next) {
                Some(text) => self.set.take(flag, text),
                None => {
                    self.set.refuse(format!("flag needs an argument: '{letter}' in -{rest}"));
                }
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
}
