//! What the node's status says of its machine.
//!
//! Rule: values as the kernel and the files of the operating system have them; what cannot be read
//! is empty or absent, never invented. Reading ends within a deadline.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crate::PortFuture;

/// A snapshot of the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MachineFacts {
    pub cpus: i64,
    /// In bytes, as all amounts here.
    pub memory: i64,
    pub swap: i64,
    /// Bytes by resource name, such as `hugepages-2Mi`.
    pub huge_pages: BTreeMap<String, i64>,
    pub machine_id: String,
    pub system_uuid: String,
    pub boot_id: String,
    pub kernel_version: String,
    pub os_image: String,
    /// Of the file system of the root directory; absent where it does not answer.
    pub ephemeral_storage: Option<i64>,
    /// Addresses of all interfaces.
    pub addresses: BTreeSet<IpAddr>,
    /// What the node's name resolves to, in the resolver's order.
    pub by_name: Vec<IpAddr>,
    /// The address of this machine on the default route, per family.
    pub default_v4: Option<IpAddr>,
    pub default_v6: Option<IpAddr>,
}

pub trait MachineInfo: Send + Sync {
    /// Absent where the machine could not be read within the deadline.
    fn read(&self) -> PortFuture<'_, Option<MachineFacts>>;
}
