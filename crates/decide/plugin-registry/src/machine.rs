//! The life of one socket: phases, inputs, and what follows from them.
//!
//! Rule: [`advance`] is the whole table. A step that has no effect outside of the plugin is aborted
//! when its socket goes; a registration in flight is waited for and then taken back. What a handler
//! accepted is remembered until the handler has given it up.

use ports::plugins::{PluginDescription, SocketIdentity};

#[cfg(test)]
mod tests;

/// A step that the shell carries out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegistrationStep {
    /// Ask the plugin for its name and type.
    Introduce,
    /// Ask the handler of its type whether it may be registered.
    Validate(PluginDescription),
    Register(PluginDescription),
    /// Tell the plugin that it is registered, or why not.
    Notify(Result<(), String>),
    Deregister(PluginDescription),
}

/// How a step ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepOutcome {
    /// Of `Introduce`.
    Introduced(PluginDescription),
    /// Of every other step.
    Succeeded,
    /// With a sentence for the log.
    Failed(String),
}

/// Where a socket is in its life. A step is in flight in all phases but `Registered` and `Waiting`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PluginPhase {
    Introducing,
    Validating(PluginDescription),
    Registering(PluginDescription),
    /// Registered with its handler; the plugin is being notified.
    Confirming(PluginDescription),
    /// The plugin is being notified that it was rejected, and why.
    Rejecting(String),
    Registered(PluginDescription),
    Deregistering(PluginDescription),
    /// For the next try. `remembered`: still to be deregistered by its handler.
    Waiting {
        remembered: Option<PluginDescription>,
    },
}

/// What happens to a socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SocketInput {
    /// It is there; also when it was before.
    Present(SocketIdentity),
    Absent,
    Finished(StepOutcome),
    /// The back-off is over.
    Due,
}

/// What follows, beside the next phase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SocketEffect {
    Nothing,
    /// Start this step; one in flight is aborted first.
    Start(RegistrationStep),
    /// The step in flight is aborted, and the socket forgotten.
    Abort,
    /// The socket is forgotten.
    Forget,
    /// Try again after a back-off that grows with each failure in a row.
    BackOff,
}

/// One socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketMachine {
    pub phase: PluginPhase,
    /// The socket that is there now.
    pub live: Option<SocketIdentity>,
    /// The socket that the phase is about.
    pub current: SocketIdentity,
    /// Of the last step that failed; cleared when it is registered.
    pub last_error: Option<String>,
    /// Failures in a row.
    pub failures: u32,
}

impl SocketMachine {
    /// A new socket, and its first step.
    pub fn new(identity: SocketIdentity) -> (Self, SocketEffect) {
        let machine = Self {
            phase: PluginPhase::Introducing,
            live: Some(identity),
            current: identity,
            last_error: None,
            failures: 0,
        };
        (machine, SocketEffect::Start(RegistrationStep::Introduce))
    }

    /// The table.
    pub fn advance(&mut self, input: SocketInput) -> SocketEffect {
        match input {
            SocketInput::Present(identity) => {
                self.live = Some(identity);
                self.on_socket()
            }
            SocketInput::Absent => {
                self.live = None;
                self.on_socket()
            }
            SocketInput::Finished(outcome) => self.on_finished(outcome),
            SocketInput::Due => match &self.phase {
                PluginPhase::Waiting { remembered: Some(description) } => {
                    self.deregister(description.clone())
                }
                PluginPhase::Waiting { remembered: None } => self.start_over(),
                _ => SocketEffect::Nothing,
            },
        }
    }

    /// Whether the phase is about the socket that is there.
    fn is_current(&self) -> bool {
        self.live == Some(self.current)
    }

    /// The socket may be gone or another one.
    fn on_socket(&mut self) -> SocketEffect {
        if self.is_current() {
            return SocketEffect::Nothing;
        }
        match &self.phase {
            PluginPhase::Introducing
            | PluginPhase::Validating(_)
            | PluginPhase::Rejecting(_)
            | PluginPhase::Waiting { remembered: None } => self.start_over(),
            PluginPhase::Confirming(description) | PluginPhase::Registered(description) => {
                self.deregister(description.clone())
            }
            // Their end decides.
            PluginPhase::Registering(_)
            | PluginPhase::Deregistering(_)
            | PluginPhase::Waiting { remembered: Some(_) } => SocketEffect::Nothing,
        }
    }

    fn on_finished(&mut self, outcome: StepOutcome) -> SocketEffect {
        match (self.phase.clone(), outcome) {
            (PluginPhase::Introducing, StepOutcome::Introduced(description)) => {
                self.phase = PluginPhase::Validating(description.clone());
                SocketEffect::Start(RegistrationStep::Validate(description))
            }
            (PluginPhase::Validating(description), StepOutcome::Succeeded) => {
                self.phase = PluginPhase::Registering(description.clone());
                SocketEffect::Start(RegistrationStep::Register(description))
            }
            (PluginPhase::Validating(_), StepOutcome::Failed(error)) => self.reject(error),
            (PluginPhase::Registering(description), StepOutcome::Succeeded) => {
                if !self.is_current() {
                    return self.deregister(description);
                }
                self.phase = PluginPhase::Confirming(description);
                SocketEffect::Start(RegistrationStep::Notify(Ok(())))
            }
            (PluginPhase::Registering(_), StepOutcome::Failed(error)) => {
                if !self.is_current() {
                    return self.start_over();
                }
                self.reject(error)
            }
            (PluginPhase::Confirming(description), StepOutcome::Succeeded) => {
                self.phase = PluginPhase::Registered(description);
                self.last_error = None;
                self.failures = 0;
                SocketEffect::Nothing
            }
            (PluginPhase::Confirming(description), StepOutcome::Failed(error)) => {
                self.last_error = Some(error);
                self.deregister(description)
            }
            // The reason for the rejection is worth more than that of a failed notification.
            (PluginPhase::Rejecting(error), _) => self.fail(error, None),
            (PluginPhase::Deregistering(_), StepOutcome::Succeeded) => {
                if !self.is_current() {
                    return self.start_over();
                }
                // A confirmation failed, unless the same file was moved away and back.
                match self.last_error.clone() {
                    Some(error) => self.fail(error, None),
                    None => self.start_over(),
                }
            }
            (PluginPhase::Deregistering(description), StepOutcome::Failed(error)) => {
                self.fail(error, Some(description))
            }
            (PluginPhase::Introducing, StepOutcome::Failed(error)) => self.fail(error, None),
            // A result of a step that was aborted, or of none.
            (
                PluginPhase::Registered(_) | PluginPhase::Waiting { .. },
                StepOutcome::Introduced(_) | StepOutcome::Succeeded | StepOutcome::Failed(_),
            ) => SocketEffect::Nothing,
            (phase, StepOutcome::Introduced(_) | StepOutcome::Succeeded) => {
                let error = format!("a step of {phase:?} ended with the result of another one");
                let remembered = match phase {
                    PluginPhase::Registering(description)
                    | PluginPhase::Confirming(description)
                    | PluginPhase::Deregistering(description) => Some(description),
                    _ => None,
                };
                self.fail(error, remembered)
            }
        }
    }

    fn reject(&mut self, error: String) -> SocketEffect {
        self.last_error = Some(error.clone());
        self.phase = PluginPhase::Rejecting(error.clone());
        SocketEffect::Start(RegistrationStep::Notify(Err(error)))
    }

    fn deregister(&mut self, description: PluginDescription) -> SocketEffect {
        self.phase = PluginPhase::Deregistering(description.clone());
        SocketEffect::Start(RegistrationStep::Deregister(description))
    }

    fn fail(&mut self, error: String, remembered: Option<PluginDescription>) -> SocketEffect {
        self.last_error = Some(error);
        self.failures = self.failures.saturating_add(1);
        self.phase = PluginPhase::Waiting { remembered };
        SocketEffect::BackOff
    }

    /// With the socket that is there; without one it is forgotten.
    fn start_over(&mut self) -> SocketEffect {
        let in_flight = !matches!(
            self.phase,
            PluginPhase::Waiting { .. }
                | PluginPhase::Deregistering(_)
                | PluginPhase::Registering(_)
        );
        let Some(identity) = self.live else {
            return if in_flight { SocketEffect::Abort } else { SocketEffect::Forget };
        };
        if identity != self.current {
            self.failures = 0;
            self.last_error = None;
        }
        self.current = identity;
        self.phase = PluginPhase::Introducing;
        SocketEffect::Start(RegistrationStep::Introduce)
    }
}
