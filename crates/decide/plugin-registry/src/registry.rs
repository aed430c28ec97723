//! All sockets of the node, and when each is tried again.
//!
//! Rule: sockets do not affect each other but in one way: where a plugin was deregistered, another
//! one of its type and name that was rejected is tried again at once.

use std::collections::BTreeMap;
use std::time::Duration;

use ports::plugins::{PluginDescription, PluginDirScan, SocketIdentity};

use crate::machine::{
    PluginPhase, RegistrationStep, SocketEffect, SocketInput, SocketMachine, StepOutcome,
};

#[cfg(test)]
mod tests;

const FIRST_BACK_OFF: Duration = Duration::from_millis(500);
// upstream: pkg/util/goroutinemap/exponentialbackoff
const LONGEST_BACK_OFF: Duration = Duration::from_secs(122);

/// What the shell has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegistryAction {
    /// Start a step for the socket at this path; one that is in flight there is aborted first.
    Start { socket: String, step: RegistrationStep },
    /// Abort the step that is in flight for this socket.
    Abort { socket: String },
}

/// A plugin for operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegisteredPlugin {
    pub socket: String,
    /// None until it has introduced itself.
    pub description: Option<PluginDescription>,
    pub phase: PluginPhase,
    pub last_error: Option<String>,
    /// When it is tried again, on the clock of the inputs.
    pub next_try: Option<Duration>,
}

struct RegistryEntry {
    machine: SocketMachine,
    next_try: Option<Duration>,
    /// The last introduction of the current socket.
    introduced: Option<PluginDescription>,
}

/// The state of all sockets. Times are durations since any fixed time.
#[derive(Default)]
pub struct PluginRegistry {
    entries: BTreeMap<String, RegistryEntry>,
}

impl PluginRegistry {
    /// After the registry was lost while handlers held these plugins, by their sockets: the first
    /// scan takes them back, and registers again what is there.
    pub fn resume(held: impl IntoIterator<Item = (String, PluginDescription)>) -> Self {
        let unknown = SocketIdentity { inode: 0, created: 0 };
        let entry = |description: PluginDescription| RegistryEntry {
            machine: SocketMachine {
                phase: PluginPhase::Registered(description),
                ..SocketMachine::new(unknown).0
            },
            next_try: None,
            introduced: None,
        };
        let held = held.into_iter().map(|(socket, description)| (socket, entry(description)));
        Self { entries: held.collect() }
    }

    /// The sockets that are there now: all of them.
    pub fn scanned(&mut self, scan: &PluginDirScan, now: Duration) -> Vec<RegistryAction> {
        let mut actions = Vec::new();
        for (socket, identity) in &scan.sockets {
            if self.entries.contains_key(socket) {
                self.advance(socket, SocketInput::Present(*identity), now, &mut actions);
                continue;
            }
            let (machine, effect) = SocketMachine::new(*identity);
            let entry = RegistryEntry { machine, next_try: None, introduced: None };
            self.entries.insert(socket.clone(), entry);
            self.apply(socket, effect, now, &mut actions);
        }
        let gone: Vec<String> =
            self.entries.keys().filter(|it| !scan.sockets.contains_key(*it)).cloned().collect();
        for socket in gone {
            self.advance(&socket, SocketInput::Absent, now, &mut actions);
        }
        actions
    }

    /// The step in flight for this socket has ended.
    pub fn finished(
        &mut self,
        socket: &str,
        outcome: StepOutcome,
        now: Duration,
    ) -> Vec<RegistryAction> {
        let mut actions = Vec::new();
        if let (StepOutcome::Introduced(description), Some(entry)) =
            (&outcome, self.entries.get_mut(socket))
        {
            entry.introduced = Some(description.clone());
        }
        let deregistered = self.entries.get(socket).and_then(|entry| match &entry.machine.phase {
            PluginPhase::Deregistering(description) if outcome == StepOutcome::Succeeded => {
                Some(description.clone())
            }
            _ => None,
        });
        self.advance(socket, SocketInput::Finished(outcome), now, &mut actions);
        if let Some(description) = deregistered {
            self.retry_others(socket, &description, now, &mut actions);
        }
        actions
    }

    /// Tries again what is due.
    pub fn elapsed(&mut self, now: Duration) -> Vec<RegistryAction> {
        let mut actions = Vec::new();
        let due = |entry: &RegistryEntry| entry.next_try.is_some_and(|at| at <= now);
        let due: Vec<String> = self
            .entries
            .iter()
            .filter(|(_, entry)| due(entry))
            .map(|(socket, _)| socket.clone())
            .collect();
        for socket in due {
            self.advance(&socket, SocketInput::Due, now, &mut actions);
        }
        actions
    }

    /// When the next socket is tried again.
    pub fn next_try(&self) -> Option<Duration> {
        self.entries.values().filter_map(|entry| entry.next_try).min()
    }

    /// All plugins, by their sockets.
    pub fn plugins(&self) -> impl Iterator<Item = RegisteredPlugin> {
        self.entries.iter().map(|(socket, entry)| RegisteredPlugin {
            socket: socket.clone(),
            description: match &entry.machine.phase {
                PluginPhase::Validating(description)
                | PluginPhase::Registering(description)
                | PluginPhase::Confirming(description)
                | PluginPhase::Registered(description)
                | PluginPhase::Deregistering(description)
                | PluginPhase::Waiting { remembered: Some(description) } => {
                    Some(description.clone())
                }
                PluginPhase::Introducing
                | PluginPhase::Rejecting(_)
                | PluginPhase::Waiting { remembered: None } => entry.introduced.clone(),
            },
            phase: entry.machine.phase.clone(),
            last_error: entry.machine.last_error.clone(),
            next_try: entry.next_try,
        })
    }

    fn advance(
        &mut self,
        socket: &str,
        input: SocketInput,
        now: Duration,
        actions: &mut Vec<RegistryAction>,
    ) {
        let Some(entry) = self.entries.get_mut(socket) else { return };
        let effect = entry.machine.advance(input);
        self.apply(socket, effect, now, actions);
    }

    fn apply(
        &mut self,
        socket: &str,
        effect: SocketEffect,
        now: Duration,
        actions: &mut Vec<RegistryAction>,
    ) {
        let Some(entry) = self.entries.get_mut(socket) else { return };
        match effect {
            SocketEffect::Nothing => {}
            SocketEffect::Start(step) => {
                entry.next_try = None;
                if step == RegistrationStep::Introduce {
                    entry.introduced = None;
                }
                actions.push(RegistryAction::Start { socket: socket.to_owned(), step });
            }
            SocketEffect::BackOff => {
                entry.next_try = Some(now.saturating_add(back_off(entry.machine.failures)));
            }
            SocketEffect::Abort => {
                self.entries.remove(socket);
                actions.push(RegistryAction::Abort { socket: socket.to_owned() });
            }
            SocketEffect::Forget => {
                self.entries.remove(socket);
            }
        }
    }

    /// Those that may have been rejected because another plugin had their name.
    fn retry_others(
        &mut self,
        socket: &str,
        deregistered: &PluginDescription,
        now: Duration,
        actions: &mut Vec<RegistryAction>,
    ) {
        let same_name = |entry: &RegistryEntry| {
            entry.introduced.as_ref().is_some_and(|it| {
                it.plugin_type == deregistered.plugin_type && it.name == deregistered.name
            })
        };
        let others: Vec<String> = self
            .entries
            .iter()
            .filter(|(other, entry)| *other != socket && same_name(entry))
            .map(|(other, _)| other.clone())
            .collect();
        for other in others {
            self.advance(&other, SocketInput::Due, now, actions);
        }
    }
}

/// After so many failures in a row.
fn back_off(failures: u32) -> Duration {
    let doublings = failures.saturating_sub(1).min(16);
    FIRST_BACK_OFF.saturating_mul(1 << doublings).min(LONGEST_BACK_OFF)
}
