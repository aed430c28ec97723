//! All devices of the node, and the containers that have them.
//!
//! Rule: a resource has one plugin, the one that was connected last; what an earlier one reports is
//! dropped. While a plugin is gone its devices count, and none of them can be given; after five
//! minutes the resource is forgotten. Containers keep what they have, whatever their plugin does.
//!
//! upstream: pkg/kubelet/cm/devicemanager/manager.go

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ports::plugins::{DevicePluginOptions, DeviceSetup, PluginDevice};

#[cfg(test)]
mod tests;

/// How long a resource outlives its plugin.
const STOP_GRACE: Duration = Duration::from_secs(5 * 60);
/// More resources than any node has; a plugin that registers ever new names stops here.
const MAX_RESOURCES: usize = 1_000;
/// More devices than fit into a message of the size limit.
const MAX_DEVICES: usize = 200_000;

/// A plugin that is connected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PluginConnection {
    /// The socket of its service.
    pub endpoint: String,
    pub options: DevicePluginOptions,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PluginState {
    Connected(PluginConnection),
    Stopped { at: Duration },
}

/// A resource and its devices.
#[derive(Clone, Debug)]
pub(crate) struct DeviceResource {
    pub(crate) devices: BTreeMap<String, PluginDevice>,
    pub(crate) plugin: PluginState,
    /// Counts connections, so that an earlier plugin's reports are recognized.
    pub(crate) generation: u64,
    /// Whether the devices are those of a plugin that is there: a new connection that replaces
    /// another one keeps them until its own first list.
    pub(crate) is_current: bool,
    /// Whether the node reports the resource: not before the first list or the first failure.
    pub(crate) is_known: bool,
}

impl DeviceResource {
    fn new(plugin: PluginState) -> Self {
        Self { devices: BTreeMap::new(), plugin, generation: 0, is_current: false, is_known: false }
    }

    pub(crate) fn connection(&self) -> Option<&PluginConnection> {
        match &self.plugin {
            PluginState::Connected(connection) => Some(connection),
            PluginState::Stopped { .. } => None,
        }
    }

    /// The devices that can be given to containers, if they are free.
    pub(crate) fn healthy(&self) -> BTreeSet<&str> {
        let devices = self.devices.values().filter(|device| self.is_current && device.healthy);
        devices.map(|device| device.id.as_str()).collect()
    }
}

/// What a container has of one resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllocatedResource {
    /// By NUMA node; -1 for devices without one.
    pub by_numa_node: BTreeMap<i64, Vec<String>>,
    /// The plugin's answer to the allocation, as it came.
    pub encoded: Vec<u8>,
    pub setup: DeviceSetup,
}

impl AllocatedResource {
    pub(crate) fn ids(&self) -> BTreeSet<&str> {
        self.by_numa_node.values().flatten().map(String::as_str).collect()
    }
}

/// By container, then by resource.
pub(crate) type PodDevices = BTreeMap<String, BTreeMap<String, AllocatedResource>>;

/// The devices of the node. Times are durations since any fixed time.
#[derive(Clone, Debug, Default)]
pub struct DeviceTable {
    pub(crate) resources: BTreeMap<String, DeviceResource>,
    /// Resources that are gone; the node reports zero of them.
    pub(crate) removed: BTreeSet<String>,
    /// By UID.
    pub(crate) pods: BTreeMap<String, PodDevices>,
    /// Devices that were chosen and not recorded yet, with the pod: by resource and device.
    pub(crate) reserved: BTreeMap<String, BTreeMap<String, String>>,
    generations: u64,
}

impl DeviceTable {
    /// After a restart: what an earlier agent has written. The resources count as stopped now.
    pub fn recover<'a>(
        allocated: impl IntoIterator<Item = (&'a str, &'a str, &'a str, AllocatedResource)>,
        resources: impl IntoIterator<Item = String>,
        now: Duration,
    ) -> Self {
        let mut table = Self::default();
        for (uid, container, resource, devices) in allocated {
            table.insert(uid, container, resource, devices);
        }
        for name in resources {
            let stopped = DeviceResource::new(PluginState::Stopped { at: now });
            table.resources.insert(name, DeviceResource { is_known: true, ..stopped });
        }
        table
    }

    /// A plugin of the resource was connected; the number belongs to all of its reports.
    pub fn connected(
        &mut self,
        resource: &str,
        connection: PluginConnection,
    ) -> Result<u64, String> {
        if !self.resources.contains_key(resource) && self.resources.len() >= MAX_RESOURCES {
            return Err(format!(
                "this node has {MAX_RESOURCES} resources of device plugins already; it takes no \
                 more"
            ));
        }
        self.generations += 1;
        let plugin = PluginState::Connected(connection);
        let entry = self.resources.entry(resource.to_owned());
        let entry = entry.or_insert_with(|| DeviceResource::new(plugin.clone()));
        entry.plugin = plugin;
        entry.generation = self.generations;
        Ok(self.generations)
    }

    /// All devices of a plugin. False where it is not the resource's plugin any more.
    pub fn listed(&mut self, resource: &str, generation: u64, devices: Vec<PluginDevice>) -> bool {
        let Some(entry) = self.of_generation(resource, generation) else { return false };
        let devices = devices.into_iter().take(MAX_DEVICES);
        entry.devices = devices.map(|device| (device.id.clone(), device)).collect();
        entry.is_current = true;
        entry.is_known = true;
        self.removed.remove(resource);
        true
    }

    /// A plugin has ended. False where it is not the resource's plugin any more.
    pub fn stopped(&mut self, resource: &str, generation: u64, now: Duration) -> bool {
        let Some(entry) = self.of_generation(resource, generation) else { return false };
        entry.plugin = PluginState::Stopped { at: now };
        entry.is_current = false;
        entry.is_known = true;
        self.removed.remove(resource);
        true
    }

    fn of_generation(&mut self, resource: &str, generation: u64) -> Option<&mut DeviceResource> {
        let entry = self.resources.get_mut(resource);
        entry.filter(|entry| {
            entry.generation == generation && matches!(entry.plugin, PluginState::Connected(_))
        })
    }

    /// When the next resource is to be forgotten.
    pub fn next_expiry(&self) -> Option<Duration> {
        let stopped = self.resources.values().filter_map(|entry| match entry.plugin {
            PluginState::Stopped { at } => Some(at + STOP_GRACE),
            PluginState::Connected(_) => None,
        });
        stopped.min()
    }

    /// Forgets the resources whose plugins have been gone for long; whether there were any.
    pub fn expire(&mut self, now: Duration) -> bool {
        let is_due = |entry: &DeviceResource| match entry.plugin {
            PluginState::Stopped { at } => at + STOP_GRACE <= now,
            PluginState::Connected(_) => false,
        };
        let due = self.resources.iter().filter(|(_, entry)| is_due(entry));
        let due: Vec<String> = due.map(|(name, _)| name.clone()).collect();
        for name in &due {
            self.resources.remove(name);
            if self.removed.len() < MAX_RESOURCES {
                self.removed.insert(name.clone());
            }
        }
        !due.is_empty()
    }

    /// Whether the resource is a device plugin's: one that is registered, or that a pod has.
    pub fn is_device_resource(&self, resource: &str) -> bool {
        self.resources.get(resource).is_some_and(|entry| entry.is_known)
            || self.has_allocated(resource)
    }

    fn has_allocated(&self, resource: &str) -> bool {
        let containers = self.pods.values().flat_map(BTreeMap::values);
        containers.flat_map(BTreeMap::keys).any(|name| name == resource)
    }

    /// The names of all device plugins' resources.
    pub fn device_resources(&self) -> BTreeSet<String> {
        let registered = self.resources.iter().filter(|(_, entry)| entry.is_known);
        let containers = self.pods.values().flat_map(BTreeMap::values);
        let allocated = containers.flat_map(BTreeMap::keys);
        registered.map(|(name, _)| name).chain(allocated).cloned().collect()
    }

    /// All resources, each with its plugin where that is there.
    pub fn plugins(&self) -> impl Iterator<Item = (&str, Option<&PluginConnection>)> {
        self.resources.iter().map(|(name, entry)| (name.as_str(), entry.connection()))
    }

    /// The number of the resource's last connection.
    pub fn generation(&self, resource: &str) -> Option<u64> {
        self.resources.get(resource).map(|entry| entry.generation)
    }

    /// The plugin of a resource; an error where there is none.
    pub fn plugin(&self, resource: &str) -> Result<PluginConnection, String> {
        let connection = self.resources.get(resource).and_then(DeviceResource::connection);
        connection.cloned().ok_or_else(|| format!("unknown Device Plugin {resource}"))
    }

    pub(crate) fn insert(
        &mut self,
        uid: &str,
        container: &str,
        resource: &str,
        devices: AllocatedResource,
    ) {
        let pod = self.pods.entry(uid.to_owned()).or_default();
        let container = pod.entry(container.to_owned()).or_default();
        container.insert(resource.to_owned(), devices);
    }

    pub(crate) fn allocated(
        &self,
        uid: &str,
        container: &str,
        resource: &str,
    ) -> Option<&AllocatedResource> {
        self.pods.get(uid)?.get(container)?.get(resource)
    }

    /// Whether the pod has devices.
    pub fn has_pod(&self, uid: &str) -> bool {
        self.pods.contains_key(uid)
    }

    /// The UIDs of the pods that have one of these devices.
    pub fn pods_with(&self, resource: &str) -> Vec<String> {
        let has = |pod: &PodDevices| pod.values().any(|it| it.contains_key(resource));
        let pods = self.pods.iter().filter(|(_, pod)| has(pod));
        pods.map(|(uid, _)| uid.clone()).collect()
    }

    /// Takes the pod's devices back; whether it had any.
    pub fn release(&mut self, uid: &str) -> bool {
        for devices in self.reserved.values_mut() {
            devices.retain(|_, pod| pod != uid);
        }
        self.reserved.retain(|_, devices| !devices.is_empty());
        self.pods.remove(uid).is_some()
    }

    /// Takes the devices of all pods back that `is_present` does not know.
    pub fn retain(&mut self, is_present: impl Fn(&str) -> bool) -> bool {
        let gone = self.pods.keys().filter(|uid| !is_present(uid)).cloned();
        let gone: Vec<String> = gone.collect();
        for uid in &gone {
            self.release(uid);
        }
        !gone.is_empty()
    }
}
