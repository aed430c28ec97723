//! What a remote command sees of its client, whatever carries it.

use bytes::Bytes;
use container_create::spec::TerminalSize;
use serde::Deserialize;
use serde_json::json;
use tokio::sync::mpsc;

/// Messages that may wait in each direction: a slow side slows the other.
pub(super) const QUEUE: usize = 16;
/// What is sent as one message.
pub(super) const PART: usize = 32 * 1024;

/// Which streams a command has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Has {
    pub(super) stdin: bool,
    pub(super) stdout: bool,
    pub(super) stderr: bool,
    pub(super) tty: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Channel {
    Stdout,
    Stderr,
}

/// From the client.
#[derive(Debug)]
pub(super) enum Input {
    Stdin(Bytes),
    StdinEnd,
    Resize(TerminalSize),
}

/// To the client.
#[derive(Debug)]
pub(super) enum Output {
    Data(Channel, Bytes),
    /// The end of it all, with how it ended.
    Status(Ending),
}

/// How a command ended, as the client is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ending {
    Success,
    ExitCode(i32),
    Failed(String),
}

impl Ending {
    /// As protocol version 4 and later tell it.
    ///
    /// upstream: apimachinery metav1.Status; streaming remotecommand (ExecInContainer's errors)
    pub(super) fn status_object(&self) -> String {
        match self {
            Self::Success => json!({ "metadata": {}, "status": "Success" }),
            Self::ExitCode(code) => json!({
                "metadata": {},
                "status": "Failure",
                "message":
                    format!("command terminated with non-zero exit code: exit status {code}"),
                "reason": "NonZeroExitCode",
                "details": { "causes": [{ "reason": "ExitCode", "message": code.to_string() }] },
            }),
            Self::Failed(why) => json!({
                "metadata": {},
                "status": "Failure",
                "message": format!("Internal error occurred: {why}"),
                "reason": "InternalError",
                "details": { "causes": [{ "message": why }] },
                "code": 500,
            }),
        }
        .to_string()
    }

    /// As older versions tell it; success says nothing.
    pub(super) fn plain(&self) -> Option<String> {
        match self {
            Self::Success => None,
            Self::ExitCode(code) => {
                Some(format!("command terminated with non-zero exit code: exit status {code}"))
            }
            Self::Failed(why) => Some(why.clone()),
        }
    }
}

/// A client of a remote command.
#[derive(Debug)]
pub(super) struct Session {
    /// Ends when the client is gone.
    pub(super) input: mpsc::Receiver<Input>,
    pub(super) output: mpsc::Sender<Output>,
}

/// A terminal's size as clients write it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Size {
    #[serde(default)]
    width: u16,
    #[serde(default)]
    height: u16,
}

/// Sizes come as JSON objects one after another.
pub(super) fn sizes(text: &[u8]) -> Vec<TerminalSize> {
    serde_json::Deserializer::from_slice(text)
        .into_iter::<Size>()
        .map_while(Result::ok)
        .map(|size| TerminalSize { columns: size.width.into(), rows: size.height.into() })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_one_after_another() {
        let found = sizes(b"{\"Width\":80,\"Height\":24}\n{\"Width\":100,\"Height\":30}");
        assert_eq!(found[1], TerminalSize { columns: 100, rows: 30 });
        assert_eq!(found.len(), 2);
        assert!(sizes(b"nonsense").is_empty() && sizes(b"").is_empty());
    }

    #[test]
    fn endings_say_what_clients_look_for() {
        assert_eq!(Ending::Success.status_object(), r#"{"metadata":{},"status":"Success"}"#);
        let seven: serde_json::Value =
            serde_json::from_str(&Ending::ExitCode(7).status_object()).unwrap();
        assert_eq!(seven["reason"], "NonZeroExitCode");
        assert_eq!(seven["details"]["causes"][0]["message"], "7");
        assert_eq!(Ending::Success.plain(), None);
        assert!(Ending::Failed("x".into()).status_object().contains("InternalError"));
    }
}
