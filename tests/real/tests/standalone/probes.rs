//! Probes of every kind: their requests, the effects of the results, and that a new agent keeps the
//! old one's results.

use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use node_testkit::bed::{BedTest, NODE_ADDRESS};
use node_testkit::start::Containerd;
use serde_json::Value;

use crate::node::{
    StandaloneNode, WAIT_LIMIT, archives, container, container_id, ensure_has, is_ready, keelson,
    restarts, wait_for,
};

#[test]
fn probes_of_every_kind_run_and_their_results_are_applied() -> Result<()> {
    let (keelson, archives) = (keelson()?, archives()?);
    BedTest::new().needs(Containerd::NEEDS).deadline(Duration::from_secs(180)).run(move |bed| {
        let probe_server = ProbeServer::start()?;
        let node = StandaloneNode::start(bed, &keelson, &archives, "")?;
        for (name, spec) in [
            ("flips", FLIPS),
            ("dies", DIES),
            ("gated", GATED),
            ("never-up", NEVER_UP),
            ("wired", WIRED),
            ("headed", HEADED),
        ] {
            node.place(name, spec)?;
        }
        flips(&node).context("readiness by exec")?;
        headed(&node, &probe_server).context("what an HTTP probe sends")?;
        dies(&node).context("liveness by HTTP")?;
        gated(&node).context("startup by TCP")?;
        never_up(&node).context("a startup probe that gives up")?;
        wired(&node, &probe_server).context("gRPC")?;
        no_flap(node).context("an agent that is killed")?.end()
    })
}

const FLIPS: &str = r#"
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: BUSYBOX
    command: [sleep, "1000"]
    readinessProbe: {exec: {command: [sh, -c, "echo not there; test -e /tmp/ready"]}, periodSeconds: 1, timeoutSeconds: 30, failureThreshold: 1}
"#;

fn flips(node: &StandaloneNode<'_>) -> Result<()> {
    let output = node.until_explained("flips", "readiness probe of container main")?;
    ensure_has(&output, &["has not succeeded yet"])?;
    let output = node.until_explained("flips", "Readiness probe failed: not there")?;
    ensure_has(&output, &["Unhealthy"])?;
    let pod = node.pod("flips")?.context("the pod")?;
    ensure!(pod["status"]["phase"] == "Running" && !is_ready(&pod), "{pod:#}");
    ensure!(condition(&pod, "Ready")["reason"] == "ContainersNotReady", "{pod:#}");
    ensure_has(&node.agent.ask(&["ps"])?, &["0/1"])?;
    for _ in 0..2 {
        node.shell(&pod, "main", "touch /tmp/ready")?;
        node.until_ready("flips")?;
        node.shell(&pod, "main", "rm /tmp/ready")?;
        node.until("unready again", "flips", |pod| !is_ready(pod))?;
    }
    node.shell(&pod, "main", "touch /tmp/ready")?;
    let pod = node.until_ready("flips")?;
    ensure!(restarts(&pod, "main") == 0, "readiness ends nothing: {pod:#}");
    Ok(())
}

const DIES: &str = r#"
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: BUSYBOX
    command: [sh, -c, "mkdir -p /www; echo yes > /www/alive; exec httpd -f -p 8080 -h /www"]
    ports: [{name: web, containerPort: 8080}]
    startupProbe: {tcpSocket: {port: web}, periodSeconds: 1, timeoutSeconds: 30, failureThreshold: 60}
    livenessProbe: {httpGet: {path: /alive, port: web}, periodSeconds: 1, timeoutSeconds: 30, failureThreshold: 2}
"#;

fn dies(node: &StandaloneNode<'_>) -> Result<()> {
    let pod = node.until_ready("dies")?;
    let first = container_id(&pod, "main")?;
    node.shell(&pod, "main", "rm /www/alive")?;
    let pod = node.until("another life", "dies", |pod| {
        restarts(pod, "main") == 1 && container(pod, "main")["ready"] == true
    })?;
    ensure!(container_id(&pod, "main")? != first, "{pod:#}");
    let output = node.agent.ask(&["explain", "dies"])?;
    ensure_has(
        &output,
        &[
            "Unhealthy (x2): Liveness probe failed: HTTP probe failed with statuscode: 404",
            "Container main failed liveness probe, will be restarted",
        ],
    )
}

const GATED: &str = r#"
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: BUSYBOX
    command: [sh, -c, "while ! [ -e /tmp/go ]; do sleep 0.2; done; exec httpd -f -p 9000 -h /"]
    startupProbe: {tcpSocket: {port: 9000}, periodSeconds: 1, failureThreshold: 600}
    livenessProbe: {exec: {command: [sh, -c, "echo asked >> /tmp/asked; pidof httpd"]}, periodSeconds: 1, timeoutSeconds: 30, failureThreshold: 1}
    readinessProbe: {tcpSocket: {port: 9000}, periodSeconds: 1}
"#;

/// Without the gate, liveness would have killed it in its first second.
fn gated(node: &StandaloneNode<'_>) -> Result<()> {
    node.until_explained("gated", "Startup probe failed: dial tcp")?;
    let pod = node.pod("gated")?.context("the pod")?;
    node.shell(&pod, "main", "touch /tmp/go")?;
    let pod = node.until_ready("gated")?;
    ensure!(restarts(&pod, "main") == 0, "nothing was asked too early: {pod:#}");
    ensure!(container(&pod, "main")["started"] == true, "{pod:#}");
    wait_for("liveness is asked now", WAIT_LIMIT, || {
        Ok(node.shell(&pod, "main", "cat /tmp/asked 2>/dev/null; true")?.contains("asked"))
    })
}

const NEVER_UP: &str = r#"
  terminationGracePeriodSeconds: 30
  containers:
  - name: main
    image: BUSYBOX
    command: [sh, -c, "trap '' TERM; while :; do sleep 1; done"]
    startupProbe: {exec: {command: ["false"]}, periodSeconds: 1, failureThreshold: 2, terminationGracePeriodSeconds: 1}
"#;

fn never_up(node: &StandaloneNode<'_>) -> Result<()> {
    // Its own grace of 1 s counts, not the pod's of 30 s: it ignores the signal.
    let begun = Instant::now();
    node.until("another life", "never-up", |pod| restarts(pod, "main") >= 1)?;
    ensure!(begun.elapsed() < Duration::from_secs(25), "{:?}", begun.elapsed());
    let output = node.agent.ask(&["explain", "never-up"])?;
    ensure_has(&output, &["Killing", ": Container main failed startup probe, will be restarted"])
}

/// On the node's own network, answered by the test itself.
const HEADED: &str = r#"
  hostNetwork: true
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: BUSYBOX
    command: [sleep, "1000"]
    readinessProbe:
      httpGet: {path: "/first?a=b", port: 7080, httpHeaders: [{name: X-One, value: "1"}, {name: X-One, value: "2"}]}
      periodSeconds: 1
"#;
const WIRED: &str = r#"
  hostNetwork: true
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: BUSYBOX
    command: [sleep, "1000"]
    readinessProbe: {grpc: {port: 7081, service: desk}, periodSeconds: 1, failureThreshold: 1}
"#;

fn headed(node: &StandaloneNode<'_>, probe_server: &ProbeServer) -> Result<()> {
    node.until_ready("headed").context("redirects on the same host are followed")?;
    let heads = probe_server.heads.lock().map(|heads| heads.clone()).unwrap_or_default();
    let first = heads.iter().find(|head| head.starts_with("GET /first?a=b ")).context("asked")?;
    let lower = first.to_lowercase();
    ensure_has(&lower, &["user-agent: kube-probe/1.36", "x-one: 1\r\n", "x-one: 2\r\n"])?;
    ensure_has(&lower, &["accept: */*", "connection: close"])?;
    ensure!(heads.iter().any(|head| head.starts_with("GET /second ")), "{heads:?}");
    Ok(())
}

fn wired(node: &StandaloneNode<'_>, probe_server: &ProbeServer) -> Result<()> {
    node.until_ready("wired")?;
    probe_server.serving.store(false, Ordering::SeqCst);
    node.until("not serving", "wired", |pod| !is_ready(pod))?;
    node.until_explained("wired", "Readiness probe failed: service unhealthy")?;
    probe_server.serving.store(true, Ordering::SeqCst);
    node.until_ready("wired")?;
    Ok(())
}

/// Readiness is recovered: neither the condition nor its time changes, and no container is killed.
fn no_flap(node: StandaloneNode<'_>) -> Result<StandaloneNode<'_>> {
    let names = ["flips", "gated", "headed"];
    let mut before = Vec::new();
    for name in names {
        let pod = node.until_ready(name)?;
        before.push((condition(&pod, "Ready").clone(), container(&pod, "main").clone()));
    }
    let node = node.restart_agent(|_| Ok(()))?;
    let begun = Instant::now();
    let mut looks = 0;
    while begun.elapsed() < Duration::from_secs(3) || (looks <= 10 && begun.elapsed() < WAIT_LIMIT)
    {
        for (name, (ready, main)) in names.iter().zip(&before) {
            // Before the first look at the runtime the agent has no word on its pods.
            let Some(pod) = node.pod(name)? else { continue };
            if pod["status"]["conditions"].is_null() {
                continue;
            }
            looks += 1;
            ensure!(condition(&pod, "Ready") == ready, "{name}: was {ready}, is {pod:#}");
            ensure!(container(&pod, "main") == main, "{name}: was {main}, is {pod:#}");
        }
    }
    ensure!(looks > 10, "the agent told of its pods {looks} times");
    Ok(node)
}

fn condition<'a>(pod: &'a Value, kind: &str) -> &'a Value {
    let all = pod["status"]["conditions"].as_array();
    all.into_iter().flatten().find(|one| one["type"] == kind).unwrap_or(&Value::Null)
}

/// The test's server for probes on the node's network: HTTP that redirects once, and gRPC health.
struct ProbeServer {
    heads: Arc<Mutex<Vec<String>>>,
    serving: Arc<AtomicBool>,
    _grpc: tokio::runtime::Runtime,
}

impl ProbeServer {
    fn start() -> Result<Self> {
        let own: IpAddr = NODE_ADDRESS.parse()?;
        let listener = TcpListener::bind((own, 7080))?;
        let heads = Arc::new(Mutex::new(Vec::new()));
        let noted = heads.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                answer(stream, &noted);
            }
        });
        let serving = Arc::new(AtomicBool::new(true));
        let grpc =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let health = grpc_health::HealthService { serving: serving.clone() };
        let server = tonic::transport::Server::builder().add_service(health);
        grpc.spawn(server.serve((own, 7081).into()));
        Ok(Self { heads, serving, _grpc: grpc })
    }
}

fn answer(mut stream: TcpStream, noted: &Mutex<Vec<String>>) -> Option<()> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).ok()? == 1 {
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    noted.lock().ok()?.push(head.clone());
    let answer = if head.starts_with("GET /second ") {
        "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"
    } else {
        "HTTP/1.1 302 Found\r\nlocation: /second\r\ncontent-length: 0\r\n\r\n"
    };
    stream.write_all(answer.as_bytes()).ok()
}

/// The standard health service of gRPC, for one service named `desk`.
mod grpc_health {
    use std::convert::Infallible;
    use std::future::{Ready, ready};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::{Context, Poll};

    use tonic::body::Body;
    use tonic::codegen::{BoxFuture, Service, http};
    use tonic::server::{Grpc, NamedService, UnaryService};
    use tonic::{Request, Response, Status};
    use tonic_prost::ProstCodec;

    const SERVING: i32 = 1;
    const NOT_SERVING: i32 = 2;

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct HealthRequest {
        #[prost(string, tag = "1")]
        service: String,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct HealthResponse {
        #[prost(int32, tag = "1")]
        status: i32,
    }

    #[derive(Clone)]
    pub(super) struct HealthService {
        pub(super) serving: Arc<AtomicBool>,
    }

    impl NamedService for HealthService {
        const NAME: &'static str = "grpc.health.v1.Health";
    }

    impl UnaryService<HealthRequest> for HealthService {
        type Response = HealthResponse;
        type Future = Ready<Result<Response<HealthResponse>, Status>>;

        fn call(&mut self, request: Request<HealthRequest>) -> Self::Future {
            let status = if self.serving.load(Ordering::SeqCst) { SERVING } else { NOT_SERVING };
            ready(match request.into_inner().service.as_str() {
                "desk" => Ok(Response::new(HealthResponse { status })),
                other => Err(Status::not_found(other.to_owned())),
            })
        }
    }

    impl Service<http::Request<Body>> for HealthService {
        type Response = http::Response<Body>;
        type Error = Infallible;
        type Future = BoxFuture<Self::Response, Self::Error>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, request: http::Request<Body>) -> Self::Future {
            let health = self.clone();
            Box::pin(async move {
                let codec = ProstCodec::<HealthResponse, HealthRequest>::default();
                Ok(Grpc::new(codec).unary(health, request).await)
            })
        }
    }
}
