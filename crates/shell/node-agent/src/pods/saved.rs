//! The memories of pods on disk, one record each, and a copy of the last ones for workers that
//! begin anew.
//!
//! Rule: a write is over when the record is durable. A write that fails is told loudly and does not
//! stop the pod: it is tried again with the next change, and meanwhile the copy here serves.

use crate::board::Board;
use ports::pod_host::Records;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tracing::{error, warn};

const FOLDER: &str = "pods";
const LONGEST_WRITE: Duration = Duration::from_secs(30);

#[derive(Clone)]
pub(crate) struct SavedMemories {
    records: Arc<dyn Records>,
    board: Board,
    copies: Arc<Mutex<HashMap<String, Remembered>>>,
}

/// The newest memory of a pod.
struct Remembered {
    content: Vec<u8>,
    /// Whether the record on disk says the same.
    is_durable: bool,
}

impl SavedMemories {
    pub(crate) fn new(records: Arc<dyn Records>, board: Board) -> Self {
        Self { records, board, copies: Arc::default() }
    }

    fn copies(&self) -> MutexGuard<'_, HashMap<String, Remembered>> {
        self.copies.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads what earlier agents wrote.
    pub(crate) async fn load(&self) {
        match self.records.load(FOLDER).await {
            Ok(loaded) => {
                for why in loaded.unreadable {
                    warn!(err = why, "Cannot read what is remembered of a pod");
                }
                let remembered = |content| Remembered { content, is_durable: true };
                self.copies()
                    .extend(loaded.records.into_iter().map(|(uid, c)| (uid, remembered(c))));
            }
            Err(error) => error!(err = %error, "Cannot read what is remembered of pods"),
        }
    }

    pub(crate) fn get(&self, uid: &str) -> Option<Vec<u8>> {
        self.copies().get(uid).map(|copy| copy.content.clone())
    }

    /// Whether the record is durable now.
    pub(crate) async fn save(&self, uid: &str, content: Vec<u8>) -> bool {
        let was_durable = match self.copies().get(uid) {
            Some(copy) if copy.is_durable && copy.content == content => return true,
            copy => copy.is_none_or(|copy| copy.is_durable),
        };
        // Until it is written the copy serves a worker that begins anew.
        let copy = Remembered { content: content.clone(), is_durable: false };
        self.copies().insert(uid.to_owned(), copy);
        let write = self.records.save(FOLDER, uid, content);
        let why = match tokio::time::timeout(LONGEST_WRITE, write).await {
            Ok(Ok(())) => {
                if let Some(copy) = self.copies().get_mut(uid) {
                    copy.is_durable = true;
                }
                self.board.record_written(FOLDER, uid);
                crate::crash_points::reached("memory-saved");
                return true;
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("not written within {LONGEST_WRITE:?}"),
        };
        self.board.record_failed(FOLDER, uid, &why);
        // Once: it is tried again and again.
        if was_durable {
            error!(
                pod_uid = uid,
                err = why,
                "Cannot write down what is remembered of a pod; it would be forgotten if the agent ended now"
            );
        }
        false
    }

    pub(crate) async fn forget(&self, uid: &str) {
        self.copies().remove(uid);
        self.board.record_written(FOLDER, uid);
        if let Err(error) = self.records.remove(FOLDER, uid).await {
            warn!(pod_uid = uid, err = %error, "Cannot remove what was remembered of a pod");
        }
    }

    /// Of pods that are here no more: those whose records nobody needs.
    pub(crate) fn others_than(&self, uids: &BTreeSet<String>) -> Vec<String> {
        self.copies().keys().filter(|uid| !uids.contains(*uid)).cloned().collect()
    }
}
