//! Container logs over the port: which log, in which form, with which errors, and to which end.

use super::pod_api::OnePod;
use super::*;
use ports::ApiTime;
use ports::kubelet_endpoint::container_log_reader::{
    ContainerLogError, ContainerLogLine, ContainerLogSelection, OpenContainerLog,
};
use std::collections::VecDeque;
use tokio::sync::mpsc;

/// Logs `before/0.log` with two lines, and `1.log`, which grows by what is sent.
struct ScriptedLogs {
    opened: Mutex<Vec<(String, ContainerLogSelection)>>,
    grows: Mutex<Option<mpsc::Receiver<Result<ContainerLogLine, ContainerLogError>>>>,
}

struct ScriptedLog {
    written: VecDeque<ContainerLogLine>,
    grows: Option<tokio::sync::Mutex<mpsc::Receiver<Result<ContainerLogLine, ContainerLogError>>>>,
    next: Mutex<Option<Result<ContainerLogLine, ContainerLogError>>>,
}

fn line(text: &str) -> ContainerLogLine {
    let time = "2026-01-02T03:04:05.5Z".to_owned();
    ContainerLogLine { time, is_partial: false, text: text.as_bytes().to_vec() }
}

impl ContainerLogReader for ScriptedLogs {
    fn open<'a>(
        &'a self,
        path: &'a str,
        selection: ContainerLogSelection,
    ) -> PortFuture<'a, Result<Box<dyn OpenContainerLog>, ContainerLogError>> {
        self.opened.lock().expect("lock").push((path.to_owned(), selection));
        let written = [line("one"), line("two")].into();
        let grows = selection.follow.then(|| self.grows.lock().expect("lock").take()).flatten();
        let grows = grows.map(tokio::sync::Mutex::new);
        let log = ScriptedLog { written, grows, next: Mutex::default() };
        let is_missing = path.ends_with("/missing/0.log");
        Box::pin(async move {
            if is_missing {
                return Err(ContainerLogError("no file".to_owned()));
            }
            Ok(Box::new(log) as Box<dyn OpenContainerLog>)
        })
    }
}

impl OpenContainerLog for ScriptedLog {
    fn read(&mut self) -> PortFuture<'_, Result<Vec<ContainerLogLine>, ContainerLogError>> {
        let mut lines: Vec<ContainerLogLine> = self.written.pop_front().into_iter().collect();
        let next = self.next.lock().expect("lock").take();
        let read = match next {
            Some(Ok(line)) => {
                lines.push(line);
                Ok(lines)
            }
            Some(Err(error)) => Err(error),
            None => Ok(lines),
        };
        Box::pin(std::future::ready(read))
    }
    fn changed(&self) -> PortFuture<'_, Result<(), ContainerLogError>> {
        Box::pin(async move {
            let Some(grows) = &self.grows else { return std::future::pending().await };
            let next = grows.lock().await.recv().await;
            let Some(next) = next else { return std::future::pending().await };
            *self.next.lock().expect("lock") = Some(next);
            Ok(())
        })
    }
}

type GrowingLog = mpsc::Sender<Result<ContainerLogLine, ContainerLogError>>;

async fn fixture(
    log_dir: &str,
) -> (KubeletPortFixture, Arc<ScriptedLogs>, Arc<OnePod>, GrowingLog) {
    let (sender, receiver) = mpsc::channel(4);
    let logs = ScriptedLogs { opened: Mutex::default(), grows: Mutex::new(Some(receiver)) };
    let (logs, pod) = (Arc::new(logs), OnePod::new(Path::new(log_dir)));
    let (reader, local) = (logs.clone(), pod.clone());
    let complete = |port: KubeletPort| (port.with_logs(reader), local as Arc<dyn LocalApi>);
    (KubeletPortFixture::with_port(true, |_| {}, complete).await, logs, pod, sender)
}

/// The status and the whole text of a log, whose response comes in parts.
async fn log(fixture: &KubeletPortFixture, path: &str) -> (u16, String) {
    let mut stream = fixture.connect(None).await;
    let head = format!(
        "GET {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer good\r\nconnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.expect("writes");
    let mut answer = Vec::new();
    timeout(Duration::from_secs(10), stream.read_to_end(&mut answer))
        .await
        .expect("ends")
        .expect("an answer");
    let answer = String::from_utf8(answer).expect("text");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    let status = head[9..12].parse().expect("a status");
    if !head.to_lowercase().contains("transfer-encoding: chunked") {
        return (status, body.to_owned());
    }
    (status, dechunked(body))
}

fn dechunked(mut body: &str) -> String {
    let mut text = String::new();
    loop {
        let (size, rest) = body.split_once("\r\n").expect("a chunk");
        let size = usize::from_str_radix(size, 16).expect("a size");
        if size == 0 {
            return text;
        }
        text.push_str(&rest[..size]);
        body = &rest[size + 2..];
    }
}

#[tokio::test]
async fn a_log_is_read_with_every_parameter() {
    let (fixture, logs, _, _sender) = fixture("/pods").await;
    let stamp = "2026-01-02T03:04:05.500000000Z ";
    let table = [
        ("", "one\ntwo\n".to_owned()),
        ("?previous=true", "one\ntwo\n".to_owned()),
        ("?timestamps=true", format!("{stamp}one\n{stamp}two\n")),
        ("?limitBytes=5", "one\nt".to_owned()),
        ("?tailLines=3&sinceTime=2026-01-02T03:04:05Z&stream=All", "one\ntwo\n".to_owned()),
    ];
    for (query, expected) in table {
        let answer = log(&fixture, &format!("/containerLogs/ns/web/main{query}")).await;
        assert_eq!(answer, (200, expected), "{query}");
    }
    let none = ContainerLogSelection::default();
    let since = ApiTime::parse("2026-01-02T03:04:05Z");
    let selected = ContainerLogSelection { tail: Some(3), since, follow: false };
    let expected = [("1", none), ("0", none), ("1", none), ("1", none), ("1", selected)];
    let expected = expected.map(|(attempt, selection)| (format!("/pods/{attempt}.log"), selection));
    assert_eq!(*logs.opened.lock().expect("lock"), expected);
}

#[tokio::test]
async fn a_log_that_cannot_be_read_has_upstreams_error() {
    let (fixture, _, _, _sender) = fixture("/pods/missing").await;
    let table = [
        (
            "/containerLogs/ns/web/main?tailLines=x",
            400,
            "{\"message\": \"Unable to decode query.\"}",
        ),
        ("/containerLogs/ns/other/main?limitBytes=0", 422, "{\"message\": \"Invalid request.\"}"),
        ("/containerLogs/ns/other/main", 404, "pod \"other\" does not exist"),
        ("/containerLogs/other/web/main", 404, "pod \"web\" does not exist"),
        ("/containerLogs/ns/web/no", 404, "container \"no\" not found in pod \"web\""),
        (
            "/containerLogs/ns/web/pulling",
            400,
            "container \"pulling\" in pod \"web\" is waiting to start: image can't be pulled",
        ),
        ("/containerLogs/ns/web/lost", 200, "unable to retrieve container logs for lost"),
        ("/containerLogs/ns/web/main?previous=true", 200, "no file"),
    ];
    for (path, status, text) in table {
        assert_eq!(log(&fixture, path).await, (status, text.to_owned()), "{path}");
    }
    let stream = log(&fixture, "/containerLogs/ns/web/main?stream=Stderr").await;
    assert!(stream.0 == 400 && stream.1.contains("PodLogsQuerySplitStreams"), "{stream:?}");
    // It needs the right on nodes/proxy.
    assert_eq!(fixture.get("/containerLogs/ns/web/main", Some("reader"), None).await.0, 403);
}

#[tokio::test]
async fn a_followed_log_comes_line_by_line_until_its_container_ends() {
    let (fixture, _, pod, sender) = fixture("/pods").await;
    let mut stream = fixture.connect(None).await;
    let head = "GET /containerLogs/ns/web/main?follow=true&tailLines=2 HTTP/1.1\r\nhost: x\r\n\
                authorization: Bearer good\r\n\r\n";
    stream.write_all(head.as_bytes()).await.expect("writes");
    let mut seen = Vec::new();
    let mut read_until = async |text: &str| {
        while !String::from_utf8_lossy(&seen).contains(text) {
            let byte = timeout(Duration::from_secs(10), stream.read_u8()).await.expect("in time");
            seen.push(byte.expect("a byte"));
        }
    };
    read_until("two\n").await;
    sender.send(Ok(line("three"))).await.expect("is followed");
    read_until("three\n").await;
    sender.send(Ok(line("four"))).await.expect("is followed");
    read_until("four\n").await;
    pod.end_container();
    read_until("\r\n0\r\n\r\n").await;
}

#[tokio::test]
async fn a_client_that_leaves_ends_its_followed_log() {
    let (fixture, _, _, sender) = fixture("/pods").await;
    let mut stream = fixture.connect(None).await;
    let head = "GET /containerLogs/ns/web/main?follow=true HTTP/1.1\r\nhost: x\r\n\
                authorization: Bearer good\r\n\r\n";
    stream.write_all(head.as_bytes()).await.expect("writes");
    stream.read_u8().await.expect("an answer");
    drop(stream);
    timeout(Duration::from_secs(10), sender.closed()).await.expect("the log is closed");
}

#[tokio::test]
async fn an_error_while_following_is_shown_and_ends_the_log() {
    let (fixture, _, _, sender) = fixture("/pods").await;
    sender.send(Err(ContainerLogError("broken disk".to_owned()))).await.expect("room");
    let answer = log(&fixture, "/containerLogs/ns/web/main?follow=true").await;
    assert_eq!(answer, (200, "one\ntwo\nbroken disk".to_owned()));
}
