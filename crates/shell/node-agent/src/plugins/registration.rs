//! The owner of the registry: carries out what it asks for, and reports back.
//!
//! Rule: one step in flight for each socket. The directory is looked at whenever it changed; between
//! changes nothing runs.

use super::handler::PluginHandler;
use super::view;
use crate::clock::{AgentClock, later};
use crate::keyed_tasks::{KeyedTasks, Panicked};
use plugin_registry::{PluginPhase, PluginRegistry, RegistrationStep, RegistryAction, StepOutcome};
use ports::local_plugins::LocalPlugins;
use ports::plugins::{PluginDescription, PluginDirScan, PluginDirWatch, PluginRegistration};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;
use tracing::{error, info, warn};

#[cfg(test)]
mod tests;

/// Registration of plugins, and what is known of it.
pub(crate) struct PluginRegistrations {
    dir: tokio::sync::Mutex<Box<dyn PluginDirWatch>>,
    registration: Arc<dyn PluginRegistration>,
    handlers: Vec<Arc<dyn PluginHandler>>,
    clock: AgentClock,
    view: Mutex<LocalPlugins>,
}

impl PluginRegistrations {
    pub(crate) fn new(
        dir: Box<dyn PluginDirWatch>,
        registration: Arc<dyn PluginRegistration>,
        handlers: Vec<Arc<dyn PluginHandler>>,
        clock: AgentClock,
    ) -> Self {
        let view = LocalPlugins { dir: dir.dir(), ..LocalPlugins::default() };
        let dir = tokio::sync::Mutex::new(dir);
        Self { dir, registration, handlers, clock, view: Mutex::new(view) }
    }

    pub(crate) fn view(&self) -> LocalPlugins {
        self.view.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn change_view(&self, change: impl FnOnce(&mut LocalPlugins)) {
        change(&mut self.view.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn handler(&self, plugin_type: &str) -> Option<&Arc<dyn PluginHandler>> {
        self.handlers.iter().find(|it| it.plugin_type() == plugin_type)
    }

    fn validate(&self, socket: &str, plugin: &PluginDescription) -> Result<(), String> {
        let Some(handler) = self.handler(&plugin.plugin_type) else {
            let known: Vec<&str> = self.handlers.iter().map(|it| it.plugin_type()).collect();
            return Err(format!(
                "RegisterPlugin error -- no handler registered for plugin type: {} at socket \
                 {socket}; this node has {}",
                plugin.plugin_type,
                known.join(", ")
            ));
        };
        handler.validate(socket, plugin).map_err(|error| {
            format!("RegisterPlugin error -- plugin validation failed with err: {error}")
        })
    }

    async fn register(&self, socket: &str, plugin: &PluginDescription) -> Result<(), String> {
        let Some(handler) = self.handler(&plugin.plugin_type) else { return Ok(()) };
        handler.register(socket, plugin).await.map_err(|error| {
            format!("RegisterPlugin error -- plugin registration failed with err: {error}")
        })
    }

    async fn deregister(&self, socket: &str, plugin: &PluginDescription) -> Result<(), String> {
        let Some(handler) = self.handler(&plugin.plugin_type) else { return Ok(()) };
        handler.deregister(socket, plugin).await
    }
}

/// Runs for ever.
pub(crate) async fn run(registrations: Arc<PluginRegistrations>) {
    let mut dir = registrations.dir.lock().await;
    let held = registrations.handlers.iter().flat_map(|handler| handler.held());
    let mut owner = RegistryOwner {
        registry: PluginRegistry::resume(held),
        steps: KeyedTasks::default(),
        began: Instant::now(),
        ignored: BTreeMap::new(),
        registrations: registrations.clone(),
    };
    loop {
        let mut look = dir.next();
        let looked = loop {
            let next_try = owner.registry.next_try().map(|at| owner.began + at);
            tokio::select! {
                looked = &mut look => break looked,
                (socket, ended) = owner.steps.next() => owner.finished(&socket, ended),
                () = sleep_until(next_try) => {
                    let actions = owner.registry.elapsed(owner.now());
                    owner.perform(actions);
                }
            }
        };
        drop(look);
        owner.looked(looked);
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// What the task holds.
struct RegistryOwner {
    registry: PluginRegistry,
    steps: KeyedTasks<String, StepOutcome>,
    began: Instant,
    ignored: BTreeMap<String, String>,
    registrations: Arc<PluginRegistrations>,
}

impl RegistryOwner {
    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn looked(&mut self, looked: Result<PluginDirScan, String>) {
        let scan = match looked {
            Ok(scan) => scan,
            Err(why) => {
                let is_new = self.registrations.view().dir_error != why;
                if is_new {
                    error!(
                        err = why,
                        "Directory of plugins cannot be read; plugins stay as they are until it can"
                    );
                }
                self.registrations.change_view(|view| view.dir_error = why);
                return;
            }
        };
        for (path, reason) in &scan.ignored {
            if self.ignored.get(path) != Some(reason) {
                warn!(path, reason, "Ignoring a file in the directory of plugins");
            }
        }
        self.ignored.clone_from(&scan.ignored);
        self.registrations.change_view(|view| {
            view.dir_error = String::new();
            view.ignored = view::ignored_files(&scan.ignored);
        });
        let actions = self.registry.scanned(&scan, self.now());
        self.perform(actions);
    }

    fn finished(&mut self, socket: &str, ended: Result<StepOutcome, Panicked>) {
        let outcome = ended.unwrap_or_else(|Panicked(message)| StepOutcome::Failed(message));
        let actions = self.registry.finished(socket, outcome, self.now());
        self.perform(actions);
        let found = self.registry.plugins().find(|plugin| plugin.socket == socket);
        let Some(plugin) = found else {
            info!(v = 2, socket, "Plugin is gone");
            return;
        };
        let name = plugin.description.as_ref().map(|it| it.name.as_str()).unwrap_or_default();
        match (&plugin.phase, &plugin.last_error) {
            (PluginPhase::Registered(_), _) => info!(socket, name, "Plugin is registered"),
            (PluginPhase::Waiting { .. }, Some(why)) => {
                let retry = plugin.next_try.unwrap_or_default().saturating_sub(self.now());
                let next_step = view::next_step(&plugin);
                let retry_in_seconds = retry.as_secs_f64();
                warn!(
                    socket,
                    name,
                    err = why,
                    retry_in_seconds,
                    next_step,
                    "Plugin is not registered"
                );
            }
            _ => {}
        }
    }

    fn perform(&mut self, actions: Vec<RegistryAction>) {
        for action in actions {
            match action {
                RegistryAction::Start { socket, step } => {
                    let registrations = self.registrations.clone();
                    let task = carry_out(registrations, socket.clone(), step);
                    self.steps.start(socket, "plugin-step", task);
                }
                RegistryAction::Abort { socket } => {
                    self.steps.abort(&socket);
                }
            }
        }
        let (now, clock) = (self.now(), &self.registrations.clock);
        let time_of = |at: Duration| later(clock.now(), at.saturating_sub(now)).nanos();
        let plugins = self.registry.plugins();
        let plugins = plugins.map(|plugin| view::local_plugin(&plugin, time_of)).collect();
        self.registrations.change_view(|view| view.plugins = plugins);
    }
}

async fn carry_out(
    registrations: Arc<PluginRegistrations>,
    socket: String,
    step: RegistrationStep,
) -> StepOutcome {
    let done = match step {
        RegistrationStep::Introduce => {
            return match registrations.registration.introduction(&socket).await {
                Ok(description) => StepOutcome::Introduced(description),
                Err(error) => StepOutcome::Failed(error.to_string()),
            };
        }
        RegistrationStep::Validate(plugin) => registrations.validate(&socket, &plugin),
        RegistrationStep::Register(plugin) => registrations.register(&socket, &plugin).await,
        RegistrationStep::Notify(result) => {
            let result = match &result {
                Ok(()) => Ok(()),
                Err(why) => Err(why.as_str()),
            };
            let notified = registrations.registration.notify(&socket, result).await;
            notified.map_err(|error| error.to_string())
        }
        RegistrationStep::Deregister(plugin) => registrations.deregister(&socket, &plugin).await,
    };
    done.map_or_else(StepOutcome::Failed, |()| StepOutcome::Succeeded)
}
