//! What the runtime keeps of a sandbox and of a container, on the disk and in memory.
//!
//! Fields are only ever added; a number is never used again. Times are nanoseconds since 1970.
//! What the supervisor knows better (process ids, exit codes of what runs now) is copied here when
//! it is told, so that a stopped pod can be shown after its supervisor is gone.

use cri_wire::v1;

use crate::durable::{Kept, Lasting};

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct SandboxRecord {
    #[prost(string, tag = "1")]
    pub id: String,
    #[prost(message, optional, tag = "2")]
    pub config: Option<v1::PodSandboxConfig>,
    #[prost(string, tag = "3")]
    pub runtime_handler: String,
    #[prost(int64, tag = "4")]
    pub created_at: i64,
    #[prost(enumeration = "SandboxStage", tag = "5")]
    pub stage: i32,
    /// None on the host's network.
    #[prost(message, optional, tag = "6")]
    pub network: Option<NetworkRecord>,
    /// Resources after the last update, where there was one.
    #[prost(message, optional, tag = "7")]
    pub resources: Option<v1::LinuxContainerResources>,
    #[prost(message, optional, tag = "8")]
    pub overhead: Option<v1::LinuxContainerResources>,
    /// The cgroup that the supervisor made for the pod's own processes.
    #[prost(string, tag = "9")]
    pub cgroup: String,
}

impl SandboxRecord {
    /// It tells of what is so, written or not; who reads an older one comes to the same.
    pub(crate) fn has_happened(&self) -> bool {
        self.stage() == SandboxStage::Stopped
    }
}

impl Kept for SandboxRecord {
    const KIND: &'static str = "sandbox";
    const VERSION: u32 = 1;

    /// What plugins did for a pod outlives a power cut, so that it is to be done must too; and a pod
    /// that is ready may have containers whose ends are not to be lost. The rest is found out again.
    fn lasting(&self) -> Lasting {
        match self.stage() {
            SandboxStage::Making if self.network.is_none() => Lasting::ThroughKills,
            SandboxStage::Making | SandboxStage::Ready => Lasting::Certain,
            SandboxStage::Stopped => Lasting::Whole,
        }
    }
}

/// How far a sandbox has come. What is neither ready nor stopped when the server starts was
/// interrupted, and is cleaned up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum SandboxStage {
    Making = 0,
    Ready = 1,
    Stopped = 2,
}

/// What was done to the network for a sandbox; written before it is done, so that it can be undone.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct NetworkRecord {
    /// Where the network namespace is pinned.
    #[prost(string, tag = "1")]
    pub namespace: String,
    #[prost(enumeration = "NetworkKind", tag = "2")]
    pub kind: i32,
    /// The first is the pod's address.
    #[prost(string, repeated, tag = "3")]
    pub addresses: Vec<String>,
    /// The configuration list that was used, as it was read, so that DEL sees what ADD saw.
    #[prost(bytes = "vec", tag = "4")]
    pub cni_configuration: Vec<u8>,
    #[prost(bytes = "vec", tag = "5")]
    pub cni_result: Vec<u8>,
    /// Whether set-up came to its end.
    #[prost(bool, tag = "6")]
    pub complete: bool,
    /// Whether it was taken down.
    #[prost(bool, tag = "7")]
    pub closed: bool,
    /// The host's end of the built-in network's link.
    #[prost(string, tag = "8")]
    pub link: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum NetworkKind {
    BuiltIn = 0,
    Cni = 1,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ContainerRecord {
    #[prost(string, tag = "1")]
    pub id: String,
    #[prost(string, tag = "2")]
    pub sandbox_id: String,
    #[prost(message, optional, tag = "3")]
    pub config: Option<v1::ContainerConfig>,
    /// The digest of the image's configuration.
    #[prost(string, tag = "4")]
    pub image_id: String,
    #[prost(int64, tag = "5")]
    pub created_at: i64,
    #[prost(int64, tag = "6")]
    pub started_at: i64,
    #[prost(int64, tag = "7")]
    pub finished_at: i64,
    #[prost(int32, tag = "8")]
    pub exit_code: i32,
    #[prost(string, tag = "9")]
    pub reason: String,
    #[prost(string, tag = "10")]
    pub message: String,
    #[prost(string, tag = "11")]
    pub log_path: String,
    #[prost(message, optional, tag = "12")]
    pub user: Option<v1::LinuxContainerUser>,
    /// A number; 0 for SIGTERM.
    #[prost(int32, tag = "13")]
    pub stop_signal: i32,
    /// Resources as they are now.
    #[prost(message, optional, tag = "14")]
    pub resources: Option<v1::LinuxContainerResources>,
    #[prost(string, tag = "15")]
    pub cgroup: String,
    #[prost(enumeration = "ContainerStage", tag = "16")]
    pub stage: i32,
    /// Anonymous volumes of the image, and views of images that are mounted as volumes.
    #[prost(string, repeated, tag = "17")]
    pub image_views: Vec<String>,
}

impl ContainerRecord {
    /// It tells of what is so, written or not. Who reads an older one hears the same from the
    /// supervisor, or goes on with a removal when it is asked for again. Only that a container is about
    /// to run must be written before it is true.
    pub(crate) fn has_happened(&self) -> bool {
        match self.stage() {
            ContainerStage::Making | ContainerStage::Created => false,
            ContainerStage::Started => self.started_at != 0,
            ContainerStage::Exited | ContainerStage::Unknown | ContainerStage::Removing => true,
        }
    }
}

impl Kept for ContainerRecord {
    const KIND: &'static str = "container";
    const VERSION: u32 = 1;

    /// That it was started is certain before it is, so that it never runs twice, and how it ended is
    /// never lost. One that never ran may go with a power cut: what was made for a container without
    /// a record is cleaned up at the next start. Nothing that lasts is replaced by what may spoil.
    fn lasting(&self) -> Lasting {
        match self.stage() {
            ContainerStage::Making | ContainerStage::Created => Lasting::ThroughKills,
            ContainerStage::Started if self.started_at == 0 => Lasting::Certain,
            ContainerStage::Started | ContainerStage::Removing => Lasting::Whole,
            ContainerStage::Exited | ContainerStage::Unknown => Lasting::Certain,
        }
    }
}

/// How far a container has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum ContainerStage {
    /// Interrupted before it was whole; cleaned up at the next start.
    Making = 0,
    Created = 1,
    /// The supervisor was or is about to be asked to start it.
    Started = 2,
    Exited = 3,
    /// It ran, and nobody can tell what became of it.
    Unknown = 4,
    /// Being removed: goes on at the next start.
    Removing = 5,
}

#[cfg(test)]
mod tests;
