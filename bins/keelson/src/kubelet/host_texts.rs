//! Small text files of this machine, read whole and within limits.

use ports::HostTexts;
use ports::pod_host::{HostError, HostFuture};
use std::io;
use std::time::Duration;
use tokio::io::AsyncReadExt;

const LONGEST_READ: Duration = Duration::from_secs(10);
const LARGEST_FILE: u64 = 10 << 20;

/// Reads from the machine's own file system.
pub(super) struct MachineTexts;

impl HostTexts for MachineTexts {
    fn read<'a>(&'a self, path: &'a str) -> HostFuture<'a, Option<String>> {
        Box::pin(async move {
            let read = async {
                let file = tokio::fs::File::open(path).await?;
                let mut text = Vec::new();
                file.take(LARGEST_FILE).read_to_end(&mut text).await?;
                io::Result::Ok(String::from_utf8_lossy(&text).into_owned())
            };
            match tokio::time::timeout(LONGEST_READ, read).await {
                Ok(Ok(text)) => Ok(Some(text)),
                Ok(Err(error)) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                Ok(Err(error)) => Err(HostError::Passing(format!("cannot read {path}: {error}"))),
                Err(_) => {
                    let why = format!("{path} could not be read within {LONGEST_READ:?}");
                    Err(HostError::Passing(why))
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_file_is_read_and_a_missing_one_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("resolv.conf");
        std::fs::write(&path, "nameserver 192.0.2.53\n").unwrap();
        let read = MachineTexts.read(path.to_str().unwrap()).await;
        assert_eq!(read, Ok(Some("nameserver 192.0.2.53\n".to_owned())));
        let missing = folder.path().join("none");
        assert_eq!(MachineTexts.read(missing.to_str().unwrap()).await, Ok(None));
        assert!(MachineTexts.read(folder.path().to_str().unwrap()).await.is_err());
    }
}
