//! The agent's API for people on this machine: HTTP and JSON over a unix socket.
//!
//! Rule: only root and the agent's own user may connect, whatever the modes of the socket's
//! directory: the peer's credentials come from the kernel. No client may cost much: connections are
//! bounded, request heads must arrive in time, bodies have a size limit and a deadline and are read
//! only for requests that write. It decides nothing; the agent and its runtime answer.

mod listener;
mod reply;
mod socket;

pub use socket::AgentSocket;
