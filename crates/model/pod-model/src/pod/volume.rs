//! Volumes: a name and one source.
//!
//! The rule it keeps: a volume holds the one source that counts, and only the names of any further
//! ones, which validation refuses. Where several are given the one earliest in [`VolumeSource`]'s
//! order counts, as in the reference. Sources of storage that other parties mount stand in
//! `network`.

use super::codec::{
    DecodeNode, FieldCodec, ObjectFields, object, object_codec, read_field, string_enum,
};
use super::container::{ObjectFieldSelector, PullPolicy, ResourceFieldSelector};
use super::resources::ResourceList;
use super::scheduling::LabelSelector;
use super::values::TextMap;

pub mod network;

use network::{
    AwsElasticBlockStore, AzureDisk, AzureFile, CephFs, Cinder, FibreChannel, FlexVolume, Flocker,
    GcePersistentDisk, GitRepo, Glusterfs, Iscsi, Nfs, PhotonPersistentDisk, PortworxVolume,
    Quobyte, Rbd, ScaleIo, StorageOs, VsphereVolume,
};

string_enum! {
    pub enum HostPathType {
        DirectoryOrCreate, Directory, FileOrCreate, File, Socket, CharDevice, BlockDevice
    }
    /// Where an emptyDir lives; `HugePages` may carry a page size behind a hyphen.
    pub enum StorageMedium { Memory, HugePages }
    pub enum PersistentVolumeMode { Filesystem, Block }
    pub enum AccessMode { ReadOnlyMany, ReadWriteMany, ReadWriteOnce, ReadWriteOncePod }
}

object! {
    /// An object of the same namespace, by name.
    pub struct NamedReference {
        "name" name: Box<str>;
    }

    pub struct EmptyDir {
        "medium" medium: StorageMedium;
        "sizeLimit" size_limit: Option<crate::Quantity>;
    }

    pub struct HostPath {
        "path" path: Box<str>, always;
        "type" kind: Option<HostPathType>;
    }

    pub struct KeyToPath {
        "key" key: Box<str>, always;
        "path" path: Box<str>, always;
        "mode" mode: Option<i32>;
    }

    pub struct SecretVolume {
        "secretName" secret_name: Box<str>;
        "items" items: Vec<KeyToPath>;
        "defaultMode" default_mode: Option<i32>;
        "optional" optional: Option<bool>;
    }

    pub struct ConfigMapVolume {
        "name" name: Box<str>;
        "items" items: Vec<KeyToPath>;
        "defaultMode" default_mode: Option<i32>;
        "optional" optional: Option<bool>;
    }

    pub struct DownwardApiVolume {
        "items" items: Vec<DownwardApiFile>;
        "defaultMode" default_mode: Option<i32>;
    }

    pub struct DownwardApiFile {
        "path" path: Box<str>, always;
        "fieldRef" field_ref: Option<Box<ObjectFieldSelector>>;
        "resourceFieldRef" resource_field_ref: Option<Box<ResourceFieldSelector>>;
        "mode" mode: Option<i32>;
    }

    pub struct ProjectedVolume {
        "sources" sources: Vec<VolumeProjection>, always;
        "defaultMode" default_mode: Option<i32>;
    }

    pub struct VolumeProjection {
        "secret" secret: Option<Box<KeysProjection>>;
        "downwardAPI" downward_api: Option<Box<DownwardApiProjection>>;
        "configMap" config_map: Option<Box<KeysProjection>>;
        "serviceAccountToken" service_account_token: Option<Box<TokenProjection>>;
        "clusterTrustBundle" cluster_trust_bundle: Option<Box<TrustBundleProjection>>;
        "podCertificate" pod_certificate: Option<Box<PodCertificateProjection>>;
    }

    /// The keys of a ConfigMap or a Secret as files.
    pub struct KeysProjection {
        "name" name: Box<str>;
        "items" items: Vec<KeyToPath>;
        "optional" optional: Option<bool>;
    }

    pub struct DownwardApiProjection {
        "items" items: Vec<DownwardApiFile>;
    }

    pub struct TokenProjection {
        "audience" audience: Box<str>;
        "expirationSeconds" expiration_seconds: Option<i64>;
        "path" path: Box<str>, always;
    }

    pub struct TrustBundleProjection {
        "name" name: Option<Box<str>>;
        "signerName" signer_name: Option<Box<str>>;
        "labelSelector" label_selector: Option<Box<LabelSelector>>;
        "optional" optional: Option<bool>;
        "path" path: Box<str>, always;
    }

    pub struct PodCertificateProjection {
        "signerName" signer_name: Box<str>;
        "keyType" key_type: Box<str>;
        "maxExpirationSeconds" max_expiration_seconds: Option<i32>;
        "credentialBundlePath" credential_bundle_path: Box<str>;
        "keyPath" key_path: Box<str>;
        "certificateChainPath" certificate_chain_path: Box<str>;
        "userAnnotations" user_annotations: TextMap;
    }

    pub struct PersistentVolumeClaim {
        "claimName" claim_name: Box<str>, always;
        "readOnly" read_only: bool;
    }

    pub struct CsiVolume {
        "driver" driver: Box<str>, always;
        "readOnly" read_only: Option<bool>;
        "fsType" fs_type: Option<Box<str>>;
        "volumeAttributes" volume_attributes: TextMap;
        "nodePublishSecretRef" node_publish_secret_ref: Option<Box<NamedReference>>;
    }

    pub struct ImageVolume {
        "reference" reference: Box<str>;
        "pullPolicy" pull_policy: PullPolicy;
    }

    pub struct EphemeralVolume {
        "volumeClaimTemplate" volume_claim_template: Option<Box<ClaimTemplate>>;
    }

    pub struct ClaimTemplate {
        "metadata" metadata: super::meta::ObjectMeta;
        "spec" spec: ClaimSpec, always;
    }

    pub struct ClaimSpec {
        "accessModes" access_modes: Vec<AccessMode>;
        "selector" selector: Option<Box<LabelSelector>>;
        "resources" resources: ClaimResources, always;
        "volumeName" volume_name: Box<str>;
        "storageClassName" storage_class_name: Option<Box<str>>;
        "volumeMode" volume_mode: Option<PersistentVolumeMode>;
        "dataSource" data_source: Option<Box<ClaimDataSource>>;
        "dataSourceRef" data_source_ref: Option<Box<ClaimDataReference>>;
        "volumeAttributesClassName" volume_attributes_class_name: Option<Box<str>>;
    }

    pub struct ClaimResources {
        "limits" limits: ResourceList;
        "requests" requests: ResourceList;
    }

    pub struct ClaimDataSource {
        "apiGroup" api_group: Option<Box<str>>, always;
        "kind" kind: Box<str>, always;
        "name" name: Box<str>, always;
    }

    pub struct ClaimDataReference {
        "apiGroup" api_group: Option<Box<str>>, always;
        "kind" kind: Box<str>, always;
        "name" name: Box<str>, always;
        "namespace" namespace: Option<Box<str>>;
    }
}

/// One volume of a pod.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Volume {
    pub name: Box<str>,
    pub source: Option<VolumeSource>,
    /// The names of sources beyond the first, in the order of [`VolumeSource`].
    pub surplus: Vec<&'static str>,
}

macro_rules! volume_sources {
    ($( $json:literal $word:ident($kind:ty) ),+ $(,)?) => {
        /// What a volume is made of.
        #[derive(Debug, Clone, PartialEq)]
        pub enum VolumeSource { $( $word(Box<$kind>), )+ }

        impl VolumeSource {
            const NAMES: &'static [&'static str] = &["name", $($json),+];

            /// The source's field in a volume.
            pub fn field(&self) -> &'static str {
                match self { $( Self::$word(_) => $json, )+ }
            }

            /// Reads the source of this name; nothing inside when it was refused.
            fn read(name: &str, node: &dyn DecodeNode) -> Option<Option<Self>> {
                match name {
                    $( $json => {
                        let mut slot: Option<Box<$kind>> = None;
                        read_field(&mut slot, node);
                        Some(slot.map(Self::$word))
                    } )+
                    _ => None,
                }
            }

            fn write<M: serde::ser::SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
                match self { $( Self::$word(source) => map.serialize_entry($json, source), )+ }
            }

            fn heap_bytes(&self) -> usize {
                match self { $( Self::$word(source) => source.heap_bytes(), )+ }
            }
        }
    };
}

// The order is the one in which the reference looks at them.
volume_sources! {
    "emptyDir" EmptyDir(EmptyDir),
    "hostPath" HostPath(HostPath),
    "gitRepo" GitRepo(GitRepo),
    "gcePersistentDisk" GcePersistentDisk(GcePersistentDisk),
    "awsElasticBlockStore" AwsElasticBlockStore(AwsElasticBlockStore),
    "secret" Secret(SecretVolume),
    "nfs" Nfs(Nfs),
    "iscsi" Iscsi(Iscsi),
    "glusterfs" Glusterfs(Glusterfs),
    "flocker" Flocker(Flocker),
    "persistentVolumeClaim" PersistentVolumeClaim(PersistentVolumeClaim),
    "rbd" Rbd(Rbd),
    "cinder" Cinder(Cinder),
    "cephfs" CephFs(CephFs),
    "quobyte" Quobyte(Quobyte),
    "downwardAPI" DownwardApi(DownwardApiVolume),
    "fc" FibreChannel(FibreChannel),
    "flexVolume" FlexVolume(FlexVolume),
    "configMap" ConfigMap(ConfigMapVolume),
    "azureFile" AzureFile(AzureFile),
    "vsphereVolume" VsphereVolume(VsphereVolume),
    "photonPersistentDisk" PhotonPersistentDisk(PhotonPersistentDisk),
    "portworxVolume" PortworxVolume(PortworxVolume),
    "azureDisk" AzureDisk(AzureDisk),
    "storageos" StorageOs(StorageOs),
    "projected" Projected(ProjectedVolume),
    "scaleIO" ScaleIo(ScaleIo),
    "csi" Csi(CsiVolume),
    "ephemeral" Ephemeral(EphemeralVolume),
    "image" Image(ImageVolume),
}

fn rank(field: &str) -> usize {
    VolumeSource::NAMES.iter().position(|name| *name == field).unwrap_or(usize::MAX)
}

impl Volume {
    /// Takes a source in; the one that comes first in the order counts.
    fn put(&mut self, source: VolumeSource) {
        let surplus = match &mut self.source {
            None => {
                self.source = Some(source);
                return;
            }
            Some(present) if rank(present.field()) < rank(source.field()) => source.field(),
            Some(present) => std::mem::replace(present, source).field(),
        };
        let at = self.surplus.partition_point(|name| rank(name) < rank(surplus));
        self.surplus.insert(at, surplus);
    }
}

impl ObjectFields for Volume {
    const NAMES: &'static [&'static str] = VolumeSource::NAMES;

    fn read_entry(&mut self, name: &str, node: &dyn DecodeNode) -> bool {
        if name == "name" {
            read_field(&mut self.name, node);
            return true;
        }
        match VolumeSource::read(name, node) {
            Some(source) => {
                if let Some(source) = source {
                    self.put(source);
                }
                true
            }
            None => false,
        }
    }

    fn write_entries<M: serde::ser::SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        map.serialize_entry("name", &self.name)?;
        match &self.source {
            Some(source) => source.write(map),
            None => Ok(()),
        }
    }

    fn fields_heap_bytes(&self) -> usize {
        self.name.len()
            + self.surplus.capacity() * size_of::<&str>()
            + self.source.as_ref().map_or(0, VolumeSource::heap_bytes)
    }
}

object_codec!(Volume);
