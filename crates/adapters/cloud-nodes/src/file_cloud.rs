//! A cloud that is a file: somebody else keeps the list of machines.
//!
//! Rule: the file is read anew when it has changed, in a thread that may be left behind (a dead
//! network share must not stop the controller), and a file that cannot be read is an error, never
//! an empty list. Absence counts only in a file that says that it is complete.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use document::MAX_BYTES;
use document::problem::Origin;
use ports::PortFuture;
use ports::cloud_provider::{CloudError, CloudInstance, CloudNodeName, CloudProvider};

use crate::machine_list::{MachineList, read_list};

/// For one look at the file.
const DEADLINE: Duration = Duration::from_secs(5);

/// What tells one content of a file from another without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mark {
    device: u64,
    inode: u64,
    size: u64,
    changed: (i64, i64),
}

#[derive(Debug)]
struct Known {
    mark: Mark,
    list: Arc<MachineList>,
}

/// Machines that a file names.
#[derive(Debug)]
pub struct FileCloud {
    path: PathBuf,
    name: String,
    known: Arc<Mutex<Option<Known>>>,
}

impl FileCloud {
    /// Nothing is read yet.
    pub fn new(path: &Path) -> Self {
        let name = format!("file {}", path.display());
        Self { path: path.to_owned(), name, known: Arc::default() }
    }

    async fn list(&self) -> Result<Arc<MachineList>, CloudError> {
        let (path, known) = (self.path.clone(), self.known.clone());
        let look = tokio::task::spawn_blocking(move || look(&path, &known));
        let cause = match tokio::time::timeout(DEADLINE, look).await {
            Ok(Ok(Ok(list))) => return Ok(list),
            Ok(Ok(Err(cause))) => cause,
            Ok(Err(_)) => "reading it failed".to_owned(),
            Err(_) => format!("it could not be read within {DEADLINE:?}"),
        };
        Err(CloudError { cloud: self.name.clone(), cause })
    }
}

fn look(path: &Path, known: &Mutex<Option<Known>>) -> Result<Arc<MachineList>, String> {
    let failed = |error: std::io::Error| format!("cannot be read: {error}");
    let file = File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    if !metadata.is_file() {
        return Err("it is no regular file".to_owned());
    }
    let mark = Mark {
        device: metadata.dev(),
        inode: metadata.ino(),
        size: metadata.len(),
        changed: (metadata.ctime(), metadata.ctime_nsec()),
    };
    {
        let known = known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known.as_ref().filter(|known| known.mark == mark) {
            return Ok(known.list.clone());
        }
    }
    let mut bytes = Vec::new();
    let limit = u64::try_from(MAX_BYTES).unwrap_or(u64::MAX);
    file.take(limit.saturating_add(1)).read_to_end(&mut bytes).map_err(failed)?;
    let origin = Origin::File { path: path.display().to_string().into(), line: 0, column: 0 };
    let list = Arc::new(read_list(&bytes, &origin)?);
    *known.lock().unwrap_or_else(PoisonError::into_inner) =
        Some(Known { mark, list: list.clone() });
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
