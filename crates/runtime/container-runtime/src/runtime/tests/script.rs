//! The supervisor's end of a pod's socket, played by a test.

use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::Arc;

use pod_supervisor::protocol::frame::{FrameError, FrameReader, OutgoingFrame};
use pod_supervisor::protocol::{
    Empty, Event, Hello, MessageBody, PodState, RequestBody, Response, ResponseBody,
    SupervisorMessage, SupervisorRequest, VERSION,
};
use tokio::io::Interest;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;

pub(super) struct FakeSupervisor(UnixListener);

impl FakeSupervisor {
    pub(super) fn in_dir(dir: &Path) -> Self {
        Self(UnixListener::bind(dir.join(pod_supervisor::SOCKET)).expect("bound"))
    }

    /// Accepts a client and greets it.
    pub(super) async fn accept(&self) -> ServerPeer {
        let (socket, _) = self.0.accept().await.expect("accepted");
        let mut peer = ServerPeer { socket: Arc::new(socket), reader: FrameReader::default() };
        let request = peer.next().await;
        assert!(matches!(request.body, Some(RequestBody::Hello(_))), "{request:?}");
        let hello = Hello { version: VERSION, program: "script".into() };
        respond(&peer.socket, request.id, ResponseBody::Hello(hello));
        peer
    }
}

/// A connected client (the server under test).
pub(super) struct ServerPeer {
    socket: Arc<UnixStream>,
    reader: FrameReader,
}

/// A client that is answered automatically, as long as this is held.
pub(super) struct AutoResponder {
    socket: Arc<UnixStream>,
    serving: tokio::task::JoinHandle<()>,
}

impl Drop for AutoResponder {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

fn send(socket: &UnixStream, body: MessageBody) {
    let mut frame =
        OutgoingFrame::new(&SupervisorMessage { body: Some(body) }, Vec::new()).expect("a frame");
    assert!(frame.send(socket.as_fd()).expect("sent"));
}

fn respond(socket: &UnixStream, id: u64, body: ResponseBody) {
    send(socket, MessageBody::Response(Response { id, error: None, body: Some(body) }));
}

impl ServerPeer {
    /// The next request; waits for ever once the client is gone.
    pub(super) async fn next(&mut self) -> SupervisorRequest {
        loop {
            if let Some(received) = self.reader.take::<SupervisorRequest>().expect("a frame") {
                return received.message;
            }
            self.socket.readable().await.expect("ready");
            let (socket, reader) = (&self.socket, &mut self.reader);
            let filled = socket.try_io(Interest::READABLE, || {
                reader.fill(socket.as_fd()).map_err(|error| match error {
                    FrameError::Io(error) => error,
                    other => std::io::Error::other(other.to_string()),
                })
            });
            if matches!(filled, Ok(false)) {
                std::future::pending::<()>().await;
            }
        }
    }

    pub(super) fn done(&self, id: u64) {
        respond(&self.socket, id, ResponseBody::Done(Empty {}));
    }

    /// Answers lists with this, everything else with "done"; other requests can be received.
    pub(super) fn serve(
        mut self,
        known: PodState,
    ) -> (AutoResponder, mpsc::UnboundedReceiver<RequestBody>) {
        let (sender, asked) = mpsc::unbounded_channel();
        let socket = Arc::clone(&self.socket);
        let serving = tokio::spawn(async move {
            loop {
                let request = self.next().await;
                match request.body.expect("a request that is known") {
                    RequestBody::List(_) => {
                        respond(&self.socket, request.id, ResponseBody::State(known.clone()));
                    }
                    other => {
                        let _ = sender.send(other);
                        self.done(request.id);
                    }
                }
            }
        });
        (AutoResponder { socket, serving }, asked)
    }
}

impl AutoResponder {
    pub(super) fn announce(&self, event: Event) {
        send(&self.socket, MessageBody::Event(event));
    }
}
