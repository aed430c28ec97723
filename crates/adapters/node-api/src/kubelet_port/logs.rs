//! The logs of containers on the kubelet's port.
//!
//! Rule: codes and texts are upstream's (pkg/kubelet/server/server.go getContainerLogs,
//! pkg/kubelet/kubelet_pods.go GetKubeletContainerLogs), also where an error comes as text after a
//! 200. A client that does not read holds its own slot and nothing else. A followed log ends with
//! its container.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http_server::{Body, BodySender, HandlerResponse, WorkPermits};
use hyper::Response;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use ports::kubelet_endpoint::container_log_reader::{ContainerLogReader, OpenContainerLog};
use ports::local_api::LocalPod;
use ports::{ApiTime, LocalApi};
use tokio::time::timeout;

use super::log_request::LogRequest;
use super::log_status::container_of_log;
use super::log_text::LogText;
use super::pods::has_container;
use super::reply::{KubeletReply, TEXT};
use super::route::ContainerPath;

/// Logs that are read or followed at the same time.
const LOG_PERMITS: usize = 256;
/// For the whole of a log. upstream: the server's WriteTimeout
const LOG_TIME: Duration = Duration::from_hours(4);
/// A followed log's container is looked up again at the latest after this time.
const CHECK_PERIOD: Duration = Duration::from_secs(10);

/// Serves logs.
pub(super) struct PortLogs {
    reader: Option<Arc<dyn ContainerLogReader>>,
    permits: WorkPermits,
}

impl PortLogs {
    pub(super) fn new(reader: Option<Arc<dyn ContainerLogReader>>) -> Self {
        Self { reader, permits: WorkPermits::new(LOG_PERMITS) }
    }

    pub(super) async fn answer(
        &self,
        local: &Arc<dyn LocalApi>,
        path: ContainerPath<'_>,
        query: &str,
    ) -> Result<HandlerResponse, KubeletReply> {
        let request = LogRequest::parse(query, now())?;
        let ContainerPath { pod: pod_path, container } = path;
        let pod = local.pod_by_name(pod_path.namespace, pod_path.name, pod_path.uid);
        let pod = pod.ok_or_else(|| {
            KubeletReply::text(404, format!("pod {:?} does not exist", pod_path.name))
        })?;
        if !has_container(&pod.object, container) {
            let text = format!("container {container:?} not found in pod {:?}", pod_path.name);
            return Err(KubeletReply::text(404, text));
        }
        request.check_stream()?;
        let id = container_of_log(&pod.object, &pod.name, container, request.previous);
        let id = id.map_err(|text| KubeletReply::text(400, text))?.to_owned();
        let permit = self.permits.try_acquire().ok_or_else(KubeletReply::too_many)?;
        // From here on upstream has sent its 200.
        let late =
            |text: String| Ok(HandlerResponse::new(KubeletReply::text(200, text).into_response()));
        let (Some(path), Some(reader)) = (log_path(&pod, &id), &self.reader) else {
            return late(format!("unable to retrieve container logs for {id}"));
        };
        let log = match reader.open(path, request.selection).await {
            Ok(log) => log,
            Err(error) => return late(error.to_string()),
        };
        let (sender, body) = Body::parts();
        let follows = request.selection.follow.then(|| ContainerRun {
            local: local.clone(),
            pod: pod.uid.clone(),
            container: id,
        });
        let text = LogText::new(request.timestamps, request.limit_bytes);
        // Ends with the connection, which drops the body.
        tokio::spawn(LogTransfer { log, text, sender }.run(follows));
        let mut response = Response::new(body);
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(TEXT));
        Ok(HandlerResponse::new(response).within(LOG_TIME).with_permit(permit))
    }
}

fn log_path<'a>(pod: &'a LocalPod, id: &str) -> Option<&'a str> {
    let container = pod.containers.iter().find(|container| container.id == id)?;
    Some(container.log_path.as_str()).filter(|path| !path.is_empty())
}

fn now() -> ApiTime {
    let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    ApiTime::from_nanos(i64::try_from(since_epoch.as_nanos()).unwrap_or(i64::MAX))
}

/// A container whose end ends its log.
struct ContainerRun {
    local: Arc<dyn LocalApi>,
    pod: String,
    container: String,
}

impl ContainerRun {
    async fn ended(self) {
        let mut version = 0;
        loop {
            let containers = self.local.containers(&self.pod);
            let found = containers.iter().find(|container| container.id == self.container);
            if found.is_none_or(|container| container.state != "running") {
                return;
            }
            if let Ok(newer) = timeout(CHECK_PERIOD, self.local.changed(version)).await {
                version = newer;
            }
        }
    }
}

/// Passes a log on to one client.
struct LogTransfer {
    log: Box<dyn OpenContainerLog>,
    text: LogText,
    sender: BodySender,
}

impl LogTransfer {
    async fn run(mut self, follows: Option<ContainerRun>) {
        let mut is_over = follows.is_none();
        let mut ended = Box::pin(async {
            if let Some(run) = follows {
                run.ended().await;
            }
        });
        loop {
            let lines = match self.log.read().await {
                Ok(lines) => lines,
                Err(error) => return self.fail(error.to_string()).await,
            };
            if !lines.is_empty() {
                let text = self.text.of(&lines);
                if !self.sender.send(text.into()).await || self.text.is_full() {
                    return;
                }
                continue;
            }
            if is_over {
                return;
            }
            let changed = tokio::select! {
                () = &mut ended => {
                    is_over = true;
                    Ok(())
                }
                changed = self.log.changed() => changed,
                () = self.sender.closed() => return,
            };
            if let Err(error) = changed {
                return self.fail(error.to_string()).await;
            }
        }
    }

    /// Errors are shown to the client as text, as upstream does.
    async fn fail(self, text: String) {
        let _ = self.sender.send(text.into()).await;
    }
}
