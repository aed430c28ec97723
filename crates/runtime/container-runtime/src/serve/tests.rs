//! Connections that cannot be accepted.

use std::cell::Cell;
use std::time::Instant;

use super::*;

/// Fails some times, as without free descriptors, and then returns a connection.
struct Exhausted {
    refusals: Cell<u32>,
    tries: Cell<u32>,
}

impl Accept for Exhausted {
    fn poll_accept(&self, _: &mut Context<'_>) -> Poll<std::io::Result<UnixStream>> {
        self.tries.set(self.tries.get() + 1);
        let Some(left) = self.refusals.get().checked_sub(1) else {
            return Poll::Ready(UnixStream::pair().map(|(ours, _)| ours));
        };
        self.refusals.set(left);
        Poll::Ready(Err(rustix::io::Errno::MFILE.into()))
    }
}

#[tokio::test]
async fn a_failed_accept_is_tried_again_after_a_pause() {
    let listener = Exhausted { refusals: Cell::new(3), tries: Cell::new(0) };
    let mut incoming = Incoming::new(listener);
    let begun = Instant::now();
    let first = std::future::poll_fn(|context| Pin::new(&mut incoming).poll_next(context)).await;
    assert!(matches!(first, Some(Ok(_))), "a failed accept ends nothing");
    assert_eq!(incoming.listener.tries.get(), 4);
    assert!(begun.elapsed() >= 3 * PAUSE, "{:?}", begun.elapsed());
}

#[test]
fn looking_is_no_work() {
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
        assert_eq!(only_looks(call), looks, "{call}");
    }
}

#[tokio::test]
async fn work_is_counted_when_it_begins_and_ends() {
    use tower::{Layer as _, Service as _};
    let (counter, mut count) = watch::channel(0);
    let mut service = CountWork(Arc::new(counter)).layer(tower::service_fn(
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
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("cri.sock");
    let (first, own) = listen(&socket).await.unwrap();
    let refused = listen(&socket).await.unwrap_err().text;
    assert!(refused.starts_with("another server answers on ") && refused.ends_with("--listen"));
    assert_eq!(identity(&socket).unwrap(), own);
    drop(first);
    // A stale socket is replaced.
    assert_ne!(listen(&socket).await.unwrap().1, own);
}
