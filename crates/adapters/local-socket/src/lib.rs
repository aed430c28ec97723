//! Serves the agent to people at this machine: HTTP and JSON over a unix socket.
//!
//! Rule: only root and the agent's own user may ask, whatever the modes of the socket's folder say:
//! the peer's credentials come from the kernel. Nobody may cost much: connections are bounded, heads
//! must arrive in time, bodies have a size and a deadline and are taken of writers only. It decides
//! nothing; the agent and its runtime answer.

mod listener;
mod reply;
mod socket;

pub use socket::LocalSocket;
