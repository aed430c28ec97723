//! CSI drivers: what a driver's registration changes of the Node and the CSINode.
//!
//! Rule: of drivers with one name, the one that was registered last is used; when it goes, the
//! former one is used again, and the CSINode loses its entry only with the last one. Writes to the
//! API server happen one after another, so that two drivers do not undo each other.
//!
//! upstream: pkg/volume/csi/csi_plugin.go, pkg/volume/csi/nodeinfomanager

mod limits;
mod objects;

#[cfg(test)]
mod tests;

pub(super) use limits::update_limits;
pub(super) use objects::initialize_csi_node;

use super::handler::{HandlerFuture, PluginHandler};
use objects::CsiObjects;
use plugin_registry::csi_version::{CsiVersion, highest_supported};
use ports::ClusterApi;
use ports::plugins::{CsiDrivers, CsiNodeInfo, PluginDescription};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tracing::{error, info};

const PLUGIN_TYPE: &str = "CSIPlugin";
/// Of all attempts to ask a driver about this node.
const NODE_INFO_LIMIT: Duration = Duration::from_secs(120);
/// Between them.
const NODE_INFO_PAUSES: [Duration; 3] =
    [Duration::from_secs(1), Duration::from_secs(2), Duration::from_secs(4)];

/// A registered driver.
struct CsiClaim {
    socket: String,
    plugin: PluginDescription,
    version: CsiVersion,
}

/// The drivers of this node.
pub(super) struct CsiRegistration {
    port: Arc<dyn CsiDrivers>,
    /// None for a standalone node.
    objects: Option<CsiObjects>,
    /// By driver; the last one is used.
    drivers: Mutex<BTreeMap<String, Vec<CsiClaim>>>,
    /// Held while objects are written.
    writing: tokio::sync::Mutex<()>,
    /// Notified when a driver was registered.
    registered: Notify,
    /// Why the CSINode is not initialized; None once it is.
    initialization: Mutex<Option<String>>,
    /// Notified when that changes.
    changes: watch::Sender<u64>,
}

impl CsiRegistration {
    pub(super) fn new(
        port: Arc<dyn CsiDrivers>,
        api: Option<Arc<dyn ClusterApi>>,
        node_name: &str,
        changes: watch::Sender<u64>,
    ) -> Self {
        let objects = api.map(|api| CsiObjects::new(api, node_name));
        let not_yet = objects.is_some().then(|| "CSINode is not yet initialized".to_owned());
        Self {
            port,
            objects,
            drivers: Mutex::default(),
            writing: tokio::sync::Mutex::default(),
            registered: Notify::new(),
            initialization: Mutex::new(not_yet),
            changes,
        }
    }

    pub(super) fn has_cluster(&self) -> bool {
        self.objects.is_some()
    }

    pub(super) fn initialization_error(&self) -> Option<String> {
        self.initialization.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_initialization_error(&self, error: Option<String>) {
        *self.initialization.lock().unwrap_or_else(PoisonError::into_inner) = error;
        self.changes.send_modify(|count| *count += 1);
    }

    fn drivers(&self) -> MutexGuard<'_, BTreeMap<String, Vec<CsiClaim>>> {
        self.drivers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The socket of the driver's service that is used.
    fn endpoint(&self, driver: &str) -> Option<String> {
        Some(self.drivers().get(driver)?.last()?.plugin.endpoint.clone())
    }

    fn forget(&self, socket: &str, driver: &str) {
        let mut drivers = self.drivers();
        if let Some(claims) = drivers.get_mut(driver) {
            claims.retain(|claim| claim.socket != socket);
            if claims.is_empty() {
                drivers.remove(driver);
            }
        }
    }

    /// Asks until an answer, a few times.
    async fn node_info(&self, endpoint: &str) -> Result<CsiNodeInfo, String> {
        let ask = async {
            for pause in NODE_INFO_PAUSES {
                match self.port.node_info(endpoint).await {
                    Ok(info) => return Ok(info),
                    Err(error) => info!(endpoint, err = %error, "Error calling CSI NodeGetInfo()"),
                }
                tokio::time::sleep(pause).await;
            }
            self.port.node_info(endpoint).await.map_err(|error| error.to_string())
        };
        let seconds = NODE_INFO_LIMIT.as_secs();
        let late = |_| Err(format!("NodeGetInfo at {endpoint}: no answer within {seconds} s"));
        tokio::time::timeout(NODE_INFO_LIMIT, ask).await.unwrap_or_else(late)
    }

    /// Writes what the driver that is used reports.
    async fn install(&self, driver: &str) -> Result<(), String> {
        let Some(endpoint) = self.endpoint(driver) else { return Ok(()) };
        let info = self.node_info(&endpoint).await?;
        let _writing = self.writing.lock().await;
        // Another driver of the name may be used by now; it writes its own.
        if self.endpoint(driver).as_ref() != Some(&endpoint) {
            return Ok(());
        }
        match &self.objects {
            Some(objects) => objects.install(driver, &info).await,
            None => Ok(()),
        }
    }

    /// Takes the driver out, unless there is another one of its name.
    async fn uninstall(&self, driver: &str) -> Result<(), String> {
        let _writing = self.writing.lock().await;
        match &self.objects {
            Some(objects) if self.endpoint(driver).is_none() => objects.uninstall(driver).await,
            _ => Ok(()),
        }
    }

    async fn register_driver(
        &self,
        socket: &str,
        plugin: &PluginDescription,
    ) -> Result<(), String> {
        let version = highest_supported(&plugin.versions)?;
        let driver = &plugin.name;
        self.forget(socket, driver);
        let claim = CsiClaim { socket: socket.to_owned(), plugin: plugin.clone(), version };
        self.drivers().entry(driver.clone()).or_default().push(claim);
        let installed = self.install(driver).await;
        if installed.is_err() {
            self.forget(socket, driver);
            if let Err(why) = self.uninstall(driver).await {
                error!(driver, err = why, "Cannot take a driver back that was not registered");
            }
        }
        self.registered.notify_one();
        installed
    }

    async fn deregister_driver(&self, socket: &str, driver: &str) -> Result<(), String> {
        self.forget(socket, driver);
        if self.endpoint(driver).is_some() {
            return self.install(driver).await;
        }
        self.uninstall(driver).await
    }
}

impl PluginHandler for CsiRegistration {
    fn plugin_type(&self) -> &'static str {
        PLUGIN_TYPE
    }

    fn validate(&self, socket: &str, plugin: &PluginDescription) -> Result<(), String> {
        let PluginDescription { name, endpoint, .. } = plugin;
        let describe = |why: String| {
            format!("validation failed for CSI Driver {name} at endpoint {endpoint}: {why}")
        };
        if !is_driver_name(name) {
            return Err(describe(format!("{name:?} is not a name of a CSI driver")));
        }
        let version = highest_supported(&plugin.versions).map_err(describe)?;
        let drivers = self.drivers();
        let used = drivers.get(name).and_then(|claims| claims.last());
        match used {
            Some(used) if used.socket != socket && used.version >= version => {
                Err(describe(format!(
                    "Another driver with the same name is already registered with a higher \
                     supported version: {:?} at socket {}",
                    used.version.to_string(),
                    used.socket
                )))
            }
            _ => Ok(()),
        }
    }

    fn register<'a>(&'a self, socket: &'a str, plugin: &'a PluginDescription) -> HandlerFuture<'a> {
        Box::pin(self.register_driver(socket, plugin))
    }

    fn deregister<'a>(
        &'a self,
        socket: &'a str,
        plugin: &'a PluginDescription,
    ) -> HandlerFuture<'a> {
        Box::pin(self.deregister_driver(socket, &plugin.name))
    }

    fn held(&self) -> Vec<(String, PluginDescription)> {
        let drivers = self.drivers();
        let claims = drivers.values().flatten();
        claims.map(|claim| (claim.socket.clone(), claim.plugin.clone())).collect()
    }
}

/// As the standard says: a domain name of at most 63 characters.
fn is_driver_name(name: &str) -> bool {
    let is_end = |it: Option<char>| it.is_some_and(|it| it.is_ascii_alphanumeric());
    let is_inner = |it: char| it.is_ascii_alphanumeric() || matches!(it, '-' | '.' | '_');
    name.len() <= 63
        && is_end(name.chars().next())
        && is_end(name.chars().last())
        && name.chars().all(is_inner)
}
