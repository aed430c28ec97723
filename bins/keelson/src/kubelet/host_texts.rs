//! Small text files of this machine, read whole and within limits.
//!
//! Rule: on its own threads: every pod start reads `resolv.conf`, so a full pool of tokio's few
//! blocking threads must not keep pods from starting.

use host_paths::{BlockingPool, BlockingPoolError};
use ports::HostTextFiles;
use ports::pod_host::{HostError, HostFuture};
use std::fs::File;
use std::io::{self, Read as _};
use std::time::Duration;

const READ_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_FILE_BYTES: u64 = 10 << 20;
/// Reads under way at once.
const MAX_READS: usize = 4;

/// Reads from the machine's own file system.
pub(super) struct MachineTexts {
    blocking_pool: BlockingPool,
}

impl Default for MachineTexts {
    fn default() -> Self {
        Self { blocking_pool: BlockingPool::new("host-texts", MAX_READS, READ_TIMEOUT) }
    }
}

impl HostTextFiles for MachineTexts {
    fn read<'a>(&'a self, path: &'a str) -> HostFuture<'a, Option<String>> {
        Box::pin(async move {
            let name = path.to_owned();
            match self.blocking_pool.run(move || read(&name)).await {
                Ok(Ok(text)) => Ok(Some(text)),
                Ok(Err(error)) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                Ok(Err(error)) => Err(HostError::Transient(format!("cannot read {path}: {error}"))),
                Err(BlockingPoolError::TimedOut(limit)) => {
                    let why = format!("{path} could not be read within {limit:?}");
                    Err(HostError::Transient(why))
                }
                Err(error) => Err(HostError::Transient(format!("cannot read {path}: {error}"))),
            }
        })
    }
}

fn read(path: &str) -> io::Result<String> {
    let mut text = Vec::new();
    File::open(path)?.take(MAX_FILE_BYTES).read_to_end(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_file_is_read_and_a_missing_one_is_none() {
        let texts = MachineTexts::default();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("resolv.conf");
        std::fs::write(&path, "nameserver 192.0.2.53\n").unwrap();
        let read = texts.read(path.to_str().unwrap()).await;
        assert_eq!(read, Ok(Some("nameserver 192.0.2.53\n".to_owned())));
        let missing = dir.path().join("none");
        assert_eq!(texts.read(missing.to_str().unwrap()).await, Ok(None));
        assert!(texts.read(dir.path().to_str().unwrap()).await.is_err());
    }

    #[test]
    fn files_are_read_while_every_thread_for_blocking_calls_is_taken() {
        let builder = &mut tokio::runtime::Builder::new_current_thread();
        let runtime = builder.max_blocking_threads(1).enable_all().build().unwrap();
        let (done, taken) = std::sync::mpsc::channel::<()>();
        runtime.block_on(async {
            let _hangs = tokio::task::spawn_blocking(move || taken.recv());
            let texts = MachineTexts::default();
            let read = texts.read("/proc/self/stat");
            let read = tokio::time::timeout(Duration::from_secs(5), read).await;
            assert!(matches!(read, Ok(Ok(Some(_)))), "{read:?}");
        });
        drop(done);
    }
}
