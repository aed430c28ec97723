//! Probes and hooks, and their handlers.
//!
//! A probe and a hook have one optional field for each kind of handler; [`Probe::action`] and
//! [`LifecycleHandler::action`] return the one that is set.

use super::codec::{object, string_enum};
use super::values::PortReference;

string_enum! {
    pub enum UriScheme { Http = "HTTP", Https = "HTTPS" }
}

object! {
    pub struct Probe {
        "exec" exec: Option<Box<ExecAction>>;
        "httpGet" http_get: Option<Box<HttpGetAction>>;
        "tcpSocket" tcp_socket: Option<Box<TcpSocketAction>>;
        "grpc" grpc: Option<Box<GrpcAction>>;
        "initialDelaySeconds" initial_delay_seconds: i32;
        "timeoutSeconds" timeout_seconds: i32;
        "periodSeconds" period_seconds: i32;
        "successThreshold" success_threshold: i32;
        "failureThreshold" failure_threshold: i32;
        "terminationGracePeriodSeconds" termination_grace_period_seconds: Option<i64>;
    }

    pub struct Lifecycle {
        "postStart" post_start: Option<Box<LifecycleHandler>>;
        "preStop" pre_stop: Option<Box<LifecycleHandler>>;
        "stopSignal" stop_signal: Option<Box<str>>;
    }

    pub struct LifecycleHandler {
        "exec" exec: Option<Box<ExecAction>>;
        "httpGet" http_get: Option<Box<HttpGetAction>>;
        "tcpSocket" tcp_socket: Option<Box<TcpSocketAction>>;
        "sleep" sleep: Option<SleepAction>;
    }

    pub struct ExecAction {
        "command" command: Vec<Box<str>>;
    }

    pub struct HttpGetAction {
        "path" path: Box<str>;
        "port" port: PortReference, always;
        "host" host: Box<str>;
        "scheme" scheme: UriScheme;
        "httpHeaders" http_headers: Vec<HttpHeader>;
    }

    pub struct HttpHeader {
        "name" name: Box<str>, always;
        "value" value: Box<str>, always;
    }

    pub struct TcpSocketAction {
        "port" port: PortReference, always;
        "host" host: Box<str>;
    }

    pub struct GrpcAction {
        "port" port: i32, always;
        "service" service: Option<Box<str>>, always;
    }

    pub struct SleepAction {
        "seconds" seconds: i64, always;
    }
}

/// The handler of a probe or a hook.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum HandlerAction<'spec> {
    Exec(&'spec ExecAction),
    HttpGet(&'spec HttpGetAction),
    TcpSocket(&'spec TcpSocketAction),
    Grpc(&'spec GrpcAction),
    Sleep(SleepActionSeconds),
}

/// How long a sleeping hook sleeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SleepActionSeconds(pub i64);

impl Probe {
    /// The handler of this probe; None for a probe that validation rejects.
    pub fn action(&self) -> Option<HandlerAction<'_>> {
        common_action(self.exec.as_deref(), self.http_get.as_deref(), self.tcp_socket.as_deref())
            .or_else(|| self.grpc.as_deref().map(HandlerAction::Grpc))
    }
}

impl LifecycleHandler {
    /// The handler of this hook; None for a hook that validation rejects.
    pub fn action(&self) -> Option<HandlerAction<'_>> {
        common_action(self.exec.as_deref(), self.http_get.as_deref(), self.tcp_socket.as_deref())
            .or_else(|| {
                self.sleep
                    .as_ref()
                    .map(|sleep| HandlerAction::Sleep(SleepActionSeconds(sleep.seconds)))
            })
    }
}

fn common_action<'spec>(
    exec: Option<&'spec ExecAction>,
    http_get: Option<&'spec HttpGetAction>,
    tcp_socket: Option<&'spec TcpSocketAction>,
) -> Option<HandlerAction<'spec>> {
    exec.map(HandlerAction::Exec)
        .or_else(|| http_get.map(HandlerAction::HttpGet))
        .or_else(|| tcp_socket.map(HandlerAction::TcpSocket))
}
