//! The endpoint on real sockets.

use super::*;
use ports::HealthCheck;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

struct AlwaysHealthy;

impl HealthCheck for AlwaysHealthy {
    fn name(&self) -> &str {
        "ping"
    }
    fn check(&self) -> Result<(), String> {
        Ok(())
    }
}

fn checks() -> HealthChecks {
    let checks: Vec<Arc<dyn HealthCheck>> = vec![Arc::new(AlwaysHealthy)];
    checks.into()
}

async fn ask(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).await.unwrap();
    reply
}

#[tokio::test]
async fn the_health_endpoint_serves_real_sockets_within_its_limits() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let talk = async {
        let reply =
            ask(address, "GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await;
        assert!(reply.starts_with("HTTP/1.1 200 OK\r\n"), "{reply}");
        assert!(reply.contains("content-type: text/plain; charset=utf-8\r\n"), "{reply}");
        assert!(reply.ends_with("\r\n\r\nok"), "{reply}");
        let reply =
            ask(address, "HEAD /livez HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await;
        assert!(reply.starts_with("HTTP/1.1 404 Not Found\r\n"), "{reply}");
        assert!(reply.ends_with("\r\n\r\n"), "{reply}");
        // Head too long: refused, not buffered without end.
        let long = "x".repeat(64 * 1024);
        let reply = ask(address, &format!("GET /{long} HTTP/1.1\r\n\r\n")).await;
        assert!(!reply.contains("200 OK"), "{reply}");
        // At the limit: idle connections do not block a new one once one of them closes.
        let mut idle = Vec::new();
        for _ in 0..MAX_CONNECTIONS {
            idle.push(TcpStream::connect(address).await.unwrap());
        }
        idle.pop();
        let reply =
            ask(address, "GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await;
        assert!(reply.ends_with("ok"), "{reply}");
    };
    let talk = tokio::time::timeout(Duration::from_secs(30), talk);
    let counts = Arc::default();
    tokio::select! {
        error = serve_connections(listener, checks(), &counts) => panic!("{error}"),
        finished = talk => finished.unwrap(),
    }
}

#[tokio::test]
async fn a_port_in_use_is_an_error_with_the_address() {
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = taken.local_addr().unwrap();
    let error = HttpHealthEndpoint::new(address, Arc::default()).serve(checks()).await;
    assert!(error.to_string().starts_with(&format!("cannot listen on {address}: ")), "{error}");
}
