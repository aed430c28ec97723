//! Frames of remote commands: SPDY/3.1, WebSocket, and the channels of Kubernetes on them.
//!
//! Pure: bytes in, frames out, and back. What others send is read under limits, and what breaks the
//! rules of a protocol is an error that ends the connection. Nothing here connects, waits or knows
//! containers.

pub mod channels;
pub mod spdy;
pub mod websocket;
