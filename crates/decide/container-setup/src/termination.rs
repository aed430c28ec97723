//! The termination message of a container.
//!
//! Rule: the content of its message file; where that is empty, the container failed, and its policy
//! says so, the end of its log. Each source has a cap, and all containers of a pod share one. Only
//! the end of the log is needed for that ([`LOG_TAIL`]).
//!
//! upstream: pkg/kubelet/kuberuntime/kuberuntime_container.go, pkg/kubelet/status/status_manager.go

use pod_model::log_line;
use pod_model::pod::{Container, Pod};
use ports::runtime_objects::{ContainerRecord, ContainerState};

use crate::identity;

#[cfg(test)]
mod tests;

/// The maximum read from the end of the message file.
pub const FILE_CAP: usize = 4 * 1024;
/// The maximum used from the end of a log.
pub const LOG_CAP: usize = 2 * 1024;
const LOG_LINES: usize = 80;
/// The maximum of all messages of a pod together.
const POD_CAP: usize = 12 * 1024;

/// The maximum length of a log line's prefix (time, stream, tags).
const LONGEST_LINE_START: usize = 64;
/// The bytes to read from the end of a log: enough for all that can be used, with a partial line at
/// their beginning.
pub const LOG_TAIL: usize = LOG_CAP + 2 * LOG_LINES * LONGEST_LINE_START;

/// The sources of a message.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TerminationSources {
    /// The message file on the host; none where there is none.
    pub file: Option<String>,
    /// The log, where it is the fallback for an empty file.
    pub log: Option<String>,
}

/// The sources of an exited container's message.
pub fn sources(record: &ContainerRecord) -> TerminationSources {
    if record.state != ContainerState::Exited {
        return TerminationSources::default();
    }
    let parse_annotations = identity::parse_annotations(&record.annotations);
    let path = absolute(&parse_annotations.termination_message_path);
    let mount = record.mounts.iter().find(|mount| mount.container_path == path);
    // A container that could not be started has no log.
    let is_log_wanted = parse_annotations.termination_message_policy == "FallbackToLogsOnError"
        && record.exit_code != 0
        && record.reason != "ContainerCannotRun";
    TerminationSources {
        file: mount.filter(|_| path != "/").map(|mount| mount.host_path.clone()),
        log: is_log_wanted.then(|| record.log_path.clone()),
    }
}

fn absolute(path: &str) -> String {
    if path.starts_with('/') { path.to_owned() } else { format!("/{path}") }
}

/// The data read; an error as text.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TerminationReadings {
    /// The end of the message file; none where it does not exist.
    pub file: Option<Result<Vec<u8>, String>>,
    /// The last [`LOG_TAIL`] bytes of the log, where it is needed; whether that is all of it.
    pub log: Option<Result<(Vec<u8>, bool), String>>,
}

/// The termination message. The runtime's own message is in the record and comes before it.
pub fn read_termination_message(
    sources: &TerminationSources,
    readings: &TerminationReadings,
) -> String {
    match (&readings.file, &sources.file) {
        (Some(Ok(bytes)), _) if !bytes.is_empty() => {
            let from = bytes.len().saturating_sub(FILE_CAP);
            String::from_utf8_lossy(bytes.get(from..).unwrap_or_default()).into_owned()
        }
        (Some(Err(why)), Some(path)) => {
            format!("Error on reading termination log {path}: {why}")
        }
        _ => match &readings.log {
            None => String::new(),
            Some(Ok((bytes, is_whole))) => end_of_log(bytes, *is_whole),
            Some(Err(why)) => format!("Error on reading termination message from logs: {why}"),
        },
    }
}

/// The container's output at the end of a log: of the last lines, the last bytes.
pub fn end_of_log(tail: &[u8], is_whole: bool) -> String {
    let tail_lines = tail.strip_suffix(b"\n").unwrap_or(tail);
    let lines: Vec<&[u8]> = match tail_lines {
        b"" => Vec::new(),
        lines => lines.split(|byte| *byte == b'\n').collect(),
    };
    let from = lines.len().saturating_sub(LOG_LINES);
    let mut text = Vec::new();
    for (place, line) in lines.iter().enumerate().skip(from) {
        match log_line::parse(line) {
            Some(parsed) => {
                text.extend_from_slice(parsed.text);
                if !parsed.is_partial {
                    text.push(b'\n');
                }
            }
            // The end of a line whose beginning was not read.
            None if place == 0 && !is_whole => {
                text.extend_from_slice(line);
                text.push(b'\n');
            }
            None => {}
        }
    }
    let from = text.len().saturating_sub(LOG_CAP);
    String::from_utf8_lossy(text.get(from..).unwrap_or_default()).into_owned()
}

/// The cap for each container of a pod.
pub fn cap_of_pod(pod: &Pod) -> usize {
    POD_CAP.checked_div(pod.spec.all_containers().count()).unwrap_or(POD_CAP)
}

/// A message within a cap, cut at a whole character.
pub fn capped(mut message: String, cap: usize) -> String {
    message.truncate(message.floor_char_boundary(cap));
    message
}

/// The path to which the container writes its message, absolute in its own mount namespace; none
/// where it has none.
pub fn container_path(container: &Container) -> Option<String> {
    let path = &*container.termination_message_path;
    (!path.is_empty()).then(|| absolute(path))
}
