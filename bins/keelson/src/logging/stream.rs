//! Where lines go.
//!
//! Rule: a line is one write and its failure is nobody's: a closed pipe or a full disk must not
//! end the agent (SIGPIPE is ignored in Rust programs, so a closed pipe is only an error here).

use super::record::Severity;
use std::io::Write;

/// Takes finished lines.
pub(crate) trait LogStream: Send + Sync {
    fn write(&self, severity: Severity, line: &str);
}

/// Standard error for all, or standard output for what is no error.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ProcessStreams {
    pub(crate) split: bool,
}

impl LogStream for ProcessStreams {
    fn write(&self, severity: Severity, line: &str) {
        let _ = if self.split && severity < Severity::Error {
            let mut output = std::io::stdout().lock();
            output.write_all(line.as_bytes()).and_then(|()| output.flush())
        } else {
            std::io::stderr().lock().write_all(line.as_bytes())
        };
    }
}
