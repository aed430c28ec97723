//! The checkpoint of devices: which container has which, in the reference's format.
//!
//! Rule: an agent of either kind reads what the other has written. The checksum covers Go's printed
//! form of the data, so that form is written here, of the data as it was decoded.
//!
//! upstream: pkg/kubelet/cm/devicemanager/checkpoint, pkg/kubelet/checkpointmanager/checksum

use std::collections::BTreeMap;
use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use crate::device_table::DeviceTable;

#[cfg(test)]
mod tests;

/// A container's devices of one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointEntry {
    pub uid: String,
    pub container: String,
    pub resource: String,
    pub by_numa_node: BTreeMap<i64, Vec<String>>,
    /// The plugin's answer to the allocation.
    pub encoded: Vec<u8>,
}

/// A checkpoint that was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checkpoint {
    pub entries: Vec<CheckpointEntry>,
    /// The resources of device plugins.
    pub resources: Vec<String>,
}

/// Why a checkpoint is of no use.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    #[error("it is no checkpoint of devices: {0}")]
    Malformed(#[from] serde_json::Error),
    #[error("the answer of {resource}'s plugin in it cannot be decoded: {cause}")]
    Encoding { resource: String, cause: base64::DecodeError },
    #[error("its checksum is {found}, but its content has {expected}: it was cut or changed")]
    Checksum { found: u64, expected: u64 },
}

// The names of Go's fields are those of the file.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct File {
    data: FileData,
    #[serde(default)]
    checksum: u64,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct FileData {
    pod_device_entries: Option<Vec<FileEntry>>,
    registered_devices: Option<BTreeMap<String, Option<Vec<String>>>>,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct FileEntry {
    #[serde(rename = "PodUID")]
    pod_uid: String,
    container_name: String,
    resource_name: String,
    #[serde(rename = "DeviceIDs")]
    device_ids: Option<BTreeMap<i64, Option<Vec<String>>>>,
    alloc_resp: Option<String>,
}

/// Reads a checkpoint, or says why it is of no use.
pub fn decode(bytes: &[u8]) -> Result<Checkpoint, CheckpointError> {
    let File { data, checksum: found } = serde_json::from_slice(bytes)?;
    let expected = u64::from(checksum(&data)?);
    if found != expected {
        return Err(CheckpointError::Checksum { found, expected });
    }
    let mut entries = Vec::new();
    for entry in data.pod_device_entries.unwrap_or_default() {
        let encoded = answer(&entry)?.unwrap_or_default();
        let devices = entry.device_ids.unwrap_or_default().into_iter();
        entries.push(CheckpointEntry {
            uid: entry.pod_uid,
            container: entry.container_name,
            resource: entry.resource_name,
            by_numa_node: devices.map(|(node, ids)| (node, ids.unwrap_or_default())).collect(),
            encoded,
        });
    }
    let resources = data.registered_devices.unwrap_or_default().into_keys().collect();
    Ok(Checkpoint { entries, resources })
}

impl DeviceTable {
    /// The bytes of the checkpoint.
    pub fn checkpoint(&self) -> Result<Vec<u8>, CheckpointError> {
        let mut entries = Vec::new();
        for (uid, containers) in &self.pods {
            for (container, resources) in containers {
                entries.extend(resources.iter().map(|(resource, devices)| {
                    FileEntry {
                        pod_uid: uid.clone(),
                        container_name: container.clone(),
                        resource_name: resource.clone(),
                        device_ids: Some(
                            devices
                                .by_numa_node
                                .iter()
                                .map(|(node, ids)| (*node, Some(ids.clone())))
                                .collect(),
                        ),
                        alloc_resp: Some(STANDARD.encode(&devices.encoded)),
                    }
                }));
            }
        }
        let registered = self.resources.iter().filter(|(_, entry)| entry.is_known);
        let registered = registered.map(|(name, entry)| {
            let ids = entry.healthy().into_iter().map(str::to_owned);
            (name.clone(), Some(ids.collect()))
        });
        let data = FileData {
            pod_device_entries: (!entries.is_empty()).then_some(entries),
            registered_devices: Some(registered.collect()),
        };
        let checksum = u64::from(checksum(&data)?);
        Ok(serde_json::to_vec(&File { data, checksum })?)
    }
}

/// The plugin's answer in the entry.
fn answer(entry: &FileEntry) -> Result<Option<Vec<u8>>, CheckpointError> {
    let decode = |text: &String| {
        STANDARD.decode(text).map_err(|cause| CheckpointError::Encoding {
            resource: entry.resource_name.clone(),
            cause,
        })
    };
    entry.alloc_resp.as_ref().map(decode).transpose()
}

/// FNV-1a of the data as Go prints it with all types.
fn checksum(data: &FileData) -> Result<u32, CheckpointError> {
    let text = printed(data)?;
    let mut hash = 0x811c_9dc5_u32;
    for byte in text.bytes() {
        hash = (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    }
    Ok(hash)
}

const ABSENT: &str = "<nil>";

fn printed(data: &FileData) -> Result<String, CheckpointError> {
    let entries = match &data.pod_device_entries {
        None => ABSENT.to_owned(),
        Some(entries) => {
            let entries: Result<Vec<String>, CheckpointError> =
                entries.iter().map(printed_entry).collect();
            format!("[{}]", entries?.join(" "))
        }
    };
    let registered = printed_map(data.registered_devices.as_ref());
    Ok(format!(
        "(checkpoint.checkpointData){{PodDeviceEntries:([]checkpoint.PodDevicesEntry){entries} \
         RegisteredDevices:(map[string][]string){registered}}}"
    ))
}

fn printed_entry(entry: &FileEntry) -> Result<String, CheckpointError> {
    let FileEntry { pod_uid, container_name, resource_name, device_ids, .. } = entry;
    let ids = printed_map(device_ids.as_ref());
    let answer = match answer(entry)? {
        None => ABSENT.to_owned(),
        Some(bytes) => {
            let bytes: Vec<String> = bytes.iter().map(ToString::to_string).collect();
            format!("[{}]", bytes.join(" "))
        }
    };
    Ok(format!(
        "{{PodUID:(string){pod_uid} ContainerName:(string){container_name} \
         ResourceName:(string){resource_name} DeviceIDs:(checkpoint.DevicesPerNUMA){ids} \
         AllocResp:([]uint8){answer}}}"
    ))
}

/// Sorted by its keys, as the map is.
fn printed_map<K: std::fmt::Display>(map: Option<&BTreeMap<K, Option<Vec<String>>>>) -> String {
    let Some(map) = map else { return ABSENT.to_owned() };
    let mut text = "map[".to_owned();
    for (at, (key, list)) in map.iter().enumerate() {
        let list = list.as_ref().map_or(ABSENT.to_owned(), |list| format!("[{}]", list.join(" ")));
        let space = if at > 0 { " " } else { "" };
        // Cannot fail: a string takes everything.
        let _ = write!(text, "{space}{key}:{list}");
    }
    text.push(']');
    text
}
