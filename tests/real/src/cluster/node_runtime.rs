//! The container runtime of a cluster's node, with the images of the tests.
//!
//! Rule: each is started as an administrator would; the node only knows its endpoint.

use anyhow::Result;
use node_testkit::bed::Bed;
use node_testkit::start::{Containerd, ContainerdOptions};

use super::node::ClusterPrograms;
use crate::embedded::{Embedded, EmbeddedOptions};

/// Which runtime a node has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuntimeKind {
    Containerd,
    /// `keelson cri` beside the agent.
    Embedded,
}

/// A running runtime.
pub(super) enum NodeRuntime {
    Containerd(Containerd),
    Embedded(Embedded),
}

impl NodeRuntime {
    pub(super) fn start(bed: &Bed, programs: &ClusterPrograms, kind: RuntimeKind) -> Result<Self> {
        match kind {
            RuntimeKind::Containerd => {
                let containerd = Containerd::start(bed, &ContainerdOptions::default())?;
                for archive in &programs.archives {
                    containerd.import(archive)?;
                }
                Ok(Self::Containerd(containerd))
            }
            RuntimeKind::Embedded => {
                let options = EmbeddedOptions { quiet: true, ..EmbeddedOptions::default() };
                let embedded = Embedded::start(bed, &programs.runtime, &options)?;
                for archive in &programs.archives {
                    embedded.import(archive)?;
                }
                Ok(Self::Embedded(embedded))
            }
        }
    }

    pub(super) fn endpoint(&self) -> String {
        match self {
            Self::Containerd(containerd) => containerd.endpoint(),
            Self::Embedded(embedded) => embedded.endpoint(),
        }
    }
}
