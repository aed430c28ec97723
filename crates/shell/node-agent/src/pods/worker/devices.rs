//! A worker and the devices of its pod: allocated before the pod counts as admitted.
//!
//! Rule: allocated once for each worker. A pod with a sandbox that is ready runs since before this
//! worker, and keeps what it has; any other one is checked as a new pod is, also after a reboot.
//! What cannot be allocated rejects the pod, and the decision holds.
//!
//! upstream: pkg/kubelet/cm/devicemanager/manager.go, pkg/kubelet/cm/topologymanager/scope.go

use super::Worker;
use super::service_tasks::{ServiceTask, after_delay};
use crate::pods::PodContext;
use crate::worker_events::WorkerEvent;
use pod_lifecycle::Admission;
use pod_model::pod::Pod;
use resource_allocation::{REJECTION_REASON, may_need_devices, rejection_message};
use std::time::Duration;
use tokio::sync::watch;
use tracing::warn;

/// How far the devices of the pod are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum DeviceStage {
    #[default]
    NotBegun,
    Allocating,
    Done,
}

/// The changes that a pod with devices follows.
pub(super) fn changes(context: &PodContext, pod: &Pod) -> Option<watch::Receiver<u64>> {
    let devices = context.devices.as_ref().filter(|_| may_need_devices(pod));
    devices.map(|devices| devices.changes())
}

/// Waits for the next change; for ever where there are none.
pub(super) async fn changed(changes: &mut Option<watch::Receiver<u64>>) {
    if let Some(changes) = changes
        && changes.changed().await.is_ok()
    {
        return;
    }
    std::future::pending::<()>().await;
}

impl Worker {
    /// An admitted pod waits for its devices.
    pub(super) fn take_admission(&mut self, admission: Admission) {
        let waits = admission == Admission::Admitted && !self.has_devices();
        self.fact_store.admission(if waits { Admission::WaitingForDevices } else { admission });
    }

    /// Whether the pod has its devices; begins to allocate them.
    fn has_devices(&mut self) -> bool {
        let needs = self.context.devices.is_some() && may_need_devices(self.pod());
        // A pod that ends was never decided about, and needs nothing.
        let needs = needs && self.context.admissions.is_decided(&self.uid);
        if !needs || self.memory.has_ended() {
            return true;
        }
        let is_adopted = self.observed.sandboxes.iter().any(|sandbox| sandbox.ready);
        if self.device_stage == DeviceStage::NotBegun && is_adopted {
            self.device_stage = DeviceStage::Done;
        }
        if self.device_stage == DeviceStage::NotBegun {
            self.device_stage = DeviceStage::Allocating;
            self.allocate_devices(Duration::ZERO);
        }
        self.device_stage == DeviceStage::Done
    }

    pub(super) fn allocate_devices(&mut self, delay: Duration) {
        let Some(devices) = self.context.devices.clone() else { return };
        let (pod, events) = (self.pod().clone(), self.worker_events.clone());
        let task = async move {
            let allocated = devices.allocate(&pod, None).await;
            // Fails only where the worker is gone.
            let _ = events.send(Box::new(WorkerEvent::Devices(allocated))).await;
        };
        let name = format!("devices of pod {}", self.uid);
        self.service_tasks.start(ServiceTask::Devices, name, after_delay(delay, task));
    }

    pub(super) fn on_devices(&mut self, result: Result<(), String>) {
        self.device_stage = DeviceStage::Done;
        let Err(why) = result else { return };
        warn!(pod = self.pod().full_name(), pod_uid = self.uid, err = why, "Pod gets no devices");
        self.release_devices();
        self.context.admissions.reject(&self.uid, REJECTION_REASON, rejection_message(&why));
    }

    pub(super) fn release_devices(&self) {
        if let Some(devices) = &self.context.devices {
            devices.release(&self.uid);
        }
    }

    pub(super) fn read_device_health(&mut self, changes: &mut Option<watch::Receiver<u64>>) {
        let (Some(changes), Some(devices)) = (changes, &self.context.devices) else { return };
        changes.borrow_and_update();
        self.fact_store.facts.allocated_resources = devices.health_of(&self.uid);
    }
}
