//! How a remote command ended, and which exit code that is.
//!
//! Rule: a command's own code is passed on; what kept it from running is 126, as other runtimes'
//! tools have it. Pure but for the report.
//!
//! upstream: streaming remotecommand: the error stream's v1 Status; NonZeroExitCode

use crate::terminal;
use serde_json::Value;
use std::process::ExitCode;

/// What could not be run at all.
const NOT_RUN: u8 = 126;
/// As a shell tells a writer that nobody reads: 128 + SIGPIPE.
const NOBODY_READS: u8 = 141;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ending {
    Success,
    Code(i32),
    Failed(String),
    /// Our own output was closed.
    NobodyReads,
}

impl Ending {
    /// What the error stream says; nothing at all is success in the older protocols.
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
            // What does not fit is a failure all the same.
            Self::Code(code) => u8::try_from(*code).unwrap_or(u8::MAX),
            Self::Failed(_) => NOT_RUN,
            Self::NobodyReads => NOBODY_READS,
        }
    }

    /// Says what a code does not.
    pub(crate) fn report(&self) -> ExitCode {
        if let Self::Failed(why) = self {
            terminal::print_error(&format!("error: {why}"));
        }
        ExitCode::from(self.exit_code())
    }
}
