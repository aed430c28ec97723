//! A step of volume work as a value: run here, or sent to a process that runs it.
//!
//! Rule: a step is self-contained; running it needs nothing but the step. One step, one answer.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use ports::pod_host::{HostVolume, SubPath, VolumeOwnership};
use serde::{Deserialize, Serialize};

use crate::empty_directory::{self, Medium};
use crate::failure::StepFailure;
use crate::layout::{EMPTY_DIRECTORY, PodPlace};
use crate::{host_path, mounting, sub_path, tear_down};

#[cfg(test)]
mod tests;

/// An answer begins with this, on a line of its own, whatever else a process prints.
pub(crate) const MARK: &str = "volume-step: ";

/// Larger than any step.
const LONGEST: u64 = 1 << 20;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Step {
    pub(crate) root: PathBuf,
    pub(crate) uid: String,
    pub(crate) act: Act,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Act {
    EmptyDirectory { name: String, group: Option<i64> },
    Memory { name: String, size: Option<u64>, group: Option<i64> },
    HugePages { name: String, page_size: String, group: Option<i64> },
    HostPath { path: String, kind: String },
    Pin { volume: String, volume_path: PathBuf, sub_path: String, container: String, index: usize },
    Release { container: String },
    TearDown,
}

pub(crate) type StepAnswer = Result<PathBuf, StepFailure>;

impl Act {
    pub(crate) fn set_up(volume: &HostVolume, ownership: &VolumeOwnership) -> Self {
        let group = ownership.group;
        match volume.clone() {
            HostVolume::EmptyDirectory { name } => Self::EmptyDirectory { name, group },
            HostVolume::MemoryDirectory { name, size, huge_page_size } => match huge_page_size {
                Some(page_size) => Self::HugePages { name, page_size, group },
                None => Self::Memory { name, size, group },
            },
            HostVolume::HostPath { path, kind, .. } => Self::HostPath { path, kind },
        }
    }

    pub(crate) fn pin(request: &SubPath) -> Self {
        let SubPath { volume, volume_path, sub_path, container, mount_index } = request.clone();
        Self::Pin { volume, volume_path, sub_path, container, index: mount_index }
    }
}

impl Step {
    /// Whether the step may touch a file system that is not the agent's, and hang there.
    pub(crate) fn is_foreign(&self) -> bool {
        let pod = self.root.join("pods").join(&self.uid);
        match &self.act {
            Act::EmptyDirectory { .. } | Act::Memory { .. } | Act::HugePages { .. } => false,
            Act::HostPath { kind, .. } => !kind.is_empty(),
            Act::Pin { volume_path, .. } => {
                !volume_path.starts_with(pod.join("volumes").join(EMPTY_DIRECTORY))
            }
            // What is bind-mounted below may be from anywhere; the mount table shows it without
            // touching it.
            Act::Release { .. } | Act::TearDown => {
                mount_table::MountTable::read().is_ok_and(|table| !table.beneath(&pod).is_empty())
            }
        }
    }

    pub(crate) fn perform(&self) -> StepAnswer {
        let pod = PodPlace::new(&self.root, &self.uid)?;
        let owned = |group: Option<i64>| VolumeOwnership { group, ..VolumeOwnership::default() };
        let made = |name: &str, medium: Medium, group: Option<i64>| {
            empty_directory::set_up(&pod, name, &medium, &owned(group))
        };
        match &self.act {
            Act::EmptyDirectory { name, group } => made(name, Medium::Disk, *group),
            Act::Memory { name, size, group } => made(name, Medium::Memory { size: *size }, *group),
            Act::HugePages { name, page_size, group } => {
                made(name, Medium::HugePages { page_size: page_size.clone() }, *group)
            }
            Act::HostPath { path, kind } => host_path::set_up(path, kind),
            Act::Pin { volume, volume_path, sub_path, container, index } => {
                let request = SubPath {
                    volume: volume.clone(),
                    volume_path: volume_path.clone(),
                    sub_path: sub_path.clone(),
                    container: container.clone(),
                    mount_index: *index,
                };
                mounting::check_proc()?;
                sub_path::pin(&pod, &request)
            }
            Act::Release { container } => {
                mounting::check_proc()?;
                sub_path::release(&pod, Some(container))?;
                Ok(PathBuf::new())
            }
            Act::TearDown => {
                mounting::check_proc()?;
                tear_down::tear_down(&pod)?;
                Ok(PathBuf::new())
            }
        }
    }
}

/// The entry point of the process that runs one step: reads it, runs it, writes the answer. Fails
/// only if the answer cannot be written.
pub fn answer_step(input: impl Read, mut output: impl Write) -> std::io::Result<()> {
    let mut text = Vec::new();
    input.take(LONGEST).read_to_end(&mut text)?;
    let answer: StepAnswer = match serde_json::from_slice::<Step>(&text) {
        Ok(step) => step.perform(),
        Err(error) => Err(StepFailure::lasting(format!("not a volume step: {error}"))),
    };
    let answer = serde_json::to_string(&answer)?;
    writeln!(output, "\n{MARK}{answer}")?;
    output.flush()
}

/// The answer in a process's output.
pub(crate) fn answer_in(printed: &[u8]) -> Option<StepAnswer> {
    let text = String::from_utf8_lossy(printed);
    let line = text.lines().find_map(|line| line.strip_prefix(MARK))?;
    serde_json::from_str(line).ok()
}

/// The path that a step is about, for a message.
pub(crate) fn about(step: &Step) -> String {
    let pod = step.root.join("pods").join(&step.uid);
    let place: &Path = match &step.act {
        Act::HostPath { path, .. } => Path::new(path),
        Act::Pin { volume_path, .. } => volume_path,
        _ => &pod,
    };
    place.display().to_string()
}
