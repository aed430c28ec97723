//! Device plugins register: at the agent's own socket, or through the directory of plugins.
//!
//! Rule: a plugin is asked for its options before it is connected; the owner of the listings takes
//! it from there. Of two plugins of one resource the later one is used.

use super::listings::ListingCommand;
use super::{DeviceService, HeldPlugin, PLUGIN_TYPE};
use crate::metrics::names;
use crate::plugins::handler::{HandlerFuture, PluginHandler};
use ports::PortFuture;
use ports::plugins::{DeviceRegistrar, DeviceRegistrationRequest, PluginDescription};
use resource_allocation::{PluginConnection, registration};
use std::sync::Arc;
use tracing::{info, warn};

/// Receives the requests at the agent's own socket.
pub(super) struct Registrar {
    pub(super) service: Arc<DeviceService>,
}

impl DeviceRegistrar for Registrar {
    fn register(&self, request: DeviceRegistrationRequest) -> PortFuture<'_, Result<(), String>> {
        Box::pin(async move {
            let DeviceRegistrationRequest { version, endpoint, resource } = request;
            info!(resource, endpoint, version, "Got registration request from device plugin");
            let registered = match registration::check_request(&version, &resource) {
                Ok(()) => {
                    let endpoint = format!("{}/{endpoint}", self.service.dir.dir());
                    self.service.connect(&resource, &endpoint).await.map(drop)
                }
                Err(why) => Err(why),
            };
            if let Err(why) = &registered {
                warn!(resource, err = why, "Bad registration request from device plugin");
            }
            registered
        })
    }
}

impl DeviceService {
    /// Connects a plugin; its generation.
    async fn connect(&self, resource: &str, endpoint: &str) -> Result<u64, String> {
        let options = self.port.options(endpoint).await;
        let options =
            options.map_err(|error| format!("failed to get device plugin options: {error}"))?;
        let connection = PluginConnection { endpoint: endpoint.to_owned(), options };
        let generation = self.table().connected(resource, connection)?;
        self.metrics.count(&names::DEVICE_REGISTRATIONS, &[resource]);
        self.set_error(resource, None);
        let (resource, endpoint) = (resource.to_owned(), endpoint.to_owned());
        let command = ListingCommand::Start { resource, endpoint, generation };
        let sent = self.commands.send(command).await;
        sent.map_err(|_| "the agent is ending".to_owned())?;
        Ok(generation)
    }

    async fn register_plugin(
        &self,
        socket: &str,
        description: &PluginDescription,
    ) -> Result<(), String> {
        self.wait_until_recovered().await;
        let generation = self.connect(&description.name, &description.endpoint).await?;
        let held = HeldPlugin { description: description.clone(), generation };
        self.held_plugins().insert(socket.to_owned(), held);
        Ok(())
    }

    async fn deregister_plugin(&self, socket: &str) -> Result<(), String> {
        let Some(held) = self.held_plugins().remove(socket) else { return Ok(()) };
        let HeldPlugin { description, generation } = held;
        let command = ListingCommand::Stop { resource: description.name, generation };
        self.commands.send(command).await.map_err(|_| "the agent is ending".to_owned())
    }
}

impl PluginHandler for DeviceService {
    fn plugin_type(&self) -> &'static str {
        PLUGIN_TYPE
    }

    fn validate(&self, _: &str, plugin: &PluginDescription) -> Result<(), String> {
        registration::check_plugin(&plugin.name, &plugin.versions)
    }

    fn register<'a>(&'a self, socket: &'a str, plugin: &'a PluginDescription) -> HandlerFuture<'a> {
        Box::pin(self.register_plugin(socket, plugin))
    }

    fn deregister<'a>(&'a self, socket: &'a str, _: &'a PluginDescription) -> HandlerFuture<'a> {
        Box::pin(self.deregister_plugin(socket))
    }

    fn held(&self) -> Vec<(String, PluginDescription)> {
        let held = self.held_plugins();
        held.iter().map(|(socket, plugin)| (socket.clone(), plugin.description.clone())).collect()
    }
}
