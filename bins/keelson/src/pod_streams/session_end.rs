//! How a remote command ended, and which exit code that is.
//!
//! Rule: a command's own code is passed on; 126 if it could not be run, as in other runtimes'
//! tools. Pure except for the report.
//!
//! upstream: streaming remotecommand: the error stream's v1 Status; NonZeroExitCode

use crate::terminal;
use serde_json::Value;
use std::process::ExitCode;

/// The command could not be run at all.
const NOT_RUN: u8 = 126;
/// As a shell reports a writer with a closed pipe: 128 + SIGPIPE.
const SIGPIPE_EXIT_CODE: u8 = 141;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SessionEnd {
    Success,
    Code(i32),
    Failed(String),
    /// This program's output was closed.
    OutputClosed,
}

impl SessionEnd {
    /// From the error stream's content; in the older protocols an empty one is success.
    pub(super) fn of_status(bytes: &[u8]) -> Self {
        if bytes.is_empty() {
            return Self::Success;
        }
        let plain = || Self::Failed(String::from_utf8_lossy(bytes).trim().to_owned());
        let Ok(status) = serde_json::from_slice::<Value>(bytes) else { return plain() };
        if status["status"] == "Success" {
            return Self::Success;
        }
        let causes = status["details"]["causes"].as_array();
        let code = causes.into_iter().flatten().find(|cause| cause["reason"] == "ExitCode");
        let code = code.and_then(|cause| cause["message"].as_str()?.parse().ok());
        match (code, status["message"].as_str()) {
            (Some(code), _) if status["reason"] == "NonZeroExitCode" => Self::Code(code),
            (_, Some(message)) => Self::Failed(message.to_owned()),
            _ => plain(),
        }
    }

    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Success => 0,
            // A code that does not fit is still a failure.
            Self::Code(code) => u8::try_from(*code).unwrap_or(u8::MAX),
            Self::Failed(_) => NOT_RUN,
            Self::OutputClosed => SIGPIPE_EXIT_CODE,
        }
    }

    /// Prints what the exit code does not show.
    pub(crate) fn report(&self) -> ExitCode {
        if let Self::Failed(why) = self {
            terminal::print_error(&format!("error: {why}"));
        }
        ExitCode::from(self.exit_code())
    }
}
