//! The stored state of a sandbox and of a container, on disk and in memory.
//!
//! Fields are only ever added; a number is never reused. Times are nanoseconds since 1970. What the
//! supervisor knows better (process ids, exit codes of running containers) is copied here when it
//! is reported, so that a stopped pod can be shown after its supervisor has ended.

use cri_wire::v1;

use crate::durable::{Durability, PersistentRecord};

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct StoredSandbox {
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
    /// None on the host network.
    #[prost(message, optional, tag = "6")]
    pub network: Option<NetworkRecord>,
    /// Resources after the last update, if there was one.
    #[prost(message, optional, tag = "7")]
    pub resources: Option<v1::LinuxContainerResources>,
    #[prost(message, optional, tag = "8")]
    pub overhead: Option<v1::LinuxContainerResources>,
    /// The cgroup that the supervisor created for the pod's own processes.
    #[prost(string, tag = "9")]
    pub cgroup: String,
}

impl StoredSandbox {
    /// The change is true whether or not it is written; recovery from an older record has the same
    /// result.
    pub(crate) fn is_already_true(&self) -> bool {
        self.stage() == SandboxStage::Stopped
    }
}

impl PersistentRecord for StoredSandbox {
    const KIND: &'static str = "sandbox";
    const VERSION: u32 = 1;

    /// What plugins did outlives a power failure, so the record to undo it must too; and a ready
    /// pod may have containers whose exits must not be lost. Everything else can be derived again.
    fn durability(&self) -> Durability {
        match self.stage() {
            SandboxStage::Creating if self.network.is_none() => Durability::SurvivesKills,
            SandboxStage::Creating | SandboxStage::Ready => Durability::Synced,
            SandboxStage::Stopped => Durability::OldOrNew,
        }
    }
}

/// The stage of a sandbox. One that is neither ready nor stopped at startup was interrupted, and is
/// cleaned up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum SandboxStage {
    Creating = 0,
    Ready = 1,
    Stopped = 2,
}

/// The network of a sandbox; written before it is set up, so that it can be torn down.
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
    /// The configuration list as it was read, so that DEL sees what ADD saw.
    #[prost(bytes = "vec", tag = "4")]
    pub cni_configuration: Vec<u8>,
    #[prost(bytes = "vec", tag = "5")]
    pub cni_result: Vec<u8>,
    /// Whether the set-up completed.
    #[prost(bool, tag = "6")]
    pub complete: bool,
    /// Whether it was taken down.
    #[prost(bool, tag = "7")]
    pub closed: bool,
    /// The host's end of the built-in network's veth pair.
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
pub(crate) struct StoredContainer {
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
    /// The current resources.
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

impl StoredContainer {
    /// The change is true whether or not it is written. After recovery from an older record the
    /// supervisor reports it again, or a repeated request continues the removal. Only that a
    /// container is about to run must be written before.
    pub(crate) fn is_already_true(&self) -> bool {
        match self.stage() {
            ContainerStage::Creating | ContainerStage::Created => false,
            ContainerStage::Started => self.started_at != 0,
            ContainerStage::Exited | ContainerStage::Unknown | ContainerStage::Removing => true,
        }
    }
}

impl PersistentRecord for StoredContainer {
    const KIND: &'static str = "container";
    const VERSION: u32 = 1;

    /// That a container was started is durable before it is, so that it never runs twice, and its
    /// exit is never lost. One that never ran may be lost in a power failure: resources of a
    /// container without a record are cleaned up at the next start. A durable record is never
    /// replaced by a less durable one.
    fn durability(&self) -> Durability {
        match self.stage() {
            ContainerStage::Creating | ContainerStage::Created => Durability::SurvivesKills,
            ContainerStage::Started if self.started_at == 0 => Durability::Synced,
            ContainerStage::Started | ContainerStage::Removing => Durability::OldOrNew,
            ContainerStage::Exited | ContainerStage::Unknown => Durability::Synced,
        }
    }
}

/// The stage of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum ContainerStage {
    /// Its creation was interrupted; cleaned up at the next start.
    Creating = 0,
    Created = 1,
    /// The supervisor was or is about to be asked to start it.
    Started = 2,
    Exited = 3,
    /// It ran, and its exit status is unknown.
    Unknown = 4,
    /// Its removal continues at the next start.
    Removing = 5,
}

#[cfg(test)]
mod tests;
