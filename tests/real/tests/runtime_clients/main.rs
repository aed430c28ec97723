//! `keelson cri` under foreign clients: the reference kubelet, kubectl through it, CNI plugins,
//! gRPC clients with a socket path as their authority.

mod calls;
mod foreign_grpc;
mod kubectl;
mod kubelet;
mod plugins;
mod terminal;
mod timed_plugins;
mod websocket;
