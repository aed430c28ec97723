//! This program's terminal: its size, and raw mode.
//!
//! Rule: the previous mode is restored when this value is dropped, also after an error. What is not
//! a terminal is left as it is.

use rustix::termios::{OptionalActions, Termios, isatty, tcgetattr, tcgetwinsize, tcsetattr};
use std::io::{stdin, stdout};

pub(super) struct RawTerminal {
    before: Termios,
}

impl RawTerminal {
    /// None if standard input is no terminal.
    pub(super) fn enter() -> Option<Self> {
        let input = stdin();
        if !isatty(&input) {
            return None;
        }
        let before = tcgetattr(&input).ok()?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(&input, OptionalActions::Drain, &raw).ok()?;
        Some(Self { before })
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        let _ = tcsetattr(stdin(), OptionalActions::Drain, &self.before);
    }
}

/// Columns and rows; None if there is no terminal.
pub(super) fn size() -> Option<(u16, u16)> {
    let size = tcgetwinsize(stdout()).or_else(|_| tcgetwinsize(stdin())).ok()?;
    (size.ws_col > 0 && size.ws_row > 0).then_some((size.ws_col, size.ws_row))
}
