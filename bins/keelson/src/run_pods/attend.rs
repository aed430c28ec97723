//! Attends to the pods while they run: passes on what they write, tells what happens to them,
//! notices their end; and answers those who ask over the local socket.
//!
//! Rule: looks again when the agent says that something changed, never by the clock. What belongs
//! to containers goes to standard output, with the container's name before each line; what is said
//! about them goes to standard error.

use crate::terminal;
use container_logs::{Entry, Selection, follow};
use local_socket::LocalSocket;
use pod_model::log_line::LogStream;
use ports::local_api::{LocalApi, LocalContainer, LocalEndpoint, LocalPod};
use ports::{EventSink, PodOccurrence, PortFuture};
use std::collections::BTreeSet;
use std::io::Write;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use tokio::sync::{Mutex, watch};
use tokio::task::JoinSet;

/// How the pods ended: the exit code of this program.
pub(super) type End = watch::Sender<Option<u8>>;

pub(super) struct Attendant {
    /// Set to false when the pods are no longer wanted.
    pub(super) wanted: watch::Sender<bool>,
    pub(super) ended: End,
    /// The agent may start its tasks anew; what has been shown stays shown.
    pub(super) shown: Mutex<Shown>,
    /// For `keelson ps` and the like.
    pub(super) socket: LocalSocket,
}

#[derive(Default)]
pub(super) struct Shown {
    followed: BTreeSet<String>,
    /// What will be answered when all pods are gone.
    code: Option<u8>,
}

impl LocalEndpoint for Attendant {
    fn address(&self) -> String {
        "this terminal".to_owned()
    }

    fn serve(&self, api: Arc<dyn LocalApi>) -> PortFuture<'_, String> {
        Box::pin(async move {
            let others = async {
                let why = self.socket.serve(api.clone()).await;
                terminal::print_error(&format!("warning: nobody else can ask: {why}"));
                std::future::pending::<()>().await;
            };
            tokio::select! {
                () = others => {}
                () = self.attend(api.clone()) => {}
            }
            // Ended: whoever waits for it ends this task too.
            std::future::pending().await
        })
    }
}

impl Attendant {
    async fn attend(&self, api: Arc<dyn LocalApi>) {
        let mut shown = self.shown.lock().await;
        let mut followers = JoinSet::new();
        let mut version = 0;
        loop {
            version = api.changed(version).await;
            let pods = api.pods();
            for pod in &pods.pods {
                for container in &pod.containers {
                    if container.started_at > 0 && shown.followed.insert(container.id.clone()) {
                        let (pod, container) = (pod.clone(), container.clone());
                        followers.spawn(pass_on(api.clone(), pod, container));
                    }
                }
            }
            if shown.code.is_none() {
                shown.code = exit_code(&pods.pods);
            }
            if shown.code.is_some() {
                self.wanted.send_replace(false);
            }
            let is_wanted = *self.wanted.borrow();
            if !is_wanted && pods.node.all_sources_have_spoken && pods.pods.is_empty() {
                while followers.join_next().await.is_some() {}
                self.ended.send_replace(Some(shown.code.unwrap_or(0)));
                return;
            }
        }
    }
}

/// Tells what happens to the pods: what takes time, and what goes wrong.
pub(super) struct Teller;

impl EventSink for Teller {
    fn tell(&self, occurrence: &PodOccurrence) {
        // Without a cluster there is no cluster DNS; the pod gets this machine's instead.
        let is_expected = occurrence.reason == "MissingClusterDNS";
        let is_news = matches!(occurrence.reason.as_str(), "Pulling" | "Started" | "Killing");
        if is_expected || !(occurrence.warning || is_news) {
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

/// When every pod has ended by itself: how.
fn exit_code(pods: &[LocalPod]) -> Option<u8> {
    let phase = |pod: &LocalPod| pod.object["status"]["phase"].as_str().unwrap_or("").to_owned();
    let has_ended = |pod: &LocalPod| matches!(phase(pod).as_str(), "Succeeded" | "Failed");
    if pods.is_empty() || !pods.iter().all(has_ended) {
        return None;
    }
    let failed = pods.iter().find(|pod| phase(pod) == "Failed");
    Some(failed.map_or(0, |pod| {
        let codes = ["initContainerStatuses", "containerStatuses"].into_iter().flat_map(|kind| {
            pod.object["status"][kind].as_array().into_iter().flatten().filter_map(|status| {
                status["state"]["terminated"]["exitCode"].as_i64().filter(|code| *code != 0)
            })
        });
        codes.into_iter().next().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
    }))
}

/// Passes on what one container writes, until it has ended.
async fn pass_on(api: Arc<dyn LocalApi>, pod: LocalPod, container: LocalContainer) {
    let prefix = format!("{}/{} | ", pod.name, container.name);
    let mut is_in_line = false;
    let mut take = |entry: &Entry| {
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
    let ended = has_ended(&*api, &pod.uid, &container.id);
    if let Err(error) = follow(path, &Selection::default(), &mut take, ended).await {
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
