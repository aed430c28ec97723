//! Connected servers: their credentials, received requests and unsent messages.
//!
//! Rule: only root and the supervisor's own user are accepted. Nothing here blocks: a server that
//! does not read is disconnected when too much is queued, and has to reconnect.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use prost::Message;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::protocol::frame::{FrameReader, OutgoingFrame, ReceivedFrame};
use crate::protocol::{
    Event, MessageBody, RequestError, RequestErrorKind, Response, ResponseBody, SupervisorMessage,
    SupervisorRequest,
};

use super::RequestOrigin;

const MAX_CONNECTIONS: usize = 16;
const MAX_QUEUED_BYTES: usize = 4 * 1024 * 1024;

pub(super) fn listen(path: &Path) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    // The path may be longer than a socket address can hold.
    let dir = path.parent().ok_or_else(|| io::Error::other("the socket has no directory"))?;
    std::env::set_current_dir(dir)?;
    let name = path.file_name().ok_or_else(|| io::Error::other("the socket has no name"))?;
    let bound = rustix::net::bind(&socket, &rustix::net::SocketAddrUnix::new(Path::new(name))?);
    std::env::set_current_dir("/")?;
    bound?;
    std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    rustix::net::listen(&socket, 16)?;
    Ok(socket)
}

pub(super) struct AcceptedConnections {
    listener: OwnedFd,
    open: Vec<AcceptedConnection>,
    next: u64,
}

struct AcceptedConnection {
    id: u64,
    socket: OwnedFd,
    reader: FrameReader,
    queue: VecDeque<OutgoingFrame>,
    queued: usize,
    /// It has sent hello, so it receives events.
    greeted: bool,
    broken: bool,
}

impl AcceptedConnections {
    pub(super) fn new(listener: OwnedFd) -> Self {
        Self { listener, open: Vec::new(), next: 1 }
    }

    pub(super) fn listener(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// Each with its socket and whether messages are queued.
    pub(super) fn watched(&self) -> impl Iterator<Item = (u64, BorrowedFd<'_>, bool)> {
        self.open.iter().map(|one| (one.id, one.socket.as_fd(), !one.queue.is_empty()))
    }

    pub(super) fn accept(&mut self) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        while let Ok(socket) = rustix::net::accept_with(&self.listener, flags) {
            let peer = rustix::net::sockopt::socket_peercred(&socket);
            let known =
                peer.is_ok_and(|peer| peer.uid.is_root() || peer.uid == rustix::process::getuid());
            if known && self.open.len() < MAX_CONNECTIONS {
                let id = self.next;
                self.next += 1;
                self.open.push(AcceptedConnection {
                    id,
                    socket,
                    reader: FrameReader::default(),
                    queue: VecDeque::new(),
                    queued: 0,
                    greeted: false,
                    broken: false,
                });
            }
        }
    }

    fn find(&mut self, id: u64) -> Option<&mut AcceptedConnection> {
        self.open.iter_mut().find(|one| one.id == id)
    }

    /// The requests received on a connection, in order.
    pub(super) fn read(&mut self, id: u64) -> Vec<ReceivedFrame<SupervisorRequest>> {
        let mut requests = Vec::new();
        let Some(connection) = self.find(id) else { return requests };
        match connection.reader.fill(connection.socket.as_fd()) {
            Ok(true) => {}
            Err(crate::protocol::frame::FrameError::Io(error))
                if error.kind() == io::ErrorKind::WouldBlock => {}
            Ok(false) | Err(_) => connection.broken = true,
        }
        loop {
            match connection.reader.take() {
                Ok(Some(request)) => requests.push(request),
                Ok(None) => return requests,
                Err(error) => {
                    eprintln!("keelson-pod: a connection is closed: {error}");
                    connection.broken = true;
                    return requests;
                }
            }
        }
    }

    pub(super) fn greet(&mut self, id: u64) {
        if let Some(connection) = self.find(id) {
            connection.greeted = true;
        }
    }

    pub(super) fn respond(
        &mut self,
        to: RequestOrigin,
        body: ResponseBody,
        descriptors: Vec<OwnedFd>,
    ) {
        let respond = Response { id: to.request, error: None, body: Some(body) };
        self.send_message(
            to.connection,
            &SupervisorMessage { body: Some(MessageBody::Response(respond)) },
            descriptors,
        );
    }

    pub(super) fn refuse(
        &mut self,
        to: RequestOrigin,
        kind: RequestErrorKind,
        message: impl Into<String>,
    ) {
        let error = RequestError { kind: kind as i32, message: message.into() };
        let respond = Response { id: to.request, error: Some(error), body: None };
        self.send_message(
            to.connection,
            &SupervisorMessage { body: Some(MessageBody::Response(respond)) },
            Vec::new(),
        );
    }

    pub(super) fn announce(&mut self, event: &Event) {
        let reply = SupervisorMessage { body: Some(MessageBody::Event(event.clone())) };
        let greeted: Vec<u64> =
            self.open.iter().filter(|one| one.greeted).map(|one| one.id).collect();
        for id in greeted {
            self.send_message(id, &reply, Vec::new());
        }
    }

    fn send_message(&mut self, id: u64, message: &impl Message, descriptors: Vec<OwnedFd>) {
        let Some(connection) = self.find(id) else { return };
        match OutgoingFrame::new(message, descriptors) {
            Ok(frame) => {
                connection.queued += frame.len();
                connection.queue.push_back(frame);
            }
            Err(error) => {
                eprintln!("keelson-pod: an answer could not be sent: {error}");
                connection.broken = true;
            }
        }
        if connection.queued > MAX_QUEUED_BYTES {
            connection.broken = true;
        }
        self.write(id);
    }

    /// Writes as much as the socket takes now.
    pub(super) fn write(&mut self, id: u64) {
        let Some(connection) = self.find(id) else { return };
        while let Some(frame) = connection.queue.front_mut() {
            let before = frame.len();
            let outcome = frame.send(connection.socket.as_fd());
            connection.queued = connection.queued.saturating_sub(before - frame.len());
            match outcome {
                Ok(true) => drop(connection.queue.pop_front()),
                Ok(false) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => {
                    connection.broken = true;
                    return;
                }
            }
        }
    }

    pub(super) fn drop_broken(&mut self) {
        self.open.retain(|one| !one.broken);
    }

    pub(super) fn is_flushed(&self) -> bool {
        self.open.iter().all(|one| one.queue.is_empty() || one.broken)
    }
}
