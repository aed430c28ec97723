//! The termination message of a container.
//!
//! Rule: the message is the content of the message file. If that is empty, the container failed
//! and its policy is `FallbackToLogsOnError`, the message is the end of the container's log. Each
//! source has a cap, and the messages of a pod's containers together have another. Only the end of
//! the log is read ([`LOG_TAIL`]).
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
/// The maximum of all messages of a pod's containers together.
const POD_CAP: usize = 12 * 1024;

/// The maximum length of a log line's prefix (time, stream, tags).
const MAX_LINE_PREFIX: usize = 64;
/// The bytes to read from the end of a log: enough for all that can be used, with a partial line at
/// their beginning.
pub const LOG_TAIL: usize = LOG_CAP + 2 * LOG_LINES * MAX_LINE_PREFIX;

/// The sources of a message.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TerminationSources {
    /// The path of the message file on the host; `None` if the container has none mounted.
    pub file: Option<String>,
    /// The path of the log, if it is the fallback for an empty message file.
    pub log: Option<String>,
}

/// The sources of an exited container's message.
pub fn sources(record: &ContainerRecord) -> TerminationSources {
    if record.state != ContainerState::Exited {
        return TerminationSources::default();
    }
    let annotations = identity::parse_annotations(&record.annotations);
    let path = absolute(&annotations.termination_message_path);
    let mount = record.mounts.iter().find(|mount| mount.container_path == path);
    // A container that could not be started has no log.
    let is_log_wanted = annotations.termination_message_policy == "FallbackToLogsOnError"
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

/// What was read from the sources; a read error as text.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TerminationReadings {
    /// The end of the message file; `None` if it does not exist.
    pub file: Option<Result<Vec<u8>, String>>,
    /// The last [`LOG_TAIL`] bytes of the log, if it is needed, and whether that is the whole log.
    pub log: Option<Result<(Vec<u8>, bool), String>>,
}

/// The termination message from the file or the log. The runtime's own message is in the record and
/// comes before it.
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

/// The container's output at the end of a log: at most the last `LOG_LINES` lines, and of those at
/// most the last [`LOG_CAP`] bytes.
pub fn end_of_log(tail: &[u8], is_whole: bool) -> String {
    let tail_lines = tail.strip_suffix(b"\n").unwrap_or(tail);
    let lines: Vec<&[u8]> = match tail_lines {
        b"" => Vec::new(),
        lines => lines.split(|byte| *byte == b'\n').collect(),
    };
    let from = lines.len().saturating_sub(LOG_LINES);
    let mut text = Vec::new();
    for (index, line) in lines.iter().enumerate().skip(from) {
        match log_line::parse(line) {
            Some(parsed) => {
                text.extend_from_slice(parsed.text);
                if !parsed.is_partial {
                    text.push(b'\n');
                }
            }
            // The end of a line whose beginning was not read.
            None if index == 0 && !is_whole => {
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

/// The absolute path, in the container's mount namespace, to which it writes its message; `None` if
/// it has none.
pub fn container_path(container: &Container) -> Option<String> {
    let path = &*container.termination_message_path;
    (!path.is_empty()).then(|| absolute(path))
}
