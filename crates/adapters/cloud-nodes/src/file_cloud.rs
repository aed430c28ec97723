//! A cloud provider that is a file: an external program maintains the list of machines.
//!
//! Rule: the file is read again when it has changed, and a file that cannot be read is an error,
//! never an empty list. Absence counts only in a file that declares itself complete. One read at a
//! time, on a thread of its own that may be abandoned: on a dead network share it hangs for good,
//! and must not take one of the few threads that others read their credentials with. Until it
//! returns every query fails at once.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use document::MAX_BYTES;
use document::diagnostic::Origin;
use ports::PortFuture;
use ports::cloud_provider::{CloudError, CloudInstance, CloudNodeName, CloudProvider};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::machine_list::{MachineList, read_list};

/// For one read of the file.
const DEADLINE: Duration = Duration::from_secs(5);

/// Identifies a version of the file without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileStamp {
    device: u64,
    inode: u64,
    size: u64,
    changed: (i64, i64),
}

#[derive(Debug)]
struct CachedList {
    stamp: FileStamp,
    list: Arc<MachineList>,
}

type ReadOutcome = Result<Arc<MachineList>, String>;

/// A read of the file, shared by the queries that arrive while it lasts.
#[derive(Debug)]
struct InFlightRead {
    until: Instant,
    found: watch::Receiver<Option<ReadOutcome>>,
}

impl InFlightRead {
    fn start(path: PathBuf, cached: Arc<Mutex<Option<CachedList>>>) -> std::io::Result<Self> {
        let (result_sender, found) = watch::channel(None);
        // If it panics, the sender is dropped, so the end is noticed.
        let thread = std::thread::Builder::new().name("keelson-cloud".to_owned());
        thread.spawn(move || result_sender.send_replace(Some(file_read(&path, &cached))))?;
        Ok(Self { until: Instant::now() + DEADLINE, found })
    }

    fn is_over(&self) -> bool {
        self.found.borrow().is_some() || self.found.has_changed().is_err()
    }
}

/// Machines that a file lists.
#[derive(Debug)]
pub struct FileCloud {
    path: PathBuf,
    name: String,
    cached: Arc<Mutex<Option<CachedList>>>,
    file_read: Mutex<Option<InFlightRead>>,
}

impl FileCloud {
    /// Reads nothing yet.
    pub fn new(path: &Path) -> Self {
        let name = format!("file {}", path.display());
        Self { path: path.to_owned(), name, cached: Arc::default(), file_read: Mutex::default() }
    }

    /// The read in flight, or a new one.
    fn file_read(&self) -> std::io::Result<(Instant, watch::Receiver<Option<ReadOutcome>>)> {
        let mut file_read = self.file_read.lock().unwrap_or_else(PoisonError::into_inner);
        let current = match file_read.take().filter(|file_read| !file_read.is_over()) {
            Some(current) => current,
            None => InFlightRead::start(self.path.clone(), self.cached.clone())?,
        };
        let current = file_read.insert(current);
        Ok((current.until, current.found.clone()))
    }

    async fn list(&self) -> Result<Arc<MachineList>, CloudError> {
        let failed = |cause| CloudError { cloud: self.name.clone(), cause };
        let (until, mut found) =
            self.file_read().map_err(|error| failed(format!("no thread to read it: {error}")))?;
        let found = match tokio::time::timeout_at(until, found.wait_for(Option::is_some)).await {
            Ok(Ok(found)) => found.clone(),
            Ok(Err(_)) => None,
            Err(_) => Some(Err(format!("it could not be read within {DEADLINE:?}"))),
        };
        found.unwrap_or_else(|| Err("reading it failed".to_owned())).map_err(failed)
    }
}

fn file_read(path: &Path, cached: &Mutex<Option<CachedList>>) -> ReadOutcome {
    let failed = |error: std::io::Error| format!("cannot be read: {error}");
    let file = File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    if !metadata.is_file() {
        return Err("it is no regular file".to_owned());
    }
    let stamp = FileStamp {
        device: metadata.dev(),
        inode: metadata.ino(),
        size: metadata.len(),
        changed: (metadata.ctime(), metadata.ctime_nsec()),
    };
    {
        let cached = cached.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(cached) = cached.as_ref().filter(|cached| cached.stamp == stamp) {
            return Ok(cached.list.clone());
        }
    }
    let mut bytes = Vec::new();
    let limit = u64::try_from(MAX_BYTES).unwrap_or(u64::MAX);
    file.take(limit.saturating_add(1)).read_to_end(&mut bytes).map_err(failed)?;
    let origin = Origin::File { path: path.display().to_string().into(), line: 0, column: 0 };
    let list = Arc::new(read_list(&bytes, &origin)?);
    *cached.lock().unwrap_or_else(PoisonError::into_inner) =
        Some(CachedList { stamp, list: list.clone() });
    Ok(list)
}

impl CloudProvider for FileCloud {
    fn name(&self) -> &str {
        &self.name
    }

    fn instance<'a>(
        &'a self,
        node: &'a CloudNodeName,
    ) -> PortFuture<'a, Result<Option<CloudInstance>, CloudError>> {
        Box::pin(async move {
            let list = self.list().await?;
            match list.find(node) {
                Some(machine) => Ok(Some(machine.clone())),
                None if list.complete => Ok(None),
                None => Err(CloudError {
                    cloud: self.name.clone(),
                    cause: format!(
                        "{:?} is not in it, but it does not say `complete: true`",
                        node.name
                    ),
                }),
            }
        })
    }

    fn instances(&self) -> PortFuture<'_, Result<Vec<CloudInstance>, CloudError>> {
        Box::pin(async move { Ok(self.list().await?.machines.clone()) })
    }
}

#[cfg(test)]
mod tests;
