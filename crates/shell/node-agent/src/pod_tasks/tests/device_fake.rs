//! Device plugins in memory: what they list, how they answer, and the directory with the checkpoint.

use crate::plugins::{DeviceDependencies, PluginDependencies};
use ports::PortFuture;
use ports::plugins::{
    CsiDrivers, CsiNodeInfo, DeviceAllocation, DeviceListing, DevicePluginDir, DevicePluginOptions,
    DevicePlugins, DeviceRegistrar, DeviceRegistrationRequest, DeviceSetup, PluginCallError,
    PluginDescription, PluginDevice, PluginDirScan, PluginDirWatch, PluginFuture,
    PluginRegistration, PodResourcesApi, PodResourcesEndpoint, PreferredDevices, SocketIdentity,
};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::sync::watch;

/// One plugin, by the path of its socket.
#[derive(Default)]
struct FakePlugin {
    options: DevicePluginOptions,
    /// None once it has ended.
    devices: watch::Sender<Option<Vec<PluginDevice>>>,
    allocate_error: Option<&'static str>,
    hangs: bool,
}

#[derive(Default)]
struct FakeState {
    plugins: BTreeMap<String, FakePlugin>,
    checkpoint: Option<Vec<u8>>,
    is_disk_broken: bool,
    calls: Vec<String>,
    /// Names of plugins whose sockets are in the directory of plugins.
    sockets: watch::Sender<Vec<String>>,
    registrar: Option<Arc<dyn DeviceRegistrar>>,
    pod_resources: Option<Arc<dyn PodResourcesApi>>,
}

/// All plugins of a node. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct FakeDevices(Arc<Mutex<FakeState>>);

/// Such as `1 2 !3`: device 3 is unhealthy.
fn devices(text: &str) -> Vec<PluginDevice> {
    let device = |text: &str| PluginDevice {
        id: text.trim_start_matches('!').to_owned(),
        healthy: !text.starts_with('!'),
        numa_nodes: Vec::new(),
    };
    text.split_whitespace().map(device).collect()
}

impl FakeDevices {
    fn state(&self) -> MutexGuard<'_, FakeState> {
        self.0.lock().unwrap()
    }

    pub(super) fn dependencies(&self) -> PluginDependencies {
        let this = Arc::new(self.clone());
        // The agent before this one has ended with its sockets.
        self.state().registrar = None;
        PluginDependencies {
            dir: Box::new(FakeDir(self.state().sockets.subscribe())),
            registration: this.clone(),
            csi: this.clone(),
            devices: DeviceDependencies {
                port: this.clone(),
                dir: this.clone(),
                reports_health: true,
            },
            pod_resources: this,
        }
    }

    /// Starts a plugin, or another one in its place, and registers it.
    pub(super) async fn plug_in(&self, name: &str, list: &str) -> Result<(), String> {
        self.plug_in_with(name, list, DevicePluginOptions::default()).await
    }

    pub(super) async fn plug_in_with(
        &self,
        name: &str,
        list: &str,
        options: DevicePluginOptions,
    ) -> Result<(), String> {
        let plugin = FakePlugin {
            options,
            devices: watch::Sender::new(Some(devices(list))),
            ..FakePlugin::default()
        };
        self.state().plugins.insert(format!("/plugins/{name}.sock"), plugin);
        self.register(name).await
    }

    /// Starts a plugin without registering it.
    pub(super) fn start(&self, name: &str, list: &str) {
        let devices = watch::Sender::new(Some(devices(list)));
        let plugin = FakePlugin { devices, ..FakePlugin::default() };
        self.state().plugins.insert(format!("/plugins/{name}.sock"), plugin);
    }

    /// The sockets in the directory of plugins.
    pub(super) fn put_sockets(&self, names: &[&str]) {
        let names = names.iter().map(ToString::to_string).collect();
        self.state().sockets.send_replace(names);
    }

    /// Waits for the agent's socket, and registers there.
    pub(super) async fn register(&self, name: &str) -> Result<(), String> {
        let request = DeviceRegistrationRequest {
            version: "v1beta1".to_owned(),
            endpoint: format!("{name}.sock"),
            resource: format!("example.com/{name}"),
        };
        loop {
            let registrar = self.state().registrar.clone();
            if let Some(registrar) = registrar {
                return registrar.register(request).await;
            }
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
    }

    pub(super) fn list(&self, name: &str, list: &str) {
        self.change(name, |plugin| {
            plugin.devices.send_replace(Some(devices(list)));
        });
    }

    pub(super) fn unplug(&self, name: &str) {
        self.change(name, |plugin| {
            plugin.devices.send_replace(None);
        });
    }

    pub(super) fn fail_allocation(&self, name: &str, error: Option<&'static str>) {
        self.change(name, |plugin| plugin.allocate_error = error);
    }

    pub(super) fn hang(&self, name: &str) {
        self.change(name, |plugin| plugin.hangs = true);
    }

    fn change(&self, name: &str, change: impl FnOnce(&mut FakePlugin)) {
        change(self.state().plugins.get_mut(&format!("/plugins/{name}.sock")).unwrap());
    }

    pub(super) fn break_disk(&self, is_broken: bool) {
        self.state().is_disk_broken = is_broken;
    }

    pub(super) fn checkpoint(&self) -> serde_json::Value {
        let bytes = self.state().checkpoint.clone().unwrap_or_default();
        serde_json::from_slice(&bytes).unwrap_or_default()
    }

    pub(super) fn set_checkpoint(&self, text: &str) {
        self.state().checkpoint = Some(text.as_bytes().to_vec());
    }

    pub(super) fn calls(&self) -> Vec<String> {
        self.state().calls.clone()
    }

    pub(super) fn pod_resources(&self) -> Arc<dyn PodResourcesApi> {
        self.state().pod_resources.clone().unwrap()
    }

    /// Notes the call; the plugin at the endpoint.
    fn called<T>(
        &self,
        call: &'static str,
        endpoint: &str,
        answer: impl FnOnce(&FakePlugin) -> Result<T, &'static str>,
    ) -> Result<T, PluginCallError> {
        let mut state = self.state();
        state.calls.push(call.to_owned());
        let plugin = state.plugins.get(endpoint).filter(|it| it.devices.borrow().is_some());
        let answer = plugin.ok_or("it is gone").and_then(answer);
        answer.map_err(|message| PluginCallError::Failed {
            call,
            socket: endpoint.to_owned(),
            code: "Unknown".to_owned(),
            message: message.to_owned(),
        })
    }
}

impl DevicePlugins for FakeDevices {
    fn options<'a>(&'a self, endpoint: &'a str) -> PluginFuture<'a, DevicePluginOptions> {
        let options = self.called("options", endpoint, |plugin| Ok(plugin.options));
        Box::pin(std::future::ready(options))
    }

    fn listing<'a>(&'a self, endpoint: &'a str) -> PluginFuture<'a, Box<dyn DeviceListing>> {
        let listing = self.called("listing", endpoint, |plugin| Ok(plugin.devices.subscribe()));
        let listing = listing.map(|mut devices| {
            devices.mark_changed();
            Box::new(FakeListing(devices)) as Box<dyn DeviceListing>
        });
        Box::pin(std::future::ready(listing))
    }

    fn allocate<'a>(
        &'a self,
        endpoint: &'a str,
        devices: &'a [String],
    ) -> PluginFuture<'a, DeviceAllocation> {
        let mut hangs = false;
        let answer = self.called("allocate", endpoint, |plugin| {
            hangs = plugin.hangs;
            plugin.allocate_error.map_or(Ok(()), Err)
        });
        let text = devices.join("+");
        let answer = answer.map(|()| DeviceAllocation {
            setup: self.decode(text.as_bytes()).unwrap(),
            encoded: text.into_bytes(),
        });
        Box::pin(async move {
            if hangs {
                std::future::pending::<()>().await;
            }
            answer
        })
    }

    fn preferred<'a>(
        &'a self,
        endpoint: &'a str,
        request: &'a PreferredDevices,
    ) -> PluginFuture<'a, Vec<String>> {
        let last = request.available.iter().rev().take(request.size).cloned().collect();
        let answer = self.called("preferred", endpoint, |_| Ok(last));
        Box::pin(std::future::ready(answer))
    }

    fn pre_start<'a>(&'a self, endpoint: &'a str, _: &'a [String]) -> PluginFuture<'a, ()> {
        let answer = self.called("pre_start", endpoint, |_| Ok(()));
        Box::pin(std::future::ready(answer))
    }

    /// The test's plugins answer with the names of the devices.
    fn decode(&self, encoded: &[u8]) -> Result<DeviceSetup, String> {
        let text = String::from_utf8(encoded.to_vec()).map_err(|error| error.to_string())?;
        let env = BTreeMap::from([("DEVICES".to_owned(), text)]);
        Ok(DeviceSetup { env, ..DeviceSetup::default() })
    }
}

struct FakeListing(watch::Receiver<Option<Vec<PluginDevice>>>);

impl DeviceListing for FakeListing {
    fn next(&mut self) -> PluginFuture<'_, Vec<PluginDevice>> {
        Box::pin(async move {
            let changed = self.0.changed().await.is_ok();
            let devices = self.0.borrow_and_update().clone().filter(|_| changed);
            devices.ok_or_else(|| PluginCallError::BadAnswer {
                call: "ListAndWatch",
                socket: "/plugins".to_owned(),
                cause: "the plugin ended its list".to_owned(),
            })
        })
    }
}

impl DevicePluginDir for FakeDevices {
    fn dir(&self) -> String {
        "/plugins".to_owned()
    }

    fn serve(&self, registrar: Arc<dyn DeviceRegistrar>) -> PortFuture<'_, String> {
        self.state().registrar = Some(registrar);
        Box::pin(std::future::pending())
    }

    fn read_checkpoint(&self) -> PortFuture<'_, Result<Option<Vec<u8>>, String>> {
        let checkpoint = self.state().checkpoint.clone();
        Box::pin(std::future::ready(Ok(checkpoint)))
    }

    fn write_checkpoint(&self, bytes: Vec<u8>) -> PortFuture<'_, Result<(), String>> {
        let mut state = self.state();
        let written = if state.is_disk_broken { Err("no space".to_owned()) } else { Ok(()) };
        if written.is_ok() {
            state.checkpoint = Some(bytes);
        }
        Box::pin(std::future::ready(written))
    }
}

impl PodResourcesEndpoint for FakeDevices {
    fn address(&self) -> String {
        "/pod-resources".to_owned()
    }

    fn serve(&self, api: Arc<dyn PodResourcesApi>) -> PortFuture<'_, String> {
        self.state().pod_resources = Some(api);
        Box::pin(std::future::pending())
    }
}

struct FakeDir(watch::Receiver<Vec<String>>);

impl PluginDirWatch for FakeDir {
    fn dir(&self) -> String {
        "/registry".to_owned()
    }

    fn next(&mut self) -> PortFuture<'_, Result<PluginDirScan, String>> {
        Box::pin(async move {
            if self.0.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
            let names = self.0.borrow_and_update().clone().into_iter();
            let identity = SocketIdentity { inode: 1, created: 1 };
            let sockets = names.map(|name| (format!("/registry/{name}"), identity)).collect();
            Ok(PluginDirScan { sockets, ..PluginDirScan::default() })
        })
    }
}

impl PluginRegistration for FakeDevices {
    fn introduction<'a>(&'a self, socket: &'a str) -> PluginFuture<'a, PluginDescription> {
        let name = socket.trim_start_matches("/registry/");
        let description = PluginDescription {
            plugin_type: "DevicePlugin".to_owned(),
            name: format!("example.com/{name}"),
            endpoint: format!("/plugins/{name}.sock"),
            versions: vec!["v1beta1".to_owned()],
        };
        Box::pin(std::future::ready(Ok(description)))
    }

    fn notify<'a>(&'a self, _: &'a str, _: Result<(), &'a str>) -> PluginFuture<'a, ()> {
        Box::pin(std::future::ready(Ok(())))
    }
}

impl CsiDrivers for FakeDevices {
    fn node_info<'a>(&'a self, _: &'a str) -> PluginFuture<'a, CsiNodeInfo> {
        Box::pin(std::future::pending())
    }
}
