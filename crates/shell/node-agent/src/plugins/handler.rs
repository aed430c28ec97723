//! What accepts the plugins of one type.
//!
//! Rule: every method ends by itself, with a deadline for each call that it makes. A registration
//! that fails leaves nothing behind. A plugin is known by its socket; several sockets may have
//! plugins of one name.

use ports::PortFuture;
use ports::plugins::PluginDescription;

pub(crate) type HandlerFuture<'a> = PortFuture<'a, Result<(), String>>;

pub(crate) trait PluginHandler: Send + Sync {
    /// As plugins name it.
    fn plugin_type(&self) -> &'static str;

    /// Whether the plugin may be registered; an error is the text that the plugin gets.
    fn validate(&self, socket: &str, plugin: &PluginDescription) -> Result<(), String>;

    /// Registers it; an error is the text that the plugin gets.
    fn register<'a>(&'a self, socket: &'a str, plugin: &'a PluginDescription) -> HandlerFuture<'a>;

    /// Deregisters it; also where it was not registered. Repeated when it fails.
    fn deregister<'a>(
        &'a self,
        socket: &'a str,
        plugin: &'a PluginDescription,
    ) -> HandlerFuture<'a>;

    /// What is registered, by sockets.
    fn held(&self) -> Vec<(String, PluginDescription)>;
}
