//! Which boot of the host the state directory belongs to.
//!
//! Rule: a PID in the state directory is trusted only if the note beside it names the current boot.
//! The note is changed only after all state of the earlier boot was settled: after a crash in
//! between, the next process finds the earlier boot's note.

use std::path::{Path, PathBuf};

use crate::durable;
use crate::failure::{Doing as _, Result};

#[derive(Debug)]
pub(super) struct Boot {
    note: PathBuf,
    now: Vec<u8>,
    noted: Option<Vec<u8>>,
}

impl Boot {
    pub(super) fn look(state: &Path) -> Result<Self> {
        let now =
            std::fs::read("/proc/sys/kernel/random/boot_id").doing("reading the boot's id")?;
        let note = state.join("boot");
        let noted = std::fs::read(&note).ok();
        Ok(Self { note, now, noted })
    }

    /// Whether the host was rebooted since the state directory was last used.
    pub(super) fn is_another(&self) -> bool {
        self.noted.as_ref().is_some_and(|noted| *noted != self.now)
    }

    /// Records that the state directory now belongs to the current boot.
    pub(super) fn note(&self) -> Result<()> {
        if self.noted.as_ref() == Some(&self.now) {
            return Ok(());
        }
        durable::write_whole(&self.note, &self.now)
    }
}

#[cfg(test)]
mod tests {
    use super::Boot;

    #[test]
    fn another_boot_stays_another_until_it_is_noted() {
        let folder = tempfile::tempdir().unwrap();
        let look = || Boot::look(folder.path()).unwrap();
        assert!(!look().is_another(), "a new folder tells of nothing");
        look().note().unwrap();
        assert!(!look().is_another());
        std::fs::write(folder.path().join("boot"), "an id of yesterday").unwrap();
        assert!(look().is_another());
        // The first process died before it had settled anything.
        assert!(look().is_another());
        look().note().unwrap();
        assert!(!look().is_another());
    }
}
