//! Connections that cannot be accepted.

use std::cell::Cell;
use std::time::Instant;

use super::*;

/// Fails some times, as without free descriptors, and then returns a connection.
struct ExhaustedListener {
    failures: Cell<u32>,
    tries: Cell<u32>,
}

impl Accept for ExhaustedListener {
    fn poll_accept(&self, _: &mut Context<'_>) -> Poll<std::io::Result<UnixStream>> {
        self.tries.set(self.tries.get() + 1);
        let Some(left) = self.failures.get().checked_sub(1) else {
            return Poll::Ready(UnixStream::pair().map(|(ours, _)| ours));
        };
        self.failures.set(left);
        Poll::Ready(Err(rustix::io::Errno::MFILE.into()))
    }
}

#[tokio::test]
async fn a_failed_accept_is_tried_again_after_a_pause() {
    let listener = ExhaustedListener { failures: Cell::new(3), tries: Cell::new(0) };
    let mut incoming = AcceptStream::new(listener);
    let begun = Instant::now();
    let first = std::future::poll_fn(|context| Pin::new(&mut incoming).poll_next(context)).await;
    assert!(matches!(first, Some(Ok(_))), "a failed accept ends nothing");
    assert_eq!(incoming.listener.tries.get(), 4);
    assert!(begun.elapsed() >= 3 * PAUSE, "{:?}", begun.elapsed());
}

#[test]
fn read_only_calls_are_not_counted() {
    for (call, looks) in [
        ("/runtime.v1.RuntimeService/ListPodSandbox", true),
        ("/runtime.v1.RuntimeService/Status", true),
        ("/runtime.v1.RuntimeService/ContainerStatus", true),
        ("/runtime.v1.RuntimeService/ListContainerStats", true),
        ("/runtime.v1.RuntimeService/GetContainerEvents", true),
        ("/runtime.v1.RuntimeService/RuntimeConfig", true),
        ("/runtime.v1.ImageService/ImageFsInfo", true),
        ("/runtime.v1.ImageService/PullImage", false),
        ("/runtime.v1.RuntimeService/ExecSync", false),
        ("/runtime.v1.RuntimeService/StartContainer", false),
        ("/runtime.v1.RuntimeService/UpdateRuntimeConfig", false),
    ] {
        assert_eq!(is_read_only(call), looks, "{call}");
    }
}

#[tokio::test]
async fn calls_are_counted_at_their_start_and_end() {
    use tower::{Layer as _, Service as _};
    let (counter, mut count) = watch::channel(0);
    let mut service = CountCalls(Arc::new(counter)).layer(tower::service_fn(
        |_: tonic::codegen::http::Request<()>| async { Ok::<_, std::convert::Infallible>(()) },
    ));
    let request = |call: &str| {
        tonic::codegen::http::Request::get(format!("/runtime.v1.RuntimeService/{call}"))
            .body(())
            .unwrap()
    };
    service.call(request("ListContainers")).await.unwrap();
    assert_eq!(*count.borrow_and_update(), 0);
    service.call(request("StopContainer")).await.unwrap();
    assert_eq!(*count.borrow_and_update(), 2);
}

/// The second of two servers on one socket gets an error; the first one keeps its socket.
#[tokio::test]
async fn a_socket_that_a_server_answers_on_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("cri.sock");
    let (first, own) = listen(&socket).await.unwrap();
    let refused = listen(&socket).await.unwrap_err().text;
    assert!(refused.starts_with("another server answers on ") && refused.ends_with("--listen"));
    assert_eq!(identity(&socket).unwrap(), own);
    drop(first);
    // A stale socket is replaced.
    assert_ne!(listen(&socket).await.unwrap().1, own);
}
