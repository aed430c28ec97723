//! UID and GID ranges for pods with a user namespace.
//!
//! Rules: `node-policy` chooses the range; it is on disk in the pod's directory before the runtime
//! gets it, and the ranges of an earlier agent are adopted. A range is free again when the pod's
//! directory is gone. If the node has no usable pool, only pods with a user namespace are refused,
//! with the reason.

use node_policy::user_namespace_ranges::{FILE_NAME, UserNamespaceRangeAllocator};
use pod_model::pod::Pod;
use ports::pod_host::{PodDirs, PodFile};
use ports::runtime_objects::{HandlerFeatures, IdMapping, NamespaceMode, UserNamespace};
use std::sync::Arc;
use tokio::sync::Mutex;

#[cfg(test)]
mod tests;

/// A file with two mappings has about two hundred bytes.
const MAX_FILE_BYTES: usize = 16 * 1024;

pub(crate) struct UserNamespaceAllocator {
    dirs: Arc<dyn PodDirs>,
    root: String,
    ranges: Mutex<AllocatedRanges>,
}

struct AllocatedRanges {
    /// Whether the ranges of earlier agents were read.
    is_read: bool,
    ranges: Result<UserNamespaceRangeAllocator, String>,
}

impl UserNamespaceAllocator {
    /// `ranges` holds the reason if there are none.
    pub(crate) fn new(
        dirs: Arc<dyn PodDirs>,
        root: &str,
        ranges: Result<UserNamespaceRangeAllocator, String>,
    ) -> Self {
        let root = root.trim_end_matches('/').to_owned();
        Self { dirs, root, ranges: Mutex::new(AllocatedRanges { is_read: false, ranges }) }
    }

    /// The pod's user namespace; None if it uses the host's, or if its handler does not support
    /// user namespaces (which is reported where the pod's namespaces are set up).
    pub(crate) async fn allocate(
        &self,
        pod: &Pod,
        handler: &HandlerFeatures,
    ) -> Result<Option<UserNamespace>, String> {
        if !pod.spec.has_user_namespace() || !handler.user_namespaces {
            return Ok(None);
        }
        let uid = &*pod.metadata.uid;
        let mut known = self.ranges.lock().await;
        let AllocatedRanges { is_read, ranges } = &mut *known;
        let ranges = ranges.as_mut().map_err(|why| format!("user namespace: {why}"))?;
        if !*is_read {
            self.recover_ranges(ranges).await?;
            *is_read = true;
        }
        let first = match self.file(uid).await? {
            Some(text) => {
                ranges.record(uid, &text).map_err(|why| format!("user namespace: {why}"))?
            }
            None => self.reserve(ranges, uid).await?,
        };
        let all = vec![IdMapping { host_id: first, container_id: 0, length: ranges.length() }];
        Ok(Some(UserNamespace { mode: NamespaceMode::Pod, uids: all.clone(), gids: all }))
    }

    async fn reserve(
        &self,
        ranges: &mut UserNamespaceRangeAllocator,
        uid: &str,
    ) -> Result<u32, String> {
        let here = self.pods().await?;
        ranges.retain_pods(|of| of == uid || here.iter().any(|each| each == of));
        let given = ranges.reserve(uid);
        let (first, content) = given.map_err(|why| format!("create user namespace: {why}"))?;
        let file = PodFile { path: FILE_NAME.to_owned(), content, mode: 0o600 };
        if let Err(error) = self.dirs.write(uid, &file).await {
            ranges.retain_pods(|of| of != uid);
            return Err(format!("create user namespace: {error}"));
        }
        Ok(first)
    }

    /// Adopts the ranges in the directories of pods of an earlier agent. If one of them cannot be
    /// parsed, no range is given out, as it may be in use.
    async fn recover_ranges(&self, ranges: &mut UserNamespaceRangeAllocator) -> Result<(), String> {
        for uid in self.pods().await? {
            let Some(text) = self.file(&uid).await? else { continue };
            ranges.record(&uid, &text).map_err(|why| {
                format!("user namespace: record pod mappings for existing pod {uid:?}: {why}")
            })?;
        }
        Ok(())
    }

    async fn pods(&self) -> Result<Vec<String>, String> {
        let pods = self.dirs.pods().await;
        pods.map_err(|error| format!("user namespace: cannot list the pods' directories: {error}"))
    }

    async fn file(&self, uid: &str) -> Result<Option<Vec<u8>>, String> {
        let path = format!("{}/pods/{uid}/{FILE_NAME}", self.root);
        let read = self.dirs.read_tail(&path, MAX_FILE_BYTES).await;
        let read = read.map_err(|error| format!("user namespace: cannot read {path}: {error}"))?;
        Ok(read.filter(|text| !text.is_empty()))
    }
}
