//! Every request and its answer.

use super::*;
use ports::PortFuture;
use ports::local_api::{LocalNode, LocalPod, LocalPodDetail, LocalPods, LocalStopped};
use serde_json::{Value, json};

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
        Box::pin(std::future::ready(since + 1))
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

#[tokio::test]
async fn paths_and_methods_get_their_answers() {
    let rows = [
        ("GET", "/v1/node", 200, "/nodeName", json!("n")),
        ("GET", "/v1/pods", 200, "/pods/0/object/kind", json!("Pod")),
        ("GET", "/v1/pods/u", 200, "/pod/uid", json!("u")),
        ("GET", "/v1/pods/x", 404, "/refusal", json!("notFound")),
        ("POST", "/v1/pods/u/stop", 202, "/uid", json!("u")),
        ("POST", "/v1/pods/m/stop", 409, "/manifest", json!("/m/a")),
        ("GET", "/v1/pods/u/stop", 405, "/refusal", json!("notFound")),
        ("POST", "/v1/pods", 405, "/refusal", json!("notFound")),
        ("GET", "/", 404, "/refusal", json!("notFound")),
        ("GET", "/v1/pods/u/stop/x", 404, "/refusal", json!("notFound")),
        ("GET", "/v2/pods", 404, "/refusal", json!("notFound")),
    ];
    for (method, path, status, pointer, expected) in rows {
        let reply = answer(&OnePod, &method.parse().unwrap(), path).await;
        assert_eq!(reply.status.as_u16(), status, "{method} {path}");
        let body: Value = serde_json::from_slice(&reply.body).unwrap();
        assert_eq!(body.pointer(pointer), Some(&expected), "{method} {path}: {body}");
    }
}
