//! Devices of device plugins: which exist, and which container has which of them.
//!
//! Rule: no call, no clock, no file. The shell asks [`DeviceTable::choose`] what a container gets,
//! calls the plugin, and records its answer; a device that was chosen is reserved until then, so
//! that two pods that are admitted at once never get the same one. Exclusive CPUs, alignment to
//! NUMA nodes and claims of dynamic resources are not decided here.
//!
//! upstream: pkg/kubelet/cm/devicemanager

pub mod checkpoint;
mod choice;
mod device_table;
mod pod_requests;
pub mod registration;
mod reports;
mod setup;

pub use choice::{
    AllocationError, DeviceChoice, DeviceRequest, REJECTION_REASON, rejection_message,
};
pub use device_table::{AllocatedResource, DeviceTable, PluginConnection};
pub use pod_requests::{ContainerRequest, container_requests, may_need_devices};
pub use reports::{DeviceCounts, DeviceHealth, ResourceHealthReport};
