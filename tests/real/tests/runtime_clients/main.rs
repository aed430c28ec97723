//! `keelson cri` under clients that others wrote: the reference kubelet, kubectl through it, CNI
//! plugins, gRPC clients that name a socket as their authority.

mod calls;
mod foreign_grpc;
mod kubectl;
mod kubelet;
mod plugins;
mod terminal;
mod timed_plugins;
mod websocket;
