//! Frames of remote commands: SPDY/3.1, WebSocket, and the channels of Kubernetes on them.
//!
//! Pure: bytes to frames, and back. Input is decoded under limits, and a protocol violation is an
//! error that ends the connection. Nothing here connects, waits or knows containers.

pub mod channels;
pub mod spdy;
pub mod websocket;
