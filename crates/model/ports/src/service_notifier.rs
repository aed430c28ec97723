//! The port to the service manager that started this process (systemd's notification socket).
//!
//! Rule: a notification never blocks and may fail; an error never affects the agent's work.

/// A notification about the agent's state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServiceState {
    /// Start-up is finished.
    Ready,
    /// The agent is shutting down.
    Stopping,
    /// The agent is alive and healthy; resets the watchdog.
    Watchdog,
    /// One line of status text for operators.
    Status(String),
}

/// Receives the agent's notifications.
pub trait ServiceNotifier: Send + Sync {
    fn notify(&self, state: &ServiceState) -> Result<(), ServiceNotifierError>;
}

#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
#[error("cannot send {message:?} to the notification socket {socket}: {cause}")]
pub struct ServiceNotifierError {
    pub socket: String,
    pub message: String,
    pub cause: String,
}
