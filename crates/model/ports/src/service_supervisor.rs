//! What started this process and wants to hear of it (systemd's notification socket).
//!
//! Rule: telling is quick, may fail, and a failure never matters to the agent's work.

/// What the agent says about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServiceState {
    /// Start-up is finished.
    Ready,
    /// The agent is on its way out.
    Stopping,
    /// Still alive and healthy; keeps the watchdog quiet.
    Watchdog,
    /// One line for a person who looks at the service.
    Status(String),
}

/// Hears what the agent says about itself.
pub trait ServiceSupervisor: Send + Sync {
    fn tell(&self, state: &ServiceState) -> Result<(), ServiceSupervisorError>;
}

#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
#[error("cannot send {message:?} to the notification socket {socket}: {cause}")]
pub struct ServiceSupervisorError {
    pub socket: String,
    pub message: String,
    pub cause: String,
}
