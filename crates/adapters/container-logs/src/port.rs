//! The log files as the port of servers.
//!
//! Rule: files are read on threads for blocking work, in parts of limited size, and only a few at
//! once, so that no number of clients takes all threads. A client that waits holds no thread.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ports::PortFuture;
use ports::kubelet_endpoint::container_log_reader::{
    ContainerLogError, ContainerLogLine, ContainerLogReader, ContainerLogSelection,
    OpenContainerLog,
};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use crate::LogError;
use crate::follow::FollowedLog;
use crate::read::{LogEntry, LogSelection, WrittenLog};

/// The text of one part; the line that exceeds it still belongs to it.
const PART_BYTES: usize = 32 * 1024;
/// The lines of one part: short lines cost more memory than their text.
const PART_LINES: usize = 512;
/// Parts that are read at the same time.
const READS_AT_ONCE: usize = 2;

/// Reads the log files of this machine.
#[derive(Debug)]
pub struct HostContainerLogs {
    reads: Arc<Semaphore>,
}

impl Default for HostContainerLogs {
    fn default() -> Self {
        Self { reads: Arc::new(Semaphore::new(READS_AT_ONCE)) }
    }
}

impl ContainerLogReader for HostContainerLogs {
    fn open<'a>(
        &'a self,
        path: &'a str,
        selection: ContainerLogSelection,
    ) -> PortFuture<'a, Result<Box<dyn OpenContainerLog>, ContainerLogError>> {
        let path = PathBuf::from(path);
        Box::pin(async move {
            let opening = move || LogFileSet::open(&path, selection);
            let files = blocking(&self.reads, opening).await??;
            let reads = self.reads.clone();
            Ok(Box::new(HostContainerLog { reads, files: Some(files) })
                as Box<dyn OpenContainerLog>)
        })
    }
}

struct HostContainerLog {
    reads: Arc<Semaphore>,
    /// `None` while a part is read, and for ever if that panicked.
    files: Option<LogFileSet>,
}

impl OpenContainerLog for HostContainerLog {
    fn read(&mut self) -> PortFuture<'_, Result<Vec<ContainerLogLine>, ContainerLogError>> {
        Box::pin(async move {
            let Some(mut files) = self.files.take() else {
                return Err(ContainerLogError("the log is no longer open".to_owned()));
            };
            let reading = move || {
                let part = files.read_part();
                (files, part)
            };
            let (files, part) = blocking(&self.reads, reading).await?;
            self.files = Some(files);
            Ok(part?)
        })
    }

    fn changed(&self) -> PortFuture<'_, Result<(), ContainerLogError>> {
        Box::pin(async move {
            match &self.files {
                Some(LogFileSet::Followed(log)) => Ok(log.changed().await?),
                _ => Ok(()),
            }
        })
    }
}

enum LogFileSet {
    Written(Box<WrittenLog>, LogSelection),
    Followed(Box<FollowedLog>),
}

impl LogFileSet {
    fn open(path: &Path, wanted: ContainerLogSelection) -> Result<Self, LogError> {
        let tail = wanted.tail.map(|lines| usize::try_from(lines).unwrap_or(usize::MAX));
        let selection = LogSelection { tail, since: wanted.since, stream: None };
        if wanted.follow {
            return Ok(Self::Followed(Box::new(FollowedLog::open(path, &selection)?)));
        }
        Ok(Self::Written(Box::new(WrittenLog::start(path, &selection, None)?), selection))
    }

    fn read_part(&mut self) -> Result<Vec<ContainerLogLine>, LogError> {
        let (mut lines, mut bytes) = (Vec::new(), 0);
        let mut take = |entry: &LogEntry| {
            bytes += entry.text.len();
            lines.push(ContainerLogLine {
                time: entry.time.clone(),
                is_partial: entry.is_partial,
                text: entry.text.clone(),
            });
            if bytes >= PART_BYTES || lines.len() >= PART_LINES {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        };
        let _ = match self {
            Self::Written(log, selection) => log.read(selection, &mut take)?,
            Self::Followed(log) => log.read(&mut take)?,
        };
        Ok(lines)
    }
}

/// Runs this on a thread for blocking work.
async fn blocking<T: Send + 'static>(
    reads: &Semaphore,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ContainerLogError> {
    let failed = |why: String| ContainerLogError(format!("the log cannot be read: {why}"));
    let _place = reads.acquire().await.map_err(|error| failed(error.to_string()))?;
    spawn_blocking(work).await.map_err(|error| failed(error.to_string()))
}

impl From<LogError> for ContainerLogError {
    fn from(error: LogError) -> Self {
        Self(error.to_string())
    }
}

#[cfg(test)]
mod tests;
