//! Single requests: which are retried, and how a bad response ends.

use std::time::{Duration, Instant};

use bytes::Bytes;
use ports::cluster_api::{Deletion, ObjectPath, Patch, PatchKind, StoredObject};
use ports::{ClusterApi, ClusterApiError};

use super::peer::{BodyChunk, ScriptedApiServer, ScriptedReply, json, options, silence, stream};
use crate::access::{ExecPlugin, TokenSource};
use crate::client::{ApiClient, ClientOptions};
use crate::{RateLimit, Secret};

const NODE: &str = r#"{"metadata":{"name":"n","uid":"u","resourceVersion":"7"}}"#;

fn node() -> ObjectPath {
    ObjectPath::node("n")
}

fn patch() -> Patch {
    Patch { kind: PatchKind::Merge, subresource: None, body: b"{}".to_vec() }
}

fn client(peer: &ScriptedApiServer, change: impl FnOnce(&mut ClientOptions)) -> ApiClient {
    let mut options = options();
    change(&mut options);
    ApiClient::new(peer.access(), options).expect("a client")
}

#[tokio::test]
async fn an_object_is_read_and_patched() {
    let peer = ScriptedApiServer::plain(|_, _| json(200, NODE)).await;
    let client: Box<dyn ClusterApi> = Box::new(peer.client());
    let stored = client.read(&node()).await.expect("a node");
    assert_eq!((stored.uid.as_str(), stored.resource_version.as_str()), ("u", "7"));
    client.patch(&node(), patch()).await.expect("a node");
    let requests = peer.requests();
    assert_eq!(requests[0].target, "/api/v1/nodes/n");
    assert_eq!(
        (requests[1].method.as_str(), requests[1].content_type.as_str()),
        ("PATCH", "application/merge-patch+json")
    );
    assert_eq!(peer.connections(), 1);
}

#[tokio::test]
async fn subresources_are_created_and_patched() {
    let status = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success"}"#;
    let token = r#"{"kind":"TokenRequest","metadata":{"name":"s"},"status":{"token":"hunter2"}}"#;
    let busy = r#"{"kind":"Status","reason":"TooManyRequests","message":"a budget",
        "details":{"retryAfterSeconds":60}}"#;
    let peer = ScriptedApiServer::plain(move |_, request| match request.target.as_str() {
        "/api/v1/namespaces/x/serviceaccounts/s/token?fieldManager=keelson" => json(201, token),
        "/api/v1/namespaces/x/pods/guarded/eviction?fieldManager=keelson" => json(429, busy),
        _ => json(201, status),
    })
    .await;
    let client: Box<dyn ClusterApi> = Box::new(peer.client());
    let body = || b"{}".to_vec();
    let pod = ObjectPath::pod("x", "p");
    for subresource in ["binding", "eviction"] {
        let stored = client.create_subresource(&pod, subresource, body()).await.expect("a status");
        assert_eq!((stored.uid.as_str(), stored.json.as_slice()), ("", status.as_bytes()));
    }
    let guarded = ObjectPath::pod("x", "guarded");
    let error = client.create_subresource(&guarded, "eviction", body()).await.expect_err("guarded");
    let retry_after = Duration::from_secs(60);
    let request = "POST pods/x/guarded/eviction".to_owned();
    assert_eq!(error, ClusterApiError::Throttled { request, retry_after });
    let account = ObjectPath::service_account("x", "s");
    let stored = client.create_subresource(&account, "token", body()).await.expect("a token");
    assert_eq!(stored.json, token.as_bytes());
    assert!(!format!("{stored:?}").contains("hunter2"));
    client.patch(&pod, Patch { subresource: Some("status".into()), ..patch() }).await.expect("pod");
    let sent: Vec<_> = peer
        .requests()
        .into_iter()
        .map(|sent| (sent.method, sent.target, sent.content_type))
        .collect();
    let of = |method: &str, subresource: &str, content_type: &str| {
        let target = format!("/api/v1/namespaces/x/pods/{subresource}?fieldManager=keelson");
        (method.to_owned(), target, content_type.to_owned())
    };
    assert_eq!(sent[0], of("POST", "p/binding", "application/json"));
    assert_eq!(sent[1], of("POST", "p/eviction", "application/json"));
    assert_eq!(sent[2], of("POST", "guarded/eviction", "application/json"));
    assert_eq!(sent[4], of("PATCH", "p/status", "application/merge-patch+json"));
    assert_eq!(sent.len(), 5);
}

#[tokio::test]
async fn too_many_requests_are_sent_again_after_the_pause_if_it_fits() {
    let busy = || json(429, "").header("retry-after", "1");
    let peer =
        ScriptedApiServer::plain(move |n, _| if n == 0 { busy() } else { json(200, NODE) }).await;
    let began = Instant::now();
    peer.client().patch(&node(), patch()).await.expect("patched in the end");
    assert!(began.elapsed() >= Duration::from_secs(1));
    let peer = ScriptedApiServer::plain(|_, _| json(429, "").header("retry-after", "3600")).await;
    let began = Instant::now();
    let error = peer.client().read(&node()).await.expect_err("throttled");
    assert!(began.elapsed() < Duration::from_secs(10));
    // One response cannot hold a request for an hour.
    let max_pause = Duration::from_secs(60);
    assert!(
        matches!(error, ClusterApiError::Throttled { retry_after, .. } if retry_after == max_pause)
    );
    let peer = ScriptedApiServer::plain(|_, _| json(429, "").header("retry-after", "0")).await;
    peer.client().read(&node()).await.expect_err("throttled for ever");
    assert_eq!(peer.requests().len(), 11, "it gives up some time");
}

/// More seconds than any clock can count, in the header and in the body.
#[tokio::test]
async fn a_pause_without_end_ends_nothing_but_the_request() {
    let seconds = u64::MAX;
    let body = format!(r#"{{"kind":"Status","details":{{"retryAfterSeconds":{seconds}}}}}"#);
    for (status, header) in [(429, true), (429, false), (503, true)] {
        let body = body.clone();
        let peer = ScriptedApiServer::plain(move |_, _| match header {
            true => json(status, "").header("retry-after", &seconds.to_string()),
            false => json(status, body.clone()),
        })
        .await;
        let began = Instant::now();
        let error = peer.client().read(&node()).await.expect_err("not now");
        assert!(began.elapsed() < Duration::from_secs(10));
        assert_eq!(peer.requests().len(), 1, "{error}");
        if let ClusterApiError::Throttled { retry_after, .. } = error {
            assert_eq!(retry_after, Duration::from_secs(60));
        }
    }
}

/// An urgent request does not queue behind others, and needs no connection of its own.
#[tokio::test]
async fn a_client_with_its_own_rate_limit_does_not_wait_for_others() {
    let peer = ScriptedApiServer::plain(|_, _| json(200, NODE)).await;
    // One request, and the next after ten seconds: longer than the deadline.
    let slow = RateLimit { per_second: 0.1, burst: 1 };
    let work = client(&peer, |options| options.rate = Some(slow));
    let election = work.with_own_rate_limit();
    work.read(&node()).await.expect("the first");
    let error = work.clone().read(&node()).await.expect_err("a clone has the same rate");
    assert!(matches!(error, ClusterApiError::RateLimited { .. }), "{error:?}");
    election.read(&node()).await.expect("its first");
    let error = election.with_deadline(Duration::from_secs(1)).read(&node()).await;
    assert!(matches!(error, Err(ClusterApiError::RateLimited { .. })), "it has a rate, too");
    assert_eq!(peer.connections(), 1);
}

#[tokio::test]
async fn http_errors_map_to_distinct_api_errors() {
    let table = [
        (404, "{}", "NotFound"),
        (409, r#"{"kind":"Status","reason":"AlreadyExists"}"#, "AlreadyExists"),
        (409, r#"{"kind":"Status","reason":"Conflict"}"#, "Conflict"),
        (403, "{}", "Refused"),
        (500, "{}", "ServerError"),
    ];
    for (status, body, expected) in table {
        let peer = ScriptedApiServer::plain(move |_, _| json(status, body)).await;
        let error = peer.client().delete(&node(), Deletion::default()).await.expect_err("refused");
        assert!(format!("{error:?}").starts_with(expected), "{error:?}");
        assert_eq!(peer.requests().len(), 1, "{expected} is not sent again");
    }
}

#[tokio::test]
async fn an_answer_that_trickles_ends_by_the_deadline() {
    let drop =
        || [BodyChunk::Data(Bytes::from_static(b" ")), BodyChunk::Wait(Duration::from_millis(20))];
    let pieces: Vec<BodyChunk> = (0..1000).flat_map(|_| drop()).collect();
    let peer = ScriptedApiServer::plain(move |_, _| stream(200, pieces.clone())).await;
    let client = client(&peer, |options| options.deadline = Duration::from_millis(300));
    let began = Instant::now();
    let error = client.read(&node()).await.expect_err("too slow");
    assert!(matches!(error, ClusterApiError::NoResponse { .. }), "{error:?}");
    assert!(began.elapsed() < Duration::from_secs(15));
}

#[tokio::test]
async fn an_endless_answer_ends_by_its_length() {
    let endless = || stream(200, vec![BodyChunk::Endless(Bytes::from(vec![b' '; 16 * 1024]))]);
    let peer = ScriptedApiServer::plain(move |_, _| endless()).await;
    let client = client(&peer, |options| options.object_limit = 1024 * 1024);
    let error = client.read(&node()).await.expect_err("too long");
    assert!(matches!(error, ClusterApiError::TooLarge { limit: 0x10_0000, .. }), "{error:?}");
    assert!(peer.produced() < 16 * 1024 * 1024, "{}", peer.produced());
}

#[tokio::test]
async fn a_connection_that_drops_all_packets_is_replaced() {
    let peer =
        ScriptedApiServer::plain(|n, _| if n == 1 { silence() } else { json(200, NODE) }).await;
    let client = client(&peer, |options| options.deadline = Duration::from_secs(3));
    client.read(&node()).await.expect("a node");
    let error = client.read(&node()).await.expect_err("silence");
    assert!(matches!(error, ClusterApiError::NoResponse { .. }), "{error:?}");
    client.read(&node()).await.expect("a node");
    let on: Vec<usize> = peer.requests().iter().map(|request| request.connection).collect();
    assert_eq!(on, [1, 1, 2]);
}

#[tokio::test]
async fn a_read_on_a_lost_connection_is_sent_again_and_a_write_is_not() {
    let cut_second = |n: usize| -> ScriptedReply {
        if n == 1 { stream(200, vec![BodyChunk::Cut]) } else { json(200, NODE) }
    };
    let peer = ScriptedApiServer::plain(move |n, _| cut_second(n)).await;
    let client = peer.client();
    client.read(&node()).await.expect("a node");
    client.read(&node()).await.expect("a node, at the second attempt");
    assert_eq!(peer.requests().len(), 3);
    let peer = ScriptedApiServer::plain(move |n, _| cut_second(n)).await;
    let client = peer.client();
    client.read(&node()).await.expect("a node");
    let error = client.patch(&node(), patch()).await.expect_err("nobody knows");
    assert!(matches!(error, ClusterApiError::NoResponse { .. }), "{error:?}");
    assert_eq!(peer.requests().len(), 2);
}

#[tokio::test]
async fn connection_refused_and_garbage_give_different_errors() {
    let peer = ScriptedApiServer::plain(|_, _| json(200, "garbage")).await;
    let error = peer.client().read(&node()).await.expect_err("garbage");
    assert!(matches!(error, ClusterApiError::Unreadable { .. }), "{error:?}");
    let mut access = peer.access();
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    access.server.port = free.local_addr().expect("an address").port();
    drop(free);
    let client = ApiClient::new(access, options()).expect("a client");
    let error = client.patch(&node(), patch()).await.expect_err("nobody");
    assert!(matches!(error, ClusterApiError::Unreachable { .. }), "{error:?}");
}

#[tokio::test]
async fn a_token_file_is_reread_after_401_and_never_printed() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("token");
    std::fs::write(&file, "hunter1\n").expect("write");
    let peer = ScriptedApiServer::plain(|_, request| match request.authorization.as_str() {
        "Bearer hunter2" => json(200, NODE),
        _ => json(401, r#"{"kind":"Status","message":"Unauthorized"}"#),
    })
    .await;
    let mut access = peer.access();
    access.token = Some(TokenSource::File(file.clone()));
    let client = ApiClient::new(access, options()).expect("a client");
    let error = client.read(&node()).await.expect_err("the old token");
    assert!(matches!(error, ClusterApiError::Unauthenticated { .. }), "{error:?}");
    std::fs::write(&file, "hunter2\n").expect("write");
    client.read(&node()).await.expect("the new token");
    // During a rotation there may be nothing to read; the old certificate stays in use.
    std::fs::write(&file, "").expect("write");
    client.refresh_credentials().await.expect("the old one stays");
    client.read(&node()).await.expect("the token before");
    let made = Patch { body: b"hunter2".to_vec(), ..patch() };
    let request = crate::request::ApiRequest::patch(&node(), made.clone(), "me");
    let stored = StoredObject {
        uid: String::new(),
        resource_version: String::new(),
        json: b"hunter2".to_vec(),
    };
    let shown = format!(
        "{client:?} {error:?} {:?} {made:?} {request:?} {stored:?}",
        Secret::new("hunter2")
    );
    // "hu" as the numbers in a byte slice's debug output.
    assert!(!shown.contains("hunter") && !shown.contains("104, 117"), "{shown}");
}

#[tokio::test]
async fn no_request_is_sent_without_credentials() {
    let peer = ScriptedApiServer::plain(|_, _| json(200, NODE)).await;
    let mut access = peer.access();
    access.token = Some(TokenSource::File("/nowhere/token".into()));
    let client = ApiClient::new(access, options()).expect("a client");
    let error = client.read(&node()).await.expect_err("no token");
    assert!(matches!(error, ClusterApiError::NoCredentials { .. }), "{error:?}");
    assert!(error.to_string().contains("/nowhere/token"), "{error}");
    assert!(peer.requests().is_empty());
}

#[tokio::test]
async fn the_rate_holds_and_a_turn_beyond_the_deadline_is_refused_at_once() {
    let peer = ScriptedApiServer::plain(|_, _| json(200, NODE)).await;
    let limited = client(&peer, |options| options.rate = RateLimit::new(10.0, 1));
    let began = Instant::now();
    for _ in 0..4 {
        limited.read(&node()).await.expect("a node");
    }
    assert!(began.elapsed() >= Duration::from_millis(290), "{:?}", began.elapsed());
    let slow = client(&peer, |options| options.rate = RateLimit::new(0.01, 1));
    slow.read(&node()).await.expect("a node");
    let error = slow.read(&node()).await.expect_err("too late");
    assert!(matches!(error, ClusterApiError::RateLimited { .. }), "{error:?}");
}

/// A request that is dropped while it waits for the rate limiter returns its token.
#[tokio::test]
async fn a_cancelled_rate_limit_wait_returns_its_token() {
    let peer = ScriptedApiServer::plain(|_, _| json(200, NODE)).await;
    // One token every two seconds.
    let slow = client(&peer, |options| options.rate = RateLimit::new(0.5, 1));
    slow.read(&node()).await.expect("the first");
    for _ in 0..20 {
        let timed_out = tokio::time::timeout(Duration::from_millis(5), slow.read(&node())).await;
        assert!(timed_out.is_err(), "it waits");
    }
    assert!(
        slow.rate_limit_delay() <= Duration::from_millis(2_200),
        "{:?}",
        slow.rate_limit_delay()
    );
    assert!(slow.rate_limit_delay() > Duration::ZERO, "the first one's is used");
    slow.with_deadline(Duration::from_secs(5)).read(&node()).await.expect("the next one");
    assert_eq!(peer.requests().len(), 2);
}

#[tokio::test]
async fn a_credential_plugin_may_outlast_the_request_that_started_it() {
    let peer = ScriptedApiServer::plain(|_, request| match request.authorization.as_str() {
        "Bearer from-plugin" => json(200, NODE),
        _ => json(401, ""),
    })
    .await;
    let script = r#"sleep 4; echo "{\"apiVersion\":\"client.authentication.k8s.io/v1\",
        \"kind\":\"ExecCredential\",\"status\":{\"token\":\"from-plugin\"}}""#;
    let mut access = peer.access();
    access.exec = Some(ExecPlugin {
        api_version: "client.authentication.k8s.io/v1".to_owned(),
        command: "/bin/sh".into(),
        arguments: vec!["-c".to_owned(), script.to_owned()],
        environment: Vec::new(),
        install_hint: String::new(),
        cluster: None,
        proxy_url: None,
    });
    let mut options = options();
    options.deadline = Duration::from_secs(3);
    let client = ApiClient::new(access, options).expect("a client");
    let error = client.read(&node()).await.expect_err("the plugin is slow");
    assert!(matches!(error, ClusterApiError::NoCredentials { .. }), "{error:?}");
    client.read(&node()).await.expect("the plugin went on");
}

#[tokio::test]
async fn a_request_that_waits_takes_little_room() {
    let peer = ScriptedApiServer::plain(|_, _| json(200, NODE)).await;
    let client = ApiClient::new(peer.access(), options()).expect("a client");
    let (path, body) = (node(), Vec::new());
    let patch = Patch { kind: PatchKind::Merge, subresource: None, body };
    let room = size_of_val(&*client.patch(&path, patch));
    assert!(room <= 2048, "{room} bytes: what is rare and large belongs into a box of its own");
}
