//! Small text files of this machine, read whole and within limits.
//!
//! Rule: on its own threads: every pod start reads `resolv.conf`, so a full pool of tokio's few
//! blocking threads must not keep pods from starting.

use host_paths::{Apart, ApartError};
use ports::HostTexts;
use ports::pod_host::{HostError, HostFuture};
use std::fs::File;
use std::io::{self, Read as _};
use std::time::Duration;

const LONGEST_READ: Duration = Duration::from_secs(10);
const LARGEST_FILE: u64 = 10 << 20;
/// Reads under way at once.
const MOST_READS: usize = 4;

/// Reads from the machine's own file system.
pub(super) struct MachineTexts {
    apart: Apart,
}

impl Default for MachineTexts {
    fn default() -> Self {
        Self { apart: Apart::new("host-texts", MOST_READS, LONGEST_READ) }
    }
}

impl HostTexts for MachineTexts {
    fn read<'a>(&'a self, path: &'a str) -> HostFuture<'a, Option<String>> {
        Box::pin(async move {
            let name = path.to_owned();
            match self.apart.run(move || read(&name)).await {
                Ok(Ok(text)) => Ok(Some(text)),
                Ok(Err(error)) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                Ok(Err(error)) => Err(HostError::Passing(format!("cannot read {path}: {error}"))),
                Err(ApartError::Late(limit)) => {
                    let why = format!("{path} could not be read within {limit:?}");
                    Err(HostError::Passing(why))
                }
                Err(error) => Err(HostError::Passing(format!("cannot read {path}: {error}"))),
            }
        })
    }
}

fn read(path: &str) -> io::Result<String> {
    let mut text = Vec::new();
    File::open(path)?.take(LARGEST_FILE).read_to_end(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_file_is_read_and_a_missing_one_is_none() {
        let texts = MachineTexts::default();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("resolv.conf");
        std::fs::write(&path, "nameserver 192.0.2.53\n").unwrap();
        let read = texts.read(path.to_str().unwrap()).await;
        assert_eq!(read, Ok(Some("nameserver 192.0.2.53\n".to_owned())));
        let missing = folder.path().join("none");
        assert_eq!(texts.read(missing.to_str().unwrap()).await, Ok(None));
        assert!(texts.read(folder.path().to_str().unwrap()).await.is_err());
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
