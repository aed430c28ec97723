//! Which boot of the host the state directory belongs to.
//!
//! Rule: a PID in the state directory is trusted only if the note beside it names the current boot.
//! The note is changed only after all state of the earlier boot was settled: after a crash in
//! between, the next process finds the earlier boot's note.

use std::path::{Path, PathBuf};

use crate::durable;
use crate::failure::{CallContext as _, Result};

#[derive(Debug)]
pub(super) struct BootMarker {
    write: PathBuf,
    now: Vec<u8>,
    recorded: Option<Vec<u8>>,
}

impl BootMarker {
    pub(super) fn read(state: &Path) -> Result<Self> {
        let now =
            std::fs::read("/proc/sys/kernel/random/boot_id").doing("reading the boot's id")?;
        let write = state.join("boot");
        let recorded = std::fs::read(&write).ok();
        Ok(Self { write, now, recorded })
    }

    /// Whether the host was rebooted since the state directory was last used.
    pub(super) fn has_rebooted(&self) -> bool {
        self.recorded.as_ref().is_some_and(|recorded| *recorded != self.now)
    }

    /// Records that the state directory now belongs to the current boot.
    pub(super) fn write(&self) -> Result<()> {
        if self.recorded.as_ref() == Some(&self.now) {
            return Ok(());
        }
        durable::write_durably(&self.write, &self.now)
    }
}

#[cfg(test)]
mod tests {
    use super::BootMarker;

    #[test]
    fn a_reboot_is_detected_until_the_marker_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let read = || BootMarker::read(dir.path()).unwrap();
        assert!(!read().has_rebooted(), "a new folder tells of nothing");
        read().write().unwrap();
        assert!(!read().has_rebooted());
        std::fs::write(dir.path().join("boot"), "an id of yesterday").unwrap();
        assert!(read().has_rebooted());
        // The first process died before it had settled anything.
        assert!(read().has_rebooted());
        read().write().unwrap();
        assert!(!read().has_rebooted());
    }
}
