//! Every request and its answer.

use super::*;
use ports::PortFuture;
use ports::local_api::{LocalNode, LocalPod, LocalPodDetail, LocalPods, LocalStopAccepted};
use ports::local_runtime::{
    LocalImages, LocalProcess, LocalRuntimeResult, LocalStream, LocalUsages,
};
use serde_json::{Value, json};
use std::os::fd::OwnedFd;
use tokio::io::AsyncWriteExt as _;
use tokio::net::UnixStream;

pub(crate) struct OnePodApi;

impl LocalApi for OnePodApi {
    fn node(&self) -> LocalNode {
        LocalNode { node_name: "n".to_owned(), ..LocalNode::default() }
    }
    fn pods(&self) -> LocalPods {
        LocalPods {
            node: self.node(),
            pods: self.pod("u").map(|each| each.pod).into_iter().collect(),
        }
    }
    fn pod(&self, uid: &str) -> Option<LocalPodDetail> {
        let pod =
            LocalPod { uid: uid.to_owned(), object: json!({"kind": "Pod"}), ..LocalPod::default() };
        (uid == "u").then(|| LocalPodDetail { pod, ..LocalPodDetail::default() })
    }
    fn changed(&self, since: u64) -> PortFuture<'_, u64> {
        // After that revision nothing changes any more.
        Box::pin(async move {
            match since {
                77 => std::future::pending().await,
                since => since + 1,
            }
        })
    }
    fn metrics(&self) -> String {
        "counted 1\n".to_owned()
    }
    fn probe_metrics(&self) -> String {
        "tried 2\n".to_owned()
    }

    fn stop<'a>(
        &'a self,
        uid: &'a str,
    ) -> PortFuture<'a, Result<LocalStopAccepted, LocalApiError>> {
        Box::pin(async move {
            match uid {
                "u" => Ok(LocalStopAccepted { uid: uid.to_owned() }),
                _ => Err(LocalApiError::OwnedByManifest {
                    message: "remove /m/a".to_owned(),
                    manifest: "/m/a".to_owned(),
                }),
            }
        })
    }
}

pub(crate) struct StreamRuntime;

impl LocalRuntime for StreamRuntime {
    fn address(&self, stream_request: LocalStreamRequest) -> LocalRuntimeResult<'_, LocalStream> {
        Box::pin(async {
            Ok(LocalStream { url: describe_stream(stream_request)?, runtime: "r".to_owned() })
        })
    }
    /// Ports have an address; a command prints its words and then its input, to the end.
    fn stream(&self, stream_request: LocalStreamRequest) -> LocalRuntimeResult<'_, StreamEndpoint> {
        Box::pin(async {
            if let LocalStreamRequest::Forward { .. } = stream_request {
                return Ok(StreamEndpoint::Address(self.address(stream_request).await?));
            }
            let describe_stream = describe_stream(stream_request)?;
            Ok(StreamEndpoint::Here(Box::new(move |connection, early| {
                Box::pin(echo(connection, format!("{describe_stream}: ").into_bytes(), early))
            })))
        })
    }
    fn process<'a>(&'a self, _: &'a str) -> LocalRuntimeResult<'a, LocalProcess> {
        Box::pin(async { Ok(LocalProcess { pid: 7 }) })
    }
    fn usage(&self) -> LocalRuntimeResult<'_, LocalUsages> {
        Box::pin(async { Ok(LocalUsages::default()) })
    }
    fn images(&self) -> LocalRuntimeResult<'_, LocalImages> {
        Box::pin(async { Ok(LocalImages::default()) })
    }
    fn remove_image<'a>(&'a self, name: &'a str) -> LocalRuntimeResult<'a, LocalImageName> {
        Box::pin(async move { Ok(LocalImageName { name: name.to_owned() }) })
    }
}

fn describe_stream(stream_request: LocalStreamRequest) -> Result<String, LocalApiError> {
    match stream_request {
        LocalStreamRequest::Exec { container, command } => {
            Ok(format!("exec {container} {} {}", command.command.join(" "), command.tty))
        }
        LocalStreamRequest::Attach { .. } => {
            Err(LocalApiError::TemporarilyUnavailable { message: "it does not run".to_owned() })
        }
        LocalStreamRequest::Forward { pod } => Ok(format!("forward {pod}")),
    }
}

async fn echo(connection: OwnedFd, describe_stream: Vec<u8>, early: Vec<u8>) {
    let connection = std::os::unix::net::UnixStream::from(connection);
    let mut connection = UnixStream::from_std(connection).unwrap();
    let (mut reading, mut writing) = connection.split();
    writing.write_all(&describe_stream).await.unwrap();
    writing.write_all(&early).await.unwrap();
    let _ = tokio::io::copy(&mut reading, &mut writing).await;
}

#[tokio::test]
async fn each_path_and_method_gets_its_reply() {
    let exec = r#"{"command": ["a", "b"], "tty": true}"#;
    let rows = [
        ("GET", "/v1/node", "", 200, "/nodeName", json!("n")),
        ("GET", "/v1/pods", "", 200, "/pods/0/object/kind", json!("Pod")),
        ("GET", "/v1/pods/u", "", 200, "/pod/uid", json!("u")),
        ("GET", "/v1/pods/x", "", 404, "/refusal", json!("notFound")),
        ("GET", "/v1/changes/4", "", 200, "/version", json!(5)),
        ("GET", "/v1/changes/x", "", 404, "/refusal", json!("notFound")),
        ("POST", "/v1/pods/u/stop", "", 202, "/uid", json!("u")),
        ("POST", "/v1/pods/m/stop", "", 409, "/manifest", json!("/m/a")),
        ("POST", "/v1/pods", "{}", 503, "/refusal", json!("notNow")),
        ("POST", "/v1/pods", "[", 400, "/refusal", json!("notFound")),
        ("POST", "/v1/containers/c/exec", exec, 200, "/url", json!("exec c a b true")),
        ("POST", "/v1/containers/c/exec", "x", 400, "/refusal", json!("notFound")),
        ("POST", "/v1/containers/c/attach", "{}", 503, "/message", json!("it does not run")),
        ("POST", "/v1/pods/u/forward", "", 200, "/url", json!("forward u")),
        ("GET", "/v1/containers/c/process", "", 200, "/pid", json!(7)),
        ("GET", "/v1/usage", "", 200, "/containers", json!([])),
        ("GET", "/v1/images", "", 200, "/images", json!([])),
        ("POST", "/v1/images/remove", r#"{"name": "i"}"#, 200, "/name", json!("i")),
        ("GET", "/v1/pods/u/stop", "", 405, "/refusal", json!("notFound")),
        ("GET", "/v1/containers/c/exec", "", 405, "/refusal", json!("notFound")),
        ("DELETE", "/v1/pods", "", 405, "/refusal", json!("notFound")),
        ("GET", "/", "", 404, "/refusal", json!("notFound")),
        ("GET", "/v1/pods/u/stop/x", "", 404, "/refusal", json!("notFound")),
        ("POST", "/v2/pods", "", 404, "/refusal", json!("notFound")),
    ];
    let router = RequestRouter { api: Arc::new(OnePodApi), runtime: Some(Arc::new(StreamRuntime)) };
    for (method, path, body, status, pointer, expected) in rows {
        let reply = router.answer(&method.parse().unwrap(), path, body.as_bytes()).await;
        assert_eq!(reply.status.as_u16(), status, "{method} {path}");
        let body: Value = serde_json::from_slice(&reply.body).unwrap();
        assert_eq!(body.pointer(pointer), Some(&expected), "{method} {path}: {body}");
    }
    let alone = RequestRouter { api: Arc::new(OnePodApi), runtime: None };
    let reply = alone.answer(&Method::GET, "/v1/usage", b"").await;
    assert_eq!(reply.status.as_u16(), 503);
}

#[tokio::test]
async fn metrics_are_text_and_read_only() {
    let router = RequestRouter { api: Arc::new(OnePodApi), runtime: None };
    let replies = router.answer(&Method::GET, "/metrics", &[]).await;
    let text = SocketReply {
        status: StatusCode::OK,
        content_type: "text/plain; version=0.0.4; charset=utf-8",
        body: b"counted 1\n".to_vec(),
    };
    assert_eq!(replies, text);
    let replies = router.answer(&Method::GET, "/metrics/probes", &[]).await;
    assert_eq!(replies, SocketReply { body: b"tried 2\n".to_vec(), ..text });
    for path in ["/metrics", "/metrics/probes"] {
        let refused = router.answer(&Method::POST, path, &[]).await;
        assert_eq!(refused.status, StatusCode::METHOD_NOT_ALLOWED, "{path}");
    }
    let nothing = router.answer(&Method::GET, "/metrics/cadvisor", &[]).await;
    assert_eq!(nothing.status, StatusCode::NOT_FOUND);
}
