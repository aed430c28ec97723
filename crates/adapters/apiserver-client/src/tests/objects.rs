//! Watches of single objects: where they resume, and what they share.

use std::time::Duration;

use ports::cluster_api::{ObjectPath, ObjectWatch, Resource};
use ports::{ClusterApi, ClusterApiError};
use tokio::time::timeout;

use super::peer::{BodyChunk, RecordedRequest, ScriptedApiServer, json, line, options, stream};
use super::rotation::TestCertificateAuthority;
use crate::client::ApiClient;

fn object(version: u32) -> String {
    format!(r#"{{"metadata":{{"name":"a","uid":"u","resourceVersion":"{version}"}}}}"#)
}

fn change(kind: &str, version: u32) -> BodyChunk {
    line(&format!(r#"{{"type":"{kind}","object":{}}}"#, object(version)))
}

fn path() -> ObjectPath {
    ObjectPath::namespaced(Resource::SECRETS, "shop", "a")
}

fn version_of(request: &RecordedRequest) -> Option<&str> {
    request
        .target
        .contains("watch=true")
        .then(|| request.target.split("resourceVersion=").nth(1).unwrap_or(""))
}

async fn states(watch: &mut Box<dyn ObjectWatch>, count: usize) -> Vec<String> {
    let mut all = Vec::new();
    while all.len() < count {
        let Ok(state) = timeout(Duration::from_secs(30), watch.next()).await else {
            panic!("nothing more after {all:?}");
        };
        all.push(match state {
            Ok(stored) => stored.resource_version,
            Err(ClusterApiError::NotFound { .. }) => "absent".to_owned(),
            Err(ClusterApiError::Refused { status, .. }) => status.to_string(),
            Err(error) => error.to_string(),
        });
    }
    all
}

#[tokio::test]
async fn an_object_is_read_and_its_changes_follow() {
    let gone = r#"{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}}"#;
    let peer = ScriptedApiServer::plain(move |n, request| match version_of(request) {
        None if n == 0 => json(200, object(5)),
        None => json(200, object(9)),
        Some("5") => stream(
            200,
            vec![change("MODIFIED", 6), change("DELETED", 7), change("ADDED", 8), line(gone)],
        ),
        Some("9") => stream(200, vec![change("MODIFIED", 10), BodyChunk::Hang]),
        Some(other) => panic!("watched from {other}"),
    })
    .await;
    let mut watch = peer.client().watch_object(&path());
    let expected = ["5", "6", "absent", "8", "9", "10"];
    assert_eq!(states(&mut watch, 6).await, expected);
    let targets = peer.targets();
    assert_eq!(targets[0], "/api/v1/namespaces/shop/secrets/a");
    let begin = "/api/v1/namespaces/shop/secrets?fieldSelector=metadata.name%3Da&watch=true";
    assert!(targets[1].starts_with(begin), "{targets:?}");
}

#[tokio::test]
async fn an_absent_object_appears_and_a_lag_of_the_authorizer_passes() {
    let peer = ScriptedApiServer::plain(|n, request| match version_of(request) {
        None if n == 0 => json(403, r#"{"kind":"Status","reason":"Forbidden","message":"lag"}"#),
        None => json(404, r#"{"kind":"Status","reason":"NotFound"}"#),
        Some("") => stream(200, vec![change("ADDED", 3), BodyChunk::Hang]),
        Some(other) => panic!("watched from {other}"),
    })
    .await;
    let mut watch = peer.client().watch_object(&path());
    let began = std::time::Instant::now();
    assert_eq!(states(&mut watch, 3).await, ["403", "absent", "3"]);
    assert!(began.elapsed() < Duration::from_millis(700), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_dropped_wait_loses_nothing() {
    let peer = ScriptedApiServer::plain(|_, request| match version_of(request) {
        None => json(200, object(5)),
        Some(_) => stream(
            200,
            vec![
                BodyChunk::Wait(Duration::from_millis(200)),
                change("MODIFIED", 6),
                BodyChunk::Hang,
            ],
        ),
    })
    .await;
    let mut watch = peer.client().watch_object(&path());
    assert_eq!(states(&mut watch, 1).await, ["5"]);
    let mut tries = 0;
    let state = loop {
        tries += 1;
        if let Ok(state) = timeout(Duration::from_millis(20), watch.next()).await {
            break state;
        }
    };
    assert_eq!(state.expect("an object").resource_version, "6");
    assert!(tries > 3);
    assert_eq!(peer.requests().len(), 2, "{:?}", peer.targets());
}

#[tokio::test]
async fn many_watches_share_few_connections() {
    let authority = TestCertificateAuthority::new();
    let peer = ScriptedApiServer::secure(authority.server(), None, |_, request| {
        match version_of(request) {
            None => json(200, object(5)),
            Some(_) => stream(200, vec![change("MODIFIED", 6), BodyChunk::Hang]),
        }
    })
    .await;
    let client = ApiClient::new(authority.access(&peer, None), options()).expect("a client");
    let mut watches: Vec<_> = (0..200).map(|_| client.watch_object(&path())).collect();
    for watch in &mut watches {
        assert_eq!(states(watch, 2).await, ["5", "6"]);
    }
    assert!(peer.connections() <= 5, "{}", peer.connections());
}
