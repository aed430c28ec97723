//! The supervisor's end of a pod's socket, played by a test.

use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::Arc;

use pod_supervisor::protocol::frame::{FrameError, FrameReader, Outgoing};
use pod_supervisor::protocol::{
    Answer, Ask, Event, Hello, Nothing, PodState, Reply, Request, Said, Told, VERSION,
};
use tokio::io::Interest;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;

pub(super) struct Listener(UnixListener);

impl Listener {
    pub(super) fn in_folder(folder: &Path) -> Self {
        Self(UnixListener::bind(folder.join(pod_supervisor::SOCKET)).expect("bound"))
    }

    /// Accepts a client and greets it.
    pub(super) async fn accept(&self) -> Peer {
        let (socket, _) = self.0.accept().await.expect("accepted");
        let mut peer = Peer { socket: Arc::new(socket), reader: FrameReader::default() };
        let request = peer.next().await;
        assert!(matches!(request.ask, Some(Ask::Hello(_))), "{request:?}");
        let hello = Hello { version: VERSION, program: "script".into() };
        answer(&peer.socket, request.id, Told::Hello(hello));
        peer
    }
}

/// A connected client (the server under test).
pub(super) struct Peer {
    socket: Arc<UnixStream>,
    reader: FrameReader,
}

/// A client that is answered automatically, as long as this is held.
pub(super) struct Served {
    socket: Arc<UnixStream>,
    serving: tokio::task::JoinHandle<()>,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

fn send(socket: &UnixStream, said: Said) {
    let mut frame = Outgoing::new(&Reply { said: Some(said) }, Vec::new()).expect("a frame");
    assert!(frame.send(socket.as_fd()).expect("sent"));
}

fn answer(socket: &UnixStream, id: u64, told: Told) {
    send(socket, Said::Answer(Answer { id, failure: None, told: Some(told) }));
}

impl Peer {
    /// The next request; waits for ever once the client is gone.
    pub(super) async fn next(&mut self) -> Request {
        loop {
            if let Some(received) = self.reader.take::<Request>().expect("a frame") {
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
        answer(&self.socket, id, Told::Done(Nothing {}));
    }

    /// Answers lists with this, everything else with "done"; other requests can be received.
    pub(super) fn serve(mut self, known: PodState) -> (Served, mpsc::UnboundedReceiver<Ask>) {
        let (sender, asked) = mpsc::unbounded_channel();
        let socket = Arc::clone(&self.socket);
        let serving = tokio::spawn(async move {
            loop {
                let request = self.next().await;
                match request.ask.expect("a request that is known") {
                    Ask::List(_) => answer(&self.socket, request.id, Told::State(known.clone())),
                    other => {
                        let _ = sender.send(other);
                        self.done(request.id);
                    }
                }
            }
        });
        (Served { socket, serving }, asked)
    }
}

impl Served {
    pub(super) fn announce(&self, event: Event) {
        send(&self.socket, Said::Event(event));
    }
}
