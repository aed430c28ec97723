//! Output of the verbs: colours, and lines that survive a closed pipe.
//!
//! Rule: colours only on a terminal and never with NO_COLOR; a reader that goes away ends the
//! output without a panic. Output that could not be written (a full disk) is a failure of the verb,
//! whatever its result was.

use std::io::{ErrorKind, IsTerminal, Write};

/// Whether and how text is coloured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Palette {
    coloured: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Colour {
    Green,
    Yellow,
    Red,
    Bold,
}

impl Palette {
    /// For standard output; `no_color` is the value of NO_COLOR, where any text but "" counts.
    pub(crate) fn for_output(no_color: Option<&std::ffi::OsStr>) -> Palette {
        Palette { coloured: allowed(no_color, std::io::stdout().is_terminal()) }
    }

    #[cfg(test)]
    pub(crate) fn plain() -> Palette {
        Palette { coloured: false }
    }

    pub(crate) fn paint(self, colour: Colour, text: &str) -> String {
        let code = match colour {
            Colour::Green => 32,
            Colour::Yellow => 33,
            Colour::Red => 31,
            Colour::Bold => 1,
        };
        if self.coloured { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }
}

fn allowed(no_color: Option<&std::ffi::OsStr>, terminal: bool) -> bool {
    terminal && no_color.is_none_or(std::ffi::OsStr::is_empty)
}

/// Prints to standard output. A closed pipe is no error; any other error is reported on standard
/// error and exits with 1, so that no verb can report success after it.
pub(crate) fn print(text: &str) {
    let mut output = std::io::stdout().lock();
    match output.write_all(text.as_bytes()).and_then(|()| output.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            print_error(&format!("error: cannot write to standard output: {error}"));
            std::process::exit(1)
        }
        _ => {}
    }
}

/// Prints a line to standard error.
pub(crate) fn print_error(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;

    #[test]
    fn colours_need_a_terminal_and_no_objection() {
        assert!(allowed(None, true));
        assert!(allowed(Some(OsStr::new("")), true));
        assert!(!allowed(Some(OsStr::new("1")), true));
        assert!(!allowed(None, false));
        let painted = Palette { coloured: true }.paint(Colour::Red, "no");
        assert_eq!(painted, "\u{1b}[31mno\u{1b}[0m");
        assert_eq!(Palette::plain().paint(Colour::Red, "no"), "no");
    }
}
