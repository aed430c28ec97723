//! What a container needs to use its devices: the answers of all of its plugins as one.
//!
//! Rule: the first of several settings for one name, path or device is used.
//!
//! upstream: pkg/kubelet/cm/devicemanager/pod_devices.go (deviceRunContainerOptions)

use std::collections::BTreeMap;

use ports::plugins::DeviceSetup;

use crate::device_table::{AllocatedResource, DeviceTable, PluginConnection};

#[cfg(test)]
mod tests;

impl DeviceTable {
    /// The settings of a container; empty where it has no devices.
    pub fn setup_of(&self, uid: &str, container: &str) -> DeviceSetup {
        let mut merged = DeviceSetup::default();
        for allocated in self.of_container(uid, container).into_iter().flat_map(BTreeMap::values) {
            merge(&mut merged, &allocated.setup);
        }
        merged
    }

    /// The plugin that is to be called before the container starts, with the container's devices;
    /// None where it need not be.
    pub fn pre_start(
        &self,
        uid: &str,
        container: &str,
        resource: &str,
    ) -> Result<Option<(PluginConnection, Vec<String>)>, String> {
        let entry = self.resources.get(resource).ok_or_else(|| {
            format!("endpoint not found in cache for a registered resource: {resource}")
        })?;
        let connection = entry.connection().filter(|it| it.options.pre_start_required);
        let Some(connection) = connection else { return Ok(None) };
        let allocated = self.allocated(uid, container, resource).ok_or_else(|| {
            format!(
                "no devices found allocated in local cache for pod {uid}, container {container}, \
                 resource {resource}"
            )
        })?;
        let ids = allocated.ids().into_iter().map(str::to_owned).collect();
        Ok(Some((connection.clone(), ids)))
    }

    /// Whether the container has devices of the resource.
    pub fn has_devices(&self, uid: &str, container: &str, resource: &str) -> bool {
        self.allocated(uid, container, resource).is_some()
    }

    pub(crate) fn of_container(
        &self,
        uid: &str,
        container: &str,
    ) -> Option<&BTreeMap<String, AllocatedResource>> {
        self.pods.get(uid)?.get(container)
    }
}

fn merge(merged: &mut DeviceSetup, next: &DeviceSetup) {
    for (name, value) in &next.env {
        merged.env.entry(name.clone()).or_insert_with(|| value.clone());
    }
    for (name, value) in &next.annotations {
        merged.annotations.entry(name.clone()).or_insert_with(|| value.clone());
    }
    for mount in &next.mounts {
        if merged.mounts.iter().all(|known| known.container_path != mount.container_path) {
            merged.mounts.push(mount.clone());
        }
    }
    for device in &next.devices {
        if merged.devices.iter().all(|known| known.container_path != device.container_path) {
            merged.devices.push(device.clone());
        }
    }
    for name in &next.cdi_devices {
        if !merged.cdi_devices.contains(name) {
            merged.cdi_devices.push(name.clone());
        }
    }
}
