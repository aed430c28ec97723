//! What is shown of the pods at this terminal: containers' output, and events.
//!
//! Rule: output comes from the container's log, so that nothing is lost however late it is read;
//! only a container with a terminal is attached to directly, because typed characters must be
//! echoed at once.

use crate::pod_streams::{PodStream, SessionStreams, join};
use crate::terminal;
use container_logs::{LogEntry, LogSelection, follow};
use cri_client::CriClient;
use pod_model::log_line::LogStream;
use ports::local_api::{LocalApi, LocalContainer, LocalPod};
use ports::local_runtime::{LocalRuntime, LocalStreamRequest};
use ports::{EventSink, PodEventRecord};
use std::io::Write;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OutputMode {
    Nothing,
    /// Each line with the container's name before it.
    Prefixed,
    /// As it was written: there is one container.
    Plain,
    /// As it was written, and standard input goes to the container.
    PlainWithInput,
    /// The container has a terminal; this one becomes it. With or without input.
    Terminal {
        stdin: bool,
    },
}

/// A container that is shown, with the fields that are needed while it runs. The pod itself may be
/// large.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Shown {
    pod_uid: String,
    /// `pod/container`.
    name: String,
    id: String,
    log_path: String,
}

impl Shown {
    pub(super) fn of(pod: &LocalPod, container: &LocalContainer) -> Self {
        Self {
            pod_uid: pod.uid.clone(),
            name: format!("{}/{}", pod.name, container.name),
            id: container.id.clone(),
            log_path: container.log_path.clone(),
        }
    }
}

/// Shows one container until it has ended.
pub(super) async fn container(
    api: Arc<dyn LocalApi>,
    client: Arc<CriClient>,
    container: Shown,
    show: OutputMode,
) {
    match show {
        OutputMode::Nothing => {}
        OutputMode::Prefixed => {
            pass_on(&api, &container, &format!("{} | ", container.name)).await;
        }
        OutputMode::Plain => pass_on(&api, &container, "").await,
        OutputMode::PlainWithInput => {
            let session_streams =
                SessionStreams { stdin: true, stdout: false, stderr: false, tty: false };
            // The log ends with the container; input after that has no reader.
            tokio::select! {
                () = pass_on(&api, &container, "") => {}
                () = input_until_refused(&client, &container.id, session_streams) => {}
            }
        }
        OutputMode::Terminal { stdin } => {
            let session_streams = SessionStreams { stdin, stdout: true, stderr: false, tty: true };
            let had_output = attach(&client, &container.id, session_streams).await.unwrap_or(false);
            // It ended before it could be attached to: its log has the output.
            if !had_output {
                pass_on(&api, &container, "").await;
            }
        }
    }
}

/// Whether any output came.
async fn attach(
    client: &CriClient,
    container: &str,
    session_streams: SessionStreams,
) -> anyhow::Result<bool> {
    let (container, command) = (container.to_owned(), session_streams.command(Vec::new()));
    let offer = client.stream(LocalStreamRequest::Attach { container, command }).await?;
    Ok(join(PodStream::of(offer)?, session_streams).await?.had_output)
}

async fn input_until_refused(client: &CriClient, container: &str, session_streams: SessionStreams) {
    if let Err(error) = attach(client, container, session_streams).await {
        tracing::debug!(err = format!("{error:#}"), "Standard input is not passed on");
    }
    // The end of the input is not the end of the container.
    std::future::pending::<()>().await;
}

/// Prints the output of one container until it has ended.
async fn pass_on(api: &Arc<dyn LocalApi>, container: &Shown, prefix: &str) {
    let mut is_in_line = false;
    let mut take = |entry: &LogEntry| {
        let mut bytes = Vec::with_capacity(entry.text.len() + prefix.len() + 1);
        if !is_in_line {
            bytes.extend_from_slice(prefix.as_bytes());
        }
        bytes.extend_from_slice(&entry.text);
        if !entry.is_partial {
            bytes.push(b'\n');
        }
        is_in_line = entry.is_partial;
        let written = match entry.stream {
            LogStream::Stdout => {
                let mut output = std::io::stdout().lock();
                output.write_all(&bytes).and_then(|()| output.flush())
            }
            LogStream::Stderr => std::io::stderr().lock().write_all(&bytes),
        };
        if written.is_err() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let path = Path::new(&container.log_path);
    let ended = has_ended(&**api, &container.pod_uid, &container.id);
    if let Err(error) = follow(path, &LogSelection::default(), &mut take, ended).await {
        terminal::print_error(&format!("{prefix}{error}"));
    }
}

async fn has_ended(api: &dyn LocalApi, uid: &str, container: &str) {
    let mut version = 0;
    loop {
        let Some(detail) = api.pod(uid) else { return };
        let here = detail.pod.containers.iter().find(|one| one.id == container);
        if here.is_none_or(|one| one.state == "exited") {
            return;
        }
        version = api.changed(version).await;
    }
}

/// Prints the pods' events: what takes time, and what goes wrong.
pub(super) struct EventPrinter {
    /// Warnings only.
    pub(super) is_quiet: bool,
}

impl EventSink for EventPrinter {
    fn emit(&self, occurrence: &PodEventRecord) {
        // Without a cluster there is no cluster DNS; the pod gets this machine's instead.
        let is_expected = occurrence.reason == "MissingClusterDNS";
        let is_worth_printing =
            matches!(occurrence.reason.as_str(), "Pulling" | "Started" | "Killing");
        if is_expected || !(occurrence.warning || (is_worth_printing && !self.is_quiet)) {
            return;
        }
        let mark = if occurrence.warning { "warning: " } else { "" };
        let container = occurrence.field_path.as_deref().and_then(container_of);
        let name = container.map_or_else(
            || occurrence.name.clone(),
            |container| format!("{}/{container}", occurrence.name),
        );
        terminal::print_error(&format!("{mark}{name}: {}", occurrence.message));
    }
}

/// `web` of `spec.containers{web}`.
fn container_of(field_path: &str) -> Option<&str> {
    field_path.split_once('{')?.1.strip_suffix('}')
}
