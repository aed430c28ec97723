//! Lists and watches: where they resume, and when they start over.

use std::time::{Duration, Instant};

use bytes::Bytes;
use ports::cluster_api::ObjectSelector;
use ports::cluster_objects::{ApiObject as _, Node};
use ports::{ClusterApiError, FeedEvent, ObjectFeed as _};
use tokio::time::timeout;

use super::peer::{
    BodyChunk, RecordedRequest, ScriptedApiServer, ScriptedReply, json, line, options, stream,
};
use crate::client::{ApiClient, ClientOptions};
use crate::watch::Watch;

/// A feed event as text: `applied n@7`.
fn shown(event: &FeedEvent<Node>) -> String {
    let name = |node: &Node| format!("{}@{}", node.metadata.name, node.identity().resource_version);
    match event {
        FeedEvent::ListBegun => "began".to_owned(),
        FeedEvent::Listed(nodes) => {
            format!("listed {}", nodes.iter().map(name).collect::<Vec<_>>().join(","))
        }
        FeedEvent::ListEnded => "ended".to_owned(),
        FeedEvent::Applied(node) => format!("applied {}", name(node)),
        FeedEvent::Deleted(node) => format!("deleted {}", name(node)),
        FeedEvent::Unreadable { object, .. } => format!("unreadable {object}"),
        FeedEvent::Interrupted(error) => {
            let error = format!("{error:?}");
            format!("interrupted {}", error.split(' ').next().unwrap_or_default())
        }
        FeedEvent::Resumed => "resumed".to_owned(),
    }
}

async fn collect_events(watch: &mut Watch<Node>, count: usize) -> Vec<String> {
    let mut all = Vec::new();
    while all.len() < count {
        match timeout(Duration::from_secs(30), watch.next()).await {
            Ok(event) => all.push(shown(&event)),
            Err(_) => panic!("nothing more after {all:?}"),
        }
    }
    all
}

fn node(name: &str, version: u32) -> String {
    format!(r#"{{"metadata":{{"name":"{name}","resourceVersion":"{version}"}}}}"#)
}

fn change(kind: &str, name: &str, version: u32) -> BodyChunk {
    line(&format!(r#"{{"type":"{kind}","object":{}}}"#, node(name, version)))
}

fn page(version: u32, token: &str, nodes: &[String]) -> ScriptedReply {
    let items = nodes.join(",");
    json(
        200,
        format!(
            r#"{{"metadata":{{"resourceVersion":"{version}","continue":"{token}"}},"items":[{items}]}}"#
        ),
    )
}

fn is_watch(request: &RecordedRequest) -> bool {
    request.target.contains("watch=true")
}

fn version_of(request: &RecordedRequest) -> &str {
    request.target.split("resourceVersion=").nth(1).unwrap_or("")
}

fn with(peer: &ScriptedApiServer, change: impl FnOnce(&mut ClientOptions)) -> Watch<Node> {
    let mut options = options();
    change(&mut options);
    let client = ApiClient::new(peer.access(), options).expect("a client");
    Watch::start(&client, ObjectSelector::default())
}

fn start(peer: &ScriptedApiServer) -> Watch<Node> {
    with(peer, |_| {})
}

#[tokio::test]
async fn pages_then_changes_and_on_from_the_last_bookmark() {
    let peer = ScriptedApiServer::plain(|_, request| match version_of(request) {
        "" if request.target.contains("continue=t") => page(5, "", &[node("b", 2)]),
        "" => page(5, "t", &[node("a", 1)]),
        "5" => stream(
            200,
            vec![
                change("ADDED", "c", 6),
                change("DELETED", "a", 7),
                change("BOOKMARK", "", 9),
                BodyChunk::Wait(Duration::from_millis(1100)),
            ],
        ),
        "9" => stream(200, vec![change("MODIFIED", "b", 10), BodyChunk::Hang]),
        other => panic!("watched from {other}"),
    })
    .await;
    let mut watch = start(&peer);
    let expected = [
        "began",
        "listed a@1",
        "listed b@2",
        "ended",
        "applied c@6",
        "deleted a@7",
        "applied b@10",
    ];
    assert_eq!(collect_events(&mut watch, 7).await, expected);
    assert!(peer.targets()[0].starts_with("/api/v1/nodes?limit=500"), "{:?}", peer.targets());
    assert_eq!(peer.requests().len(), 4);
}

#[tokio::test]
async fn an_expired_version_is_listed_again() {
    let gone = r#"{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}}"#;
    let peer = ScriptedApiServer::plain(move |_, request| match version_of(request) {
        "" if request.connection == 0 => json(500, ""),
        "5" => stream(200, vec![change("ADDED", "b", 6), line(gone)]),
        "6" => panic!("that version has expired"),
        "8" => stream(200, vec![change("ADDED", "c", 9), BodyChunk::Hang]),
        _ => page(if request.target.contains("limit=500") { 5 } else { 8 }, "", &[node("a", 1)]),
    })
    .await;
    let mut watch = start(&peer);
    let first = collect_events(&mut watch, 4).await;
    assert_eq!(first, ["began", "listed a@1", "ended", "applied b@6"]);
    // The same again: it was not resumed, it started over.
    assert_eq!(collect_events(&mut watch, 4).await, first);
}

#[tokio::test]
async fn an_expired_continue_token_restarts_the_list() {
    let peer = ScriptedApiServer::plain(|n, request| match n {
        0 => page(5, "t", &[node("a", 1)]),
        1 => json(410, r#"{"kind":"Status","reason":"Expired","code":410}"#),
        2 => page(8, "", &[node("b", 2)]),
        _ if is_watch(request) => stream(200, vec![BodyChunk::Hang]),
        _ => panic!("{request:?}"),
    })
    .await;
    let mut watch = start(&peer);
    let expected = ["began", "listed a@1", "began", "listed b@2", "ended"];
    assert_eq!(collect_events(&mut watch, 5).await, expected);
}

#[tokio::test]
async fn a_broken_watch_resumes_from_its_last_version() {
    let flushed = BodyChunk::Wait(Duration::from_millis(50));
    let half = BodyChunk::Data(Bytes::from_static(b"{\"type\":\"ADDED\",\"obj"));
    let peer = ScriptedApiServer::plain(move |n, request| match (n, version_of(request)) {
        (0, "") => page(5, "", &[]),
        (1, "5") => stream(
            200,
            vec![change("ADDED", "a", 6), half.clone(), flushed.clone(), BodyChunk::Cut],
        ),
        (2, "") => json(503, "starting"),
        // Only the version is asked for.
        (3, "") if request.target.contains("limit=1&") || request.target.ends_with("limit=1") => {
            page(6, "t", &[node("a", 6)])
        }
        (4, "6") => stream(200, vec![change("ADDED", "b", 7), BodyChunk::Hang]),
        other => panic!("{other:?}"),
    })
    .await;
    let mut watch = start(&peer);
    let expected = [
        "began",
        "listed ",
        "ended",
        "applied a@6",
        "interrupted NoResponse",
        "interrupted ServerError",
        "resumed",
        "applied b@7",
    ];
    let began = Instant::now();
    assert_eq!(collect_events(&mut watch, 8).await, expected);
    // Pauses of 0.8 and 1.6 seconds.
    assert!(began.elapsed() >= Duration::from_millis(2400), "{:?}", began.elapsed());
}

#[tokio::test]
async fn invalid_and_oversized_events_interrupt_the_watch_and_cause_a_relist() {
    let giant = Bytes::from(vec![b'x'; 1000]);
    let invalid_lines = [line("garbage"), BodyChunk::Endless(giant)];
    for (invalid_lines, expected) in invalid_lines.into_iter().zip(["Unreadable", "TooLarge"]) {
        let peer = ScriptedApiServer::plain(move |n, request| match n {
            0 => page(5, "", &[node("a", 1)]),
            1 => stream(200, vec![change("ADDED", "b", 6), invalid_lines.clone()]),
            2 if !is_watch(request) => page(8, "", &[node("b", 6)]),
            _ => stream(200, vec![BodyChunk::Hang]),
        })
        .await;
        let mut watch = with(&peer, |options| options.line_limit = 4096);
        let events = collect_events(&mut watch, 8).await;
        assert_eq!(events[4], format!("interrupted {expected}"));
        assert_eq!(&events[5..], ["began", "listed b@6", "ended"]);
    }
}

#[tokio::test]
async fn a_page_that_is_too_large_is_requested_in_halves() {
    let peer = ScriptedApiServer::plain(|_, request| match request.target.split("limit=").nth(1) {
        Some(limit) if limit.starts_with('4') => json(200, " ".repeat(2000)),
        Some(limit) if limit.starts_with('2') => page(5, "", &[node("a", 1)]),
        _ => stream(200, vec![BodyChunk::Hang]),
    })
    .await;
    let mut watch = with(&peer, |options| {
        options.page_size = 4;
        options.page_limit = 1000;
    });
    let expected = ["interrupted TooLarge", "began", "listed a@1", "ended", "resumed"];
    assert_eq!(collect_events(&mut watch, 5).await, expected);
}

#[tokio::test]
async fn a_silent_watch_is_reopened_at_the_same_version() {
    let peer = ScriptedApiServer::plain(|n, request| match n {
        0 => page(5, "", &[]),
        1 => stream(200, vec![change("ADDED", "a", 6), BodyChunk::Hang]),
        2 if version_of(request) == "6" => {
            let alive = [BodyChunk::Wait(Duration::from_millis(700)), change("BOOKMARK", "", 7)];
            let mut pieces: Vec<BodyChunk> = alive.iter().cycle().take(12).cloned().collect();
            pieces.push(change("ADDED", "b", 8));
            pieces.push(BodyChunk::Hang);
            stream(200, pieces)
        }
        other => panic!("{other}: {request:?}"),
    })
    .await;
    let mut watch = with(&peer, |options| options.watch_silence = Duration::from_secs(3));
    let expected = ["began", "listed ", "ended", "applied a@6", "applied b@8"];
    assert_eq!(collect_events(&mut watch, 5).await, expected);
    assert_eq!(peer.requests().len(), 3, "bookmarks keep a watch alive");
}

#[tokio::test]
async fn an_unreadable_object_does_not_affect_others_in_the_watch() {
    let bad = r#"{"metadata":{"name":"bad","resourceVersion":"3"},"spec":7}"#.to_owned();
    let peer = ScriptedApiServer::plain(move |n, _| match n {
        0 => page(5, "", &[node("a", 1), bad.clone(), node("b", 2)]),
        _ => stream(
            200,
            vec![
                line(&format!(r#"{{"type":"ADDED","object":{bad}}}"#)),
                change("ADDED", "c", 6),
                BodyChunk::Hang,
            ],
        ),
    })
    .await;
    let mut watch = start(&peer);
    let expected = [
        "began",
        "listed a@1,b@2",
        "unreadable nodes/bad",
        "ended",
        "unreadable nodes/bad",
        "applied c@6",
    ];
    assert_eq!(collect_events(&mut watch, 6).await, expected);
}

#[tokio::test]
async fn a_busy_server_is_left_alone_for_as_long_as_it_asks() {
    let peer = ScriptedApiServer::plain(|n, _| match n {
        0 => json(429, "").header("retry-after", "2"),
        1 => page(5, "", &[]),
        _ => stream(200, vec![BodyChunk::Hang]),
    })
    .await;
    let mut watch = with(&peer, |options| options.page_deadline = Duration::from_secs(1));
    let began = Instant::now();
    assert_eq!(collect_events(&mut watch, 2).await, ["interrupted Throttled", "began"]);
    assert!(began.elapsed() >= Duration::from_secs(2));
}

#[tokio::test]
async fn a_slow_receiver_blocks_the_stream_and_a_dropped_one_ends_it() {
    let event = format!("{{\"type\":\"MODIFIED\",\"object\":{}}}\n", node("a", 6));
    let event = Bytes::from(event.repeat(100));
    let peer = ScriptedApiServer::plain(move |n, _| match n {
        0 => page(5, "", &[]),
        _ => stream(200, vec![BodyChunk::Endless(event.clone())]),
    })
    .await;
    let mut watch = start(&peer);
    collect_events(&mut watch, 4).await;
    let until = Instant::now() + Duration::from_secs(30);
    let mut produced = usize::MAX;
    while produced != peer.produced() {
        assert!(Instant::now() < until, "the stream never stands still");
        produced = peer.produced();
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    drop(watch);
    let until = Instant::now() + Duration::from_secs(5);
    while peer.dropped() < 2 {
        assert!(Instant::now() < until, "the stream is still open");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn credentials_that_are_missing_at_first_are_waited_for() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("token");
    let peer = ScriptedApiServer::plain(|_, request| match is_watch(request) {
        false => page(5, "", &[]),
        true => stream(200, vec![BodyChunk::Hang]),
    })
    .await;
    let mut access = peer.access();
    access.token = Some(crate::access::TokenSource::File(file.clone()));
    let client = ApiClient::new(access, options()).expect("a client");
    let mut watch: Watch<Node> = Watch::start(&client, ObjectSelector::default());
    let first = watch.next().await;
    assert!(
        matches!(&first, FeedEvent::Interrupted(ClusterApiError::NoCredentials { .. })),
        "{first:?}"
    );
    std::fs::write(&file, "t").expect("write");
    assert_eq!(collect_events(&mut watch, 4).await, ["began", "listed ", "ended", "resumed"]);
}

#[tokio::test]
async fn a_resource_version_that_is_never_reached_is_relisted() {
    let peer = ScriptedApiServer::plain(|n, request| match (n, version_of(request)) {
        (0, "") => page(500, "", &[]),
        (1 | 2, "500") => stream(200, vec![BodyChunk::Hang]),
        (3, "") => page(5, "", &[node("a", 1)]),
        (4, "5") => stream(200, vec![change("ADDED", "b", 6), BodyChunk::Hang]),
        (_, "6") => stream(200, vec![BodyChunk::Hang]),
        other => panic!("{other:?}"),
    })
    .await;
    let mut watch = with(&peer, |options| options.watch_silence = Duration::from_secs(2));
    let expected = ["began", "listed ", "ended", "began", "listed a@1", "ended", "applied b@6"];
    assert_eq!(collect_events(&mut watch, 7).await, expected);
}

#[tokio::test]
async fn an_api_server_that_comes_back_with_older_data_is_listed_again() {
    let flushed = BodyChunk::Wait(Duration::from_millis(50));
    let peer = ScriptedApiServer::plain(move |n, request| match (n, version_of(request)) {
        (0, "") => page(500, "", &[node("a", 400), node("b", 500)]),
        (1, "500") => stream(200, vec![flushed.clone(), BodyChunk::Cut]),
        (2, "") => page(450, "t", &[node("a", 400)]),
        (3, "") => page(450, "", &[node("a", 400)]),
        (4, "450") => stream(200, vec![change("ADDED", "c", 451), BodyChunk::Hang]),
        other => panic!("{other:?}"),
    })
    .await;
    let mut watch = start(&peer);
    let expected = [
        "began",
        "listed a@400,b@500",
        "ended",
        "interrupted NoResponse",
        "began",
        "listed a@400",
        "ended",
        "resumed",
        "applied c@451",
    ];
    assert_eq!(collect_events(&mut watch, 9).await, expected);
}
