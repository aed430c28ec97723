//! Allocation for a pod that is admitted, and the devices of a container that starts.
//!
//! Rule: a reservation ends with this task, however it ends. A pod's devices are on disk before the
//! pod is admitted.

use super::DeviceService;
use crate::metrics::names;
use container_setup::inputs::AllocatedDevices;
use pod_model::pod::Pod;
use ports::plugins::DeviceSetup;
use resource_allocation::{ContainerRequest, DeviceChoice, DeviceRequest, container_requests};
use tokio::time::Instant;
use tracing::info;

/// Devices that are reserved for a call to their plugin.
struct Reservation<'a> {
    service: &'a DeviceService,
    resource: &'a str,
    devices: Vec<String>,
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        self.service.table().cancel(self.resource, &self.devices);
    }
}

impl DeviceService {
    /// Gives the pod's containers, or only the one of that name, their devices.
    pub(crate) async fn allocate(&self, pod: &Pod, only: Option<&str>) -> Result<(), String> {
        self.wait_until_recovered().await;
        let mut is_changed = false;
        for request in self.requests(pod, only) {
            is_changed |= self.allocate_one(pod, &request).await?;
        }
        if is_changed {
            self.notify_change();
            self.checkpoint.wait_until_written().await?;
        }
        Ok(())
    }

    fn requests(&self, pod: &Pod, only: Option<&str>) -> Vec<ContainerRequest> {
        let table = self.table();
        container_requests(pod, only, |resource| table.is_device_resource(resource))
    }

    async fn allocate_one(&self, pod: &Pod, request: &ContainerRequest) -> Result<bool, String> {
        let mut preferred: Option<Vec<String>> = None;
        loop {
            let asked = DeviceRequest { pod, request, preferred: preferred.as_deref() };
            let choice = self.table().choose(&asked).map_err(|error| error.to_string())?;
            match choice {
                DeviceChoice::Nothing => return Ok(false),
                DeviceChoice::AskPreferred { endpoint, request } => {
                    let answer = self.port.preferred(&endpoint, &request).await;
                    preferred = Some(answer.map_err(|error| {
                        format!("device plugin GetPreferredAllocation rpc failed with err: {error}")
                    })?);
                }
                DeviceChoice::Allocate { endpoint, devices } => {
                    let reservation =
                        Reservation { service: self, resource: &request.resource, devices };
                    let began = Instant::now();
                    let answer = self.port.allocate(&endpoint, &reservation.devices).await;
                    let (metric, took) = (&names::DEVICE_ALLOCATION_DURATION, began.elapsed());
                    self.metrics.took(metric, &[&request.resource], took);
                    let answer = answer.map_err(|error| error.to_string())?;
                    self.table().record(pod, request, &reservation.devices, answer);
                    info!(
                        v = 2,
                        pod = pod.full_name(),
                        container = request.container,
                        resource = request.resource,
                        devices = ?reservation.devices,
                        "Allocated devices"
                    );
                    return Ok(true);
                }
            }
        }
    }

    /// What the container needs to use its devices; calls plugins that want to know of its start.
    pub(crate) async fn prepare(
        &self,
        pod: &Pod,
        container: &str,
    ) -> Result<AllocatedDevices, String> {
        self.wait_until_recovered().await;
        let uid = &*pod.metadata.uid;
        let mut is_missing = false;
        for request in self.requests(pod, Some(container)) {
            if request.count == 0 {
                continue;
            }
            let call = self.table().pre_start(uid, container, &request.resource)?;
            if let Some((connection, devices)) = call {
                let called = self.port.pre_start(&connection.endpoint, &devices).await;
                called.map_err(|error| {
                    format!("device plugin PreStartContainer rpc failed with err: {error}")
                })?;
            }
            is_missing |= !self.table().has_devices(uid, container, &request.resource);
        }
        if is_missing {
            // The plugin has registered since the pod was admitted.
            self.allocate(pod, Some(container)).await?;
        }
        Ok(allocated_devices(self.table().setup_of(uid, container)))
    }
}

fn allocated_devices(setup: DeviceSetup) -> AllocatedDevices {
    let DeviceSetup { env, mounts, devices, annotations, cdi_devices } = setup;
    AllocatedDevices { devices, cdi_devices, mounts, env: env.into_iter().collect(), annotations }
}
