//! systemd's service protocol: the notification socket and the watchdog.
//!
//! Rule: only if the environment asks for it, and the environment comes in as a value. One plain
//! datagram per message, never blocking: a service manager that does not read costs a lost message,
//! not a stuck agent. Sockets named by a path or in the abstract namespace; a `vsock:` address
//! (virtual machines that notify their host) is an error.

use ports::{ServiceNotifier, ServiceNotifierError, ServiceState};
use std::ffi::OsString;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// The environment variables set by the service manager.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServiceEnvironment {
    /// `NOTIFY_SOCKET`
    pub notify_socket: Option<OsString>,
    /// `WATCHDOG_USEC`
    pub watchdog_usec: Option<OsString>,
    /// `WATCHDOG_PID`
    pub watchdog_pid: Option<OsString>,
}

#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
pub enum ServiceEnvironmentError {
    #[error("WATCHDOG_USEC={0:?} is not a positive number of microseconds")]
    Interval(OsString),
    #[error("WATCHDOG_USEC={0:?} is too small: the watchdog's time must be longer than a second")]
    TooShort(OsString),
    #[error("WATCHDOG_PID={0:?} is not a process id")]
    Pid(OsString),
    #[error("NOTIFY_SOCKET={0:?} is neither a path nor an abstract socket name (@name)")]
    Socket(OsString),
}

/// upstream: pkg/kubelet/watchdog/watchdog_linux.go refuses to start at this or below.
const SHORTEST_WATCHDOG: Duration = Duration::from_secs(1);

impl ServiceEnvironment {
    /// The watchdog's timeout, if it is on and meant for the process `pid`.
    pub fn watchdog(&self, pid: u32) -> Result<Option<Duration>, ServiceEnvironmentError> {
        let Some(text) = self.watchdog_usec.as_ref().filter(|text| !text.is_empty()) else {
            return Ok(None);
        };
        let microseconds: u64 = text
            .to_str()
            .and_then(|text| text.parse().ok())
            .filter(|microseconds| *microseconds > 0)
            .ok_or_else(|| ServiceEnvironmentError::Interval(text.clone()))?;
        if let Some(wanted) = self.watchdog_pid.as_ref().filter(|wanted| !wanted.is_empty()) {
            let watched_pid: u32 = wanted
                .to_str()
                .and_then(|wanted| wanted.parse().ok())
                .ok_or_else(|| ServiceEnvironmentError::Pid(wanted.clone()))?;
            if watched_pid != pid {
                return Ok(None);
            }
        }
        let interval = Duration::from_micros(microseconds);
        if interval <= SHORTEST_WATCHDOG {
            return Err(ServiceEnvironmentError::TooShort(text.clone()));
        }
        Ok(Some(interval))
    }

    /// The socket to notify, if there is one.
    pub fn notification_socket(
        &self,
    ) -> Result<Option<NotificationSocket>, ServiceEnvironmentError> {
        match self.notify_socket.as_ref().filter(|name| !name.is_empty()) {
            None => Ok(None),
            Some(name) => NotificationSocket::named(name).map(Some),
        }
    }
}

/// A service manager's datagram socket.
#[derive(Debug, Clone)]
pub struct NotificationSocket {
    name: String,
    address: SocketAddr,
}

impl NotificationSocket {
    fn named(name: &OsString) -> Result<NotificationSocket, ServiceEnvironmentError> {
        let unusable = || ServiceEnvironmentError::Socket(name.clone());
        let address = match name.as_bytes() {
            [b'@', abstract_name @ ..] => SocketAddr::from_abstract_name(abstract_name),
            [b'/', ..] => SocketAddr::from_pathname(name),
            _ => return Err(unusable()),
        }
        .map_err(|_| unusable())?;
        Ok(NotificationSocket { name: name.to_string_lossy().into_owned(), address })
    }

    fn send(&self, message: &str) -> std::io::Result<()> {
        // A socket per message: a service manager that was restarted listens on a new one.
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        socket.send_to_addr(message.as_bytes(), &self.address).map(|_| ())
    }
}

impl ServiceNotifier for NotificationSocket {
    fn notify(&self, state: &ServiceState) -> Result<(), ServiceNotifierError> {
        let message = render(state);
        self.send(&message).map_err(|cause| ServiceNotifierError {
            socket: self.name.clone(),
            message,
            cause: cause.to_string(),
        })
    }
}

fn render(state: &ServiceState) -> String {
    match state {
        ServiceState::Ready => "READY=1".to_owned(),
        ServiceState::Stopping => "STOPPING=1".to_owned(),
        ServiceState::Watchdog => "WATCHDOG=1".to_owned(),
        // A newline would begin another assignment.
        ServiceState::Status(text) => format!("STATUS={}", text.replace(['\n', '\r'], " ")),
    }
}

#[cfg(test)]
mod tests;
