//! A step of volume work as a value: run here, or sent to a process that runs it.
//!
//! Rule: a step is self-contained; running it needs nothing but the step. One step, one answer.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use ports::pod_host::{HostVolume, SubPath, VolumeOwnership};
use serde::{Deserialize, Serialize};

use crate::empty_dir::{self, Medium};
use crate::layout::{PodDirPath, own_plugin_dirs};
use crate::payload::PayloadVolume;
use crate::step_error::StepError;
use crate::{host_path, mounting, payload, sub_path, tear_down};

#[cfg(test)]
mod tests;

/// An answer begins with this, on a line of its own, whatever else a process prints.
pub(crate) const ANSWER_PREFIX: &str = "volume-step: ";

/// Larger than any step.
const MAX_STEP_BYTES: u64 = 1 << 20;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct VolumeStep {
    pub(crate) root: PathBuf,
    pub(crate) uid: String,
    #[serde(rename = "act")]
    pub(crate) operation: VolumeOperation,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum VolumeOperation {
    #[serde(rename = "EmptyDirectory")]
    EmptyDir {
        name: String,
        group: Option<i64>,
    },
    Memory {
        name: String,
        size: Option<u64>,
        group: Option<i64>,
    },
    HugePages {
        name: String,
        page_size: String,
        group: Option<i64>,
    },
    HostPath {
        path: String,
        kind: String,
    },
    /// Never sent to another process: it touches only the agent's own directories.
    #[serde(skip)]
    Payload(PayloadVolume),
    Pin {
        volume: String,
        volume_path: PathBuf,
        sub_path: String,
        container: String,
        index: usize,
    },
    Release {
        container: String,
    },
    TearDown,
}

pub(crate) type StepAnswer = Result<PathBuf, StepError>;

impl VolumeOperation {
    pub(crate) fn set_up(volume: &HostVolume, ownership: &VolumeOwnership) -> Self {
        let group = ownership.group;
        match volume.clone() {
            HostVolume::EmptyDirectory { name } => Self::EmptyDir { name, group },
            HostVolume::MemoryDirectory { name, size, huge_page_size } => match huge_page_size {
                Some(page_size) => Self::HugePages { name, page_size, group },
                None => Self::Memory { name, size, group },
            },
            HostVolume::HostPath { path, kind, .. } => Self::HostPath { path, kind },
            HostVolume::Payload { name, kind, size, files, mount_points } => {
                Self::Payload(PayloadVolume { name, kind, size, files, mount_points, group })
            }
        }
    }

    pub(crate) fn pin(request: &SubPath) -> Self {
        let SubPath { volume, volume_path, sub_path, container, mount_index } = request.clone();
        Self::Pin { volume, volume_path, sub_path, container, index: mount_index }
    }
}

impl VolumeStep {
    /// Whether the step may touch a file system that is not the agent's, and hang there.
    pub(crate) fn is_foreign(&self) -> bool {
        let pod = self.root.join("pods").join(&self.uid);
        match &self.operation {
            VolumeOperation::EmptyDir { .. }
            | VolumeOperation::Memory { .. }
            | VolumeOperation::HugePages { .. }
            | VolumeOperation::Payload(_) => false,
            VolumeOperation::HostPath { kind, .. } => !kind.is_empty(),
            VolumeOperation::Pin { volume_path, .. } => {
                let volumes = pod.join("volumes");
                !own_plugin_dirs().any(|plugin| volume_path.starts_with(volumes.join(plugin)))
            }
            // What is bind-mounted below may be from anywhere; the mount table shows it without
            // touching it.
            VolumeOperation::Release { .. } | VolumeOperation::TearDown => {
                mount_table::MountTable::read().is_ok_and(|table| !table.beneath(&pod).is_empty())
            }
        }
    }

    pub(crate) fn perform(&self) -> StepAnswer {
        let pod = PodDirPath::new(&self.root, &self.uid)?;
        let owned = |group: Option<i64>| VolumeOwnership { group, ..VolumeOwnership::default() };
        let made = |name: &str, medium: Medium, group: Option<i64>| {
            empty_dir::set_up(&pod, name, &medium, &owned(group))
        };
        match &self.operation {
            VolumeOperation::EmptyDir { name, group } => made(name, Medium::Disk, *group),
            VolumeOperation::Memory { name, size, group } => {
                made(name, Medium::Memory { size: *size }, *group)
            }
            VolumeOperation::HugePages { name, page_size, group } => {
                made(name, Medium::HugePages { page_size: page_size.clone() }, *group)
            }
            VolumeOperation::HostPath { path, kind } => host_path::set_up(path, kind),
            VolumeOperation::Payload(volume) => payload::set_up(&pod, volume),
            VolumeOperation::Pin { volume, volume_path, sub_path, container, index } => {
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
            VolumeOperation::Release { container } => {
                mounting::check_proc()?;
                sub_path::release(&pod, Some(container))?;
                Ok(PathBuf::new())
            }
            VolumeOperation::TearDown => {
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
    input.take(MAX_STEP_BYTES).read_to_end(&mut text)?;
    let answer: StepAnswer = match serde_json::from_slice::<VolumeStep>(&text) {
        Ok(step) => step.perform(),
        Err(error) => Err(StepError::permanent(format!("not a volume step: {error}"))),
    };
    let answer = serde_json::to_string(&answer)?;
    writeln!(output, "\n{ANSWER_PREFIX}{answer}")?;
    output.flush()
}

/// The answer in a process's output.
pub(crate) fn answer_in(printed: &[u8]) -> Option<StepAnswer> {
    let text = String::from_utf8_lossy(printed);
    let line = text.lines().find_map(|line| line.strip_prefix(ANSWER_PREFIX))?;
    serde_json::from_str(line).ok()
}

/// The path that a step is about, for a message.
pub(crate) fn step_path(step: &VolumeStep) -> String {
    let pod = step.root.join("pods").join(&step.uid);
    let place: &Path = match &step.operation {
        VolumeOperation::HostPath { path, .. } => Path::new(path),
        VolumeOperation::Pin { volume_path, .. } => volume_path,
        _ => &pod,
    };
    place.display().to_string()
}
