//! Volume sources of storage over a network or of a cloud.
//!
//! Many of them no node mounts any more (a CSI driver does); they are read so that a manifest that
//! names them is judged as the reference judges it.

use super::NamedReference;
use crate::pod::codec::object;
use crate::pod::values::TextMap;

object! {
    pub struct Nfs {
        "server" server: Box<str>, always;
        "path" path: Box<str>, always;
        "readOnly" read_only: bool;
    }

    pub struct Iscsi {
        "targetPortal" target_portal: Box<str>, always;
        "iqn" iqn: Box<str>, always;
        "lun" lun: i32, always;
        "iscsiInterface" iscsi_interface: Box<str>;
        "fsType" fs_type: Box<str>;
        "readOnly" read_only: bool;
        "portals" portals: Vec<Box<str>>;
        "chapAuthDiscovery" chap_auth_discovery: bool;
        "chapAuthSession" chap_auth_session: bool;
        "secretRef" secret_ref: Option<Box<NamedReference>>;
        "initiatorName" initiator_name: Option<Box<str>>;
    }

    pub struct FibreChannel {
        "targetWWNs" target_wwns: Vec<Box<str>>;
        "lun" lun: Option<i32>;
        "fsType" fs_type: Box<str>;
        "readOnly" read_only: bool;
        "wwids" wwids: Vec<Box<str>>;
    }

    pub struct FlexVolume {
        "driver" driver: Box<str>, always;
        "fsType" fs_type: Box<str>;
        "secretRef" secret_ref: Option<Box<NamedReference>>;
        "readOnly" read_only: bool;
        "options" options: TextMap;
    }

    pub struct GitRepo {
        "repository" repository: Box<str>, always;
        "revision" revision: Box<str>;
        "directory" directory: Box<str>;
    }

    pub struct GcePersistentDisk {
        "pdName" pd_name: Box<str>, always;
        "fsType" fs_type: Box<str>;
        "partition" partition: i32;
        "readOnly" read_only: bool;
    }

    pub struct AwsElasticBlockStore {
        "volumeID" volume_id: Box<str>, always;
        "fsType" fs_type: Box<str>;
        "partition" partition: i32;
        "readOnly" read_only: bool;
    }

    pub struct Glusterfs {
        "endpoints" endpoints: Box<str>, always;
        "path" path: Box<str>, always;
        "readOnly" read_only: bool;
    }

    pub struct Rbd {
        "monitors" monitors: Vec<Box<str>>, always;
        "image" image: Box<str>, always;
        "fsType" fs_type: Box<str>;
        "pool" pool: Box<str>;
        "user" user: Box<str>;
        "keyring" keyring: Box<str>;
        "secretRef" secret_ref: Option<Box<NamedReference>>;
        "readOnly" read_only: bool;
    }

    pub struct Cinder {
        "volumeID" volume_id: Box<str>, always;
        "fsType" fs_type: Box<str>;
        "readOnly" read_only: bool;
        "secretRef" secret_ref: Option<Box<NamedReference>>;
    }

    pub struct CephFs {
        "monitors" monitors: Vec<Box<str>>, always;
        "path" path: Box<str>;
        "user" user: Box<str>;
        "secretFile" secret_file: Box<str>;
        "secretRef" secret_ref: Option<Box<NamedReference>>;
        "readOnly" read_only: bool;
    }

    pub struct Flocker {
        "datasetName" dataset_name: Box<str>;
        "datasetUUID" dataset_uuid: Box<str>;
    }

    pub struct AzureFile {
        "secretName" secret_name: Box<str>, always;
        "shareName" share_name: Box<str>, always;
        "readOnly" read_only: bool;
    }

    pub struct AzureDisk {
        "diskName" disk_name: Box<str>, always;
        "diskURI" disk_uri: Box<str>, always;
        "cachingMode" caching_mode: Option<Box<str>>;
        "fsType" fs_type: Option<Box<str>>;
        "readOnly" read_only: Option<bool>;
        "kind" kind: Option<Box<str>>;
    }

    pub struct VsphereVolume {
        "volumePath" volume_path: Box<str>, always;
        "fsType" fs_type: Box<str>;
        "storagePolicyName" storage_policy_name: Box<str>;
        "storagePolicyID" storage_policy_id: Box<str>;
    }

    pub struct Quobyte {
        "registry" registry: Box<str>, always;
        "volume" volume: Box<str>, always;
        "readOnly" read_only: bool;
        "user" user: Box<str>;
        "group" group: Box<str>;
        "tenant" tenant: Box<str>;
    }

    pub struct PhotonPersistentDisk {
        "pdID" pd_id: Box<str>, always;
        "fsType" fs_type: Box<str>;
    }

    pub struct PortworxVolume {
        "volumeID" volume_id: Box<str>, always;
        "fsType" fs_type: Box<str>;
        "readOnly" read_only: bool;
    }

    pub struct ScaleIo {
        "gateway" gateway: Box<str>, always;
        "system" system: Box<str>, always;
        "secretRef" secret_ref: Option<Box<NamedReference>>, always;
        "sslEnabled" ssl_enabled: bool;
        "protectionDomain" protection_domain: Box<str>;
        "storagePool" storage_pool: Box<str>;
        "storageMode" storage_mode: Box<str>;
        "volumeName" volume_name: Box<str>;
        "fsType" fs_type: Box<str>;
        "readOnly" read_only: bool;
    }

    pub struct StorageOs {
        "volumeName" volume_name: Box<str>;
        "volumeNamespace" volume_namespace: Box<str>;
        "fsType" fs_type: Box<str>;
        "readOnly" read_only: bool;
        "secretRef" secret_ref: Option<Box<NamedReference>>;
    }
}
