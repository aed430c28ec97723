//! The node's log files, the read-only port, switched-off handlers, and metrics of requests.

use super::*;

#[tokio::test]
async fn the_nodes_logs_are_served_with_the_right_on_log() {
    let fixture = KubeletPortFixture::new(|_| {}).await;
    let log = fixture.dir.path().join("log");
    fs::create_dir(&log).expect("a directory");
    fs::write(log.join("empty"), "").expect("a file");
    let content: String = (0..50_000).map(|number| format!("line {number}\n")).collect();
    fs::write(log.join("messages"), &content).expect("a file");
    let get = async |path: &str| {
        let mut stream = fixture.connect(None).await;
        let head =
            format!("GET {path} HTTP/1.0\r\nhost: x\r\nauthorization: Bearer operator\r\n\r\n");
        stream.write_all(head.as_bytes()).await.expect("writes");
        let mut answer = Vec::new();
        let reading = timeout(Duration::from_secs(20), stream.read_to_end(&mut answer));
        reading.await.expect("ends").expect("an answer");
        let answer = String::from_utf8(answer).expect("text");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        (head.to_lowercase(), body.to_owned())
    };
    let (head, body) = get("/logs/messages").await;
    assert!(head.contains("200 ok") && head.contains("content-type: text/plain"), "{head}");
    assert!(body == content, "{} bytes", body.len());
    let (head, body) = get("/logs/empty").await;
    assert!(head.contains("200 ok") && body.is_empty(), "{head}");
    let (head, body) = get("/logs/").await;
    assert!(head.contains("content-type: text/html"), "{head}");
    assert!(body.contains("<a href=\"messages\">messages</a>"), "{body}");
    let (head, _) = get("/logs").await;
    assert!(head.contains("301 moved") && head.contains("location: /logs/"), "{head}");
    assert!(get("/logs/nothing").await.0.contains("404"));
    assert!(get("/logs/../ca.crt").await.0.contains("404"));
    assert!(get("/logs/%2e%2e/ca.crt").await.0.contains("404"));
    assert_eq!(fixture.get("/logs/messages", Some("good"), None).await.0, 403);
    let reviews = fixture.reviewer.requests("SubjectAccessReview");
    assert_eq!(reviews[0]["resourceAttributes"]["subresource"], "log");
}

/// One request to a port without TLS.
async fn plain(address: SocketAddr, method: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).await.expect("connects");
    let head = format!("{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).await.expect("writes");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("an answer");
    answer
}

#[tokio::test]
async fn the_read_only_port_answers_every_caller_and_only_reads() {
    let read_only = |settings: &mut KubeletPortSettings| {
        settings.read_only = Some("127.0.0.1:0".parse().expect("an address"));
    };
    let fixture = KubeletPortFixture::new(read_only).await;
    let address = fixture.read_only.expect("an address");
    let table = [
        ("GET", "/healthz", "200", "ok"),
        ("GET", "/pods", "200", "PodList"),
        ("GET", "/metrics", "200", ""),
        ("GET", "/metrics/slis", "200", "kubernetes_healthcheck"),
        ("POST", "/exec/ns/web/main", "405", "Debug endpoints are disabled.\n"),
        ("GET", "/containerLogs/ns/web/main", "405", "Debug endpoints are disabled.\n"),
        ("GET", "/logs/messages", "405", "Debug endpoints are disabled.\n"),
        ("GET", "/runningpods/", "405", "Debug endpoints are disabled.\n"),
        ("POST", "/checkpoint/ns/web/main", "404", "404 page not found\n"),
        ("GET", "/configz", "404", "404 page not found\n"),
    ];
    for (method, path, status, text) in table {
        let answer = plain(address, method, path).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{path}: {answer}");
        assert!(answer.contains(text), "{path}: {answer}");
    }
    assert!(fixture.reviewer.requests("SubjectAccessReview").is_empty());
    let none = KubeletPortFixture::new(|_| {}).await;
    assert_eq!(none.read_only, None);
}

#[tokio::test]
async fn handlers_that_are_switched_off_answer_405() {
    let off = |settings: &mut KubeletPortSettings| {
        let text = "logs endpoint is disabled.";
        settings.disabled_handlers = vec![DisabledHandler { path: "/logs/", text }];
    };
    let fixture = KubeletPortFixture::new(off).await;
    let answer = fixture.get("/logs/messages", Some("operator"), None).await;
    assert_eq!(answer, (405, "logs endpoint is disabled.\n".to_owned()));
    let all_off = |settings: &mut KubeletPortSettings| settings.debugging_handlers = false;
    let fixture = KubeletPortFixture::new(all_off).await;
    for path in ["/exec/ns/web/main", "/containerLogs/a", "/portForward/ns/web", "/logs/"] {
        let answer = fixture.get(path, Some("operator"), None).await;
        assert_eq!(answer, (405, "Debug endpoints are disabled.\n".to_owned()), "{path}");
    }
    let checkpoint = fixture.ask("POST", "/checkpoint/ns/web/main", Some("operator"), None).await;
    assert_eq!(checkpoint, (404, "404 page not found\n".to_owned()));
}

#[tokio::test]
async fn requests_are_counted_whether_they_are_allowed_or_not() {
    let mut metrics = None;
    let complete = |port: KubeletPort| {
        metrics = Some(port.metrics());
        (port, Arc::new(EmptyLocalApi) as Arc<dyn LocalApi>)
    };
    let fixture = KubeletPortFixture::with_port(true, |_| {}, complete).await;
    fixture.get("/healthz", Some("good"), None).await;
    fixture.get("/healthz", None, None).await;
    let text = ports::metrics::text(metrics.expect("metrics").families());
    let labels =
        "{long_running=\"false\",method=\"GET\",path=\"healthz\",server_type=\"readwrite\"}";
    assert!(text.contains(&format!("kubelet_http_requests_total{labels} 2\n")), "{text}");
}
