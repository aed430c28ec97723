//! Pods that answer, refuse, or do not respond.

use rustix::net::{bind, connect, getsockname, listen};

use super::*;

const LONG: Duration = Duration::from_secs(10);

/// With a namespace that may be entered: this process's own.
fn dialer() -> PodDialer {
    let namespace = rustix::process::geteuid().is_root().then(|| "/proc/self/ns/net".to_owned());
    PodDialer { sandbox: "pod".to_owned(), namespace }
}

#[tokio::test]
async fn ports_are_reached_on_either_address() {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        // Skipped on a host without the address.
        let Ok(listener) = tokio::net::TcpListener::bind(address).await else { continue };
        let at = listener.local_addr().unwrap();
        let stream = dialer().connect(at.port()).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap(), at);
        drop(listener);
        let refused = dialer().connect(at.port()).await.unwrap_err();
        assert!(refused.text.contains("refused"), "{refused}");
    }
}

/// A listener with a full backlog: connecting to it never completes.
fn full() -> (u16, Vec<OwnedFd>) {
    let listener = make(AddressFamily::INET).unwrap();
    bind(&listener, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    listen(&listener, 0).unwrap();
    let address: SocketAddr = getsockname(&listener).unwrap().try_into().unwrap();
    let mut all = vec![listener];
    for _ in 0..8 {
        let waiting = make(AddressFamily::INET).unwrap();
        let _ = connect(&waiting, &address);
        all.push(waiting);
    }
    (address.port(), all)
}

/// The blocking pool's threads are few, and all of the runtime needs them.
#[test]
fn a_pod_that_does_not_answer_blocks_no_thread() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .max_blocking_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let (port, listener) = full();
        let mut connecting = tokio::task::JoinSet::new();
        for _ in 0..20 {
            connecting.spawn(async move { dialer().connect(port).await });
        }
        // They are queued before this.
        tokio::task::yield_now().await;
        let work = tokio::task::spawn_blocking(|| ());
        tokio::time::timeout(LONG, work).await.expect("a thread is free").unwrap();
        assert!(connecting.try_join_next().is_none(), "the listener takes nobody");
        drop(listener);
    });
    runtime.shutdown_background();
}
