//! Scripted servers for the tests of this crate.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

pub(crate) struct ScriptedProbeServer {
    pub(crate) port: u16,
    heads: Arc<Mutex<Vec<String>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for ScriptedProbeServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl ScriptedProbeServer {
    /// Answers each request with what the script returns for its head.
    pub(crate) async fn start(script: impl Fn(&str) -> Vec<u8> + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let heads = Arc::new(Mutex::new(Vec::new()));
        let seen = heads.clone();
        let task = tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let head = read_head(&mut stream).await;
                seen.lock().unwrap().push(head.clone());
                let _sent = stream.write_all(&script(&head)).await;
            }
        });
        Self { port, heads, task }
    }

    pub(crate) fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }
}

async fn read_head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        if stream.read(&mut byte).await.unwrap_or(0) == 0 {
            break;
        }
        head.push(byte[0]);
    }
    String::from_utf8_lossy(&head).into_owned()
}

/// Sockets of the machine in TIME_WAIT before a test began: a port that is new to the test may be
/// the remote port of one that another process has left.
pub(crate) struct TimeWaitSockets(HashSet<(String, String)>);

impl TimeWaitSockets {
    pub(crate) fn now() -> Self {
        Self(sockets().collect())
    }

    /// Those that appeared since then and lead to this port. (If a server closed first, the socket
    /// is the server's.)
    pub(crate) fn since(&self, port: u16) -> usize {
        let port = format!(":{port:04X}");
        let is_new = |it: &(String, String)| it.1.ends_with(&port) && !self.0.contains(it);
        sockets().filter(is_new).count()
    }
}

/// Both ends of each socket in TIME_WAIT.
fn sockets() -> impl Iterator<Item = (String, String)> {
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let ends = |line: &str| {
        let mut fields = line.split_whitespace().skip(1);
        let (local, remote) = (fields.next()?, fields.next()?);
        (fields.next()? == "06").then(|| (local.to_owned(), remote.to_owned()))
    };
    let found: Vec<_> = table.lines().filter_map(ends).collect();
    found.into_iter()
}
