//! Termination messages of exited containers: read once each, from their message file or their log.
//!
//! Rule: the first reading of a container is kept as long as the runtime has it, so that a log that
//! is rotated or a file that is changed later has no effect. `container-setup` decides which file
//! is read and how much of it.

use crate::oom_kills::memory_limit;
use container_setup::termination::{
    FILE_CAP, LOG_TAIL, TerminationReadings, TerminationSources, read_termination_message, sources,
};
use pod_lifecycle::{ObservedPod, OomKillRecord, OomKillRecords};
use ports::pod_host::PodDirs;
use ports::runtime_objects::{ContainerRecord, ContainerState};
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

const READ_TIMEOUT: Duration = Duration::from_secs(10);
/// Containers with an OOM kill; more than a node has.
const MAX_OOM_NOTES: usize = 4096;

/// Cheap to clone; all clones share what was read.
#[derive(Clone)]
pub(crate) struct TerminationMessages {
    dirs: Arc<dyn PodDirs>,
    /// By container id.
    known: Arc<Mutex<HashMap<String, String>>>,
    kills: Arc<Mutex<HashMap<String, OomKillRecords>>>,
}

impl TerminationMessages {
    pub(crate) fn new(dirs: Arc<dyn PodDirs>) -> Self {
        Self { dirs, known: Arc::default(), kills: Arc::default() }
    }

    /// Adds OOM kills and the termination messages of exited containers to the observation.
    pub(crate) async fn fill_in(&self, pod: &mut ObservedPod) {
        for container in pod.containers.iter_mut() {
            let id = container.record.id.clone();
            container.oom_kills = self.kills(&container.record);
            if container.record.state != ContainerState::Exited {
                continue;
            }
            let known = self.lock(&self.known).get(&id).cloned();
            let text = match known {
                Some(text) => text,
                None => {
                    let text = self.read(&container.record).await;
                    self.lock(&self.known).insert(id, text.clone());
                    text
                }
            };
            container.termination_message = Some(text).filter(|text| !text.is_empty());
        }
    }

    /// Notes an OOM kill in this container, which need not be known yet. Whether it was noted;
    /// `pod-lifecycle` decides which kills are.
    pub(crate) fn note_oom_kill(
        &self,
        container_id: &str,
        note: OomKillRecord,
        with_another: bool,
    ) -> bool {
        let mut kills = self.lock(&self.kills);
        // Cgroups of other services have such names too; they are removed with the next listing.
        if kills.len() >= MAX_OOM_NOTES && !kills.contains_key(container_id) {
            return false;
        }
        kills.entry(container_id.to_owned()).or_default().add(note, with_another)
    }

    fn kills(&self, record: &ContainerRecord) -> OomKillRecords {
        let kills = self.lock(&self.kills).get(&record.id).cloned();
        kills.map_or_else(OomKillRecords::default, |kills| kills.limited_to(memory_limit(record)))
    }

    /// Removes containers that the runtime does not have any more.
    pub(crate) fn retain(&self, ids: &BTreeSet<String>) {
        self.lock(&self.known).retain(|id, _| ids.contains(id));
        self.lock(&self.kills).retain(|id, _| ids.contains(id));
    }

    fn lock<'a, T>(&self, held: &'a Mutex<T>) -> std::sync::MutexGuard<'a, T> {
        held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn read(&self, record: &ContainerRecord) -> String {
        let sources: TerminationSources = sources(record);
        let file = match &sources.file {
            Some(path) => self.tail(path, FILE_CAP).await.transpose(),
            None => None,
        };
        let is_empty = !matches!(&file, Some(Ok(bytes)) if !bytes.is_empty());
        let log = match sources.log.as_ref().filter(|_| is_empty) {
            Some(path) => match self.tail(path, LOG_TAIL).await {
                Ok(bytes) => {
                    let bytes = bytes.unwrap_or_default();
                    let is_complete = bytes.len() < LOG_TAIL;
                    Some(Ok((bytes, is_complete)))
                }
                Err(why) => Some(Err(why)),
            },
            None => None,
        };
        read_termination_message(&sources, &TerminationReadings { file, log })
    }

    async fn tail(&self, path: &str, most: usize) -> Result<Option<Vec<u8>>, String> {
        match tokio::time::timeout(READ_TIMEOUT, self.dirs.read_tail(path, most)).await {
            Ok(read) => read.map_err(|error| error.to_string()),
            Err(_) => Err(format!("it could not be read within {READ_TIMEOUT:?}")),
        }
    }
}
