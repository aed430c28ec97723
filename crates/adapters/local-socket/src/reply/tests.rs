//! Every request and its answer.

use super::*;
use ports::PortFuture;
use ports::local_api::{LocalNode, LocalPod, LocalPodDetail, LocalPods, LocalStopped};
use ports::local_runtime::{Answer, LocalImages, LocalProcess, LocalStream, LocalUsages};
use serde_json::{Value, json};
use std::os::fd::OwnedFd;
use tokio::io::AsyncWriteExt as _;
use tokio::net::UnixStream;

pub(crate) struct OnePod;

impl LocalApi for OnePod {
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

    fn stop<'a>(&'a self, uid: &'a str) -> PortFuture<'a, Result<LocalStopped, LocalRefusal>> {
        Box::pin(async move {
            match uid {
                "u" => Ok(LocalStopped { uid: uid.to_owned() }),
                _ => Err(LocalRefusal::OfManifest {
                    message: "remove /m/a".to_owned(),
                    manifest: "/m/a".to_owned(),
                }),
            }
        })
    }
}

pub(crate) struct OneRuntime;

impl LocalRuntime for OneRuntime {
    fn address(&self, wish: StreamWish) -> Answer<'_, LocalStream> {
        Box::pin(async { Ok(LocalStream { url: words(wish)?, runtime: "r".to_owned() }) })
    }
    /// Ports have an address; a command prints its words and then its input, to the end.
    fn stream(&self, wish: StreamWish) -> Answer<'_, StreamOffer> {
        Box::pin(async {
            if let StreamWish::Forward { .. } = wish {
                return Ok(StreamOffer::Address(self.address(wish).await?));
            }
            let words = words(wish)?;
            Ok(StreamOffer::Here(Box::new(move |connection, early| {
                Box::pin(echo(connection, format!("{words}: ").into_bytes(), early))
            })))
        })
    }
    fn process<'a>(&'a self, _: &'a str) -> Answer<'a, LocalProcess> {
        Box::pin(async { Ok(LocalProcess { pid: 7 }) })
    }
    fn usage(&self) -> Answer<'_, LocalUsages> {
        Box::pin(async { Ok(LocalUsages::default()) })
    }
    fn images(&self) -> Answer<'_, LocalImages> {
        Box::pin(async { Ok(LocalImages::default()) })
    }
    fn remove_image<'a>(&'a self, name: &'a str) -> Answer<'a, LocalImageName> {
        Box::pin(async move { Ok(LocalImageName { name: name.to_owned() }) })
    }
}

fn words(wish: StreamWish) -> Result<String, LocalRefusal> {
    match wish {
        StreamWish::Exec { container, command } => {
            Ok(format!("exec {container} {} {}", command.command.join(" "), command.tty))
        }
        StreamWish::Attach { .. } => {
            Err(LocalRefusal::NotNow { message: "it does not run".to_owned() })
        }
        StreamWish::Forward { pod } => Ok(format!("forward {pod}")),
    }
}

async fn echo(connection: OwnedFd, words: Vec<u8>, early: Vec<u8>) {
    let connection = std::os::unix::net::UnixStream::from(connection);
    let mut connection = UnixStream::from_std(connection).unwrap();
    let (mut reading, mut writing) = connection.split();
    writing.write_all(&words).await.unwrap();
    writing.write_all(&early).await.unwrap();
    let _ = tokio::io::copy(&mut reading, &mut writing).await;
}

#[tokio::test]
async fn paths_and_methods_get_their_answers() {
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
    let desk = Desk { api: Arc::new(OnePod), runtime: Some(Arc::new(OneRuntime)) };
    for (method, path, body, status, pointer, expected) in rows {
        let reply = desk.answer(&method.parse().unwrap(), path, body.as_bytes()).await;
        assert_eq!(reply.status.as_u16(), status, "{method} {path}");
        let body: Value = serde_json::from_slice(&reply.body).unwrap();
        assert_eq!(body.pointer(pointer), Some(&expected), "{method} {path}: {body}");
    }
    let alone = Desk { api: Arc::new(OnePod), runtime: None };
    let reply = alone.answer(&Method::GET, "/v1/usage", b"").await;
    assert_eq!(reply.status.as_u16(), 503);
}

#[tokio::test]
async fn metrics_are_text_and_only_read() {
    let desk = Desk { api: Arc::new(OnePod), runtime: None };
    let told = desk.answer(&Method::GET, "/metrics", &[]).await;
    let text = Reply {
        status: StatusCode::OK,
        content_type: "text/plain; version=0.0.4; charset=utf-8",
        body: b"counted 1\n".to_vec(),
    };
    assert_eq!(told, text);
    let told = desk.answer(&Method::GET, "/metrics/probes", &[]).await;
    assert_eq!(told, Reply { body: b"tried 2\n".to_vec(), ..text });
    for path in ["/metrics", "/metrics/probes"] {
        let refused = desk.answer(&Method::POST, path, &[]).await;
        assert_eq!(refused.status, StatusCode::METHOD_NOT_ALLOWED, "{path}");
    }
    let nothing = desk.answer(&Method::GET, "/metrics/cadvisor", &[]).await;
    assert_eq!(nothing.status, StatusCode::NOT_FOUND);
}
