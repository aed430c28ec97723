//! Ranges of users for pods that want their own.
//!
//! Rules: which range is decided in `node-policy`; here it stands in the pod's folder before the
//! runtime hears of it, and what stood there when the agent began is taken over. A range is free
//! again when the pod's folder is gone. Where the node has no usable pool, only the pods that ask
//! for users of their own are refused, with the reason.

use node_policy::user_ranges::{FILE_NAME, UserRanges};
use pod_model::pod::Pod;
use ports::pod_host::{PodFile, PodFolders};
use ports::runtime_objects::{HandlerFeatures, IdMapping, NamespaceMode, UserNamespace};
use std::sync::Arc;
use tokio::sync::Mutex;

#[cfg(test)]
mod tests;

/// A file with two mappings has about two hundred bytes.
const LONGEST_FILE: usize = 16 * 1024;

pub(crate) struct OwnUsers {
    folders: Arc<dyn PodFolders>,
    root: String,
    ranges: Mutex<Ranges>,
}

struct Ranges {
    /// Whether it has what earlier agents gave.
    is_read: bool,
    ranges: Result<UserRanges, String>,
}

impl OwnUsers {
    /// `ranges` says why where there are none.
    pub(crate) fn new(
        folders: Arc<dyn PodFolders>,
        root: &str,
        ranges: Result<UserRanges, String>,
    ) -> Self {
        let root = root.trim_end_matches('/').to_owned();
        Self { folders, root, ranges: Mutex::new(Ranges { is_read: false, ranges }) }
    }

    /// The users of the pod; None where it has those of the node, or its handler cannot give it any
    /// others (which is told where its namespaces are set up).
    pub(crate) async fn of_pod(
        &self,
        pod: &Pod,
        handler: &HandlerFeatures,
    ) -> Result<Option<UserNamespace>, String> {
        if !pod.spec.has_own_users() || !handler.user_namespaces {
            return Ok(None);
        }
        let uid = &*pod.metadata.uid;
        let mut known = self.ranges.lock().await;
        let Ranges { is_read, ranges } = &mut *known;
        let ranges = ranges.as_mut().map_err(|why| format!("user namespace: {why}"))?;
        if !*is_read {
            self.take_over(ranges).await?;
            *is_read = true;
        }
        let first = match self.file(uid).await? {
            Some(text) => {
                ranges.record(uid, &text).map_err(|why| format!("user namespace: {why}"))?
            }
            None => self.give(ranges, uid).await?,
        };
        let all = vec![IdMapping { host_id: first, container_id: 0, length: ranges.length() }];
        Ok(Some(UserNamespace { mode: NamespaceMode::Pod, uids: all.clone(), gids: all }))
    }

    async fn give(&self, ranges: &mut UserRanges, uid: &str) -> Result<u32, String> {
        let here = self.pods().await?;
        ranges.keep_only(|of| of == uid || here.iter().any(|each| each == of));
        let given = ranges.give(uid);
        let (first, content) = given.map_err(|why| format!("create user namespace: {why}"))?;
        let file = PodFile { path: FILE_NAME.to_owned(), content, mode: 0o600 };
        if let Err(error) = self.folders.write(uid, &file).await {
            ranges.keep_only(|of| of != uid);
            return Err(format!("create user namespace: {error}"));
        }
        Ok(first)
    }

    /// What stands in the folders of pods that an earlier agent began. Where one of them cannot be
    /// understood, nobody gets users that it may have.
    async fn take_over(&self, ranges: &mut UserRanges) -> Result<(), String> {
        for uid in self.pods().await? {
            let Some(text) = self.file(&uid).await? else { continue };
            ranges.record(&uid, &text).map_err(|why| {
                format!("user namespace: record pod mappings for existing pod {uid:?}: {why}")
            })?;
        }
        Ok(())
    }

    async fn pods(&self) -> Result<Vec<String>, String> {
        let pods = self.folders.pods().await;
        pods.map_err(|error| format!("user namespace: cannot list the pods' folders: {error}"))
    }

    async fn file(&self, uid: &str) -> Result<Option<Vec<u8>>, String> {
        let path = format!("{}/pods/{uid}/{FILE_NAME}", self.root);
        let read = self.folders.read_tail(&path, LONGEST_FILE).await;
        let read = read.map_err(|error| format!("user namespace: cannot read {path}: {error}"))?;
        Ok(read.filter(|text| !text.is_empty()))
    }
}
