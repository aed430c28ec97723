//! The volume driver: each call becomes a step, and the step runs where it can do no harm.
//!
//! Rule: every step has a limit; a process that has not exited by then is killed and left to the
//! kernel, a thread is abandoned (at most as many as there are slots).

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use host_paths::{Apart, Folder, Links};
use ports::pod_host::{
    HostError, HostFuture, HostVolume, SubPath, VolumeDriver, VolumeFile, VolumeOwnership,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Command;

use crate::failure::StepFailure;
use crate::steps::{Act, Step, about, answer_in};

/// For a step that only looks, creates or mounts.
const LIMIT: Duration = Duration::from_secs(60);

/// For a step that may have much to remove.
const LONG_LIMIT: Duration = Duration::from_secs(600);

const MOST_THREADS: usize = 16;
const LONGEST_ANSWER: u64 = 1 << 20;

/// The program that runs one step: the binary itself, with arguments that make it call
/// [`crate::answer_step`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepProgram {
    pub program: PathBuf,
    pub arguments: Vec<OsString>,
}

#[derive(Debug, Clone)]
pub struct HostVolumes {
    root: Arc<PathBuf>,
    program: Option<Arc<StepProgram>>,
    apart: Apart,
    limit: Duration,
}

impl HostVolumes {
    /// `root` is the kubelet's root directory. Without a program all steps run on threads.
    pub fn new(root: &Path, program: Option<StepProgram>) -> Self {
        Self {
            root: Arc::new(root.to_owned()),
            program: program.map(Arc::new),
            apart: Apart::new("volumes", MOST_THREADS, LIMIT),
            limit: LIMIT,
        }
    }

    /// Another limit for steps that only look, create or mount.
    #[must_use]
    pub fn with_limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    fn run<'a>(&'a self, uid: &str, act: Act) -> HostFuture<'a, PathBuf> {
        let limit = if act == Act::TearDown { self.limit.max(LONG_LIMIT) } else { self.limit };
        let step = Step { root: self.root.as_ref().clone(), uid: uid.to_owned(), act };
        let what = about(&step);
        Box::pin(async move {
            let answer = match &self.program {
                Some(program) if step.is_foreign() => in_process(program, &step, limit).await?,
                _ => self
                    .apart
                    .run_within(limit, move || step.perform())
                    .await
                    .map_err(|error| HostError::Passing(format!("{what}: {error}")))?,
            };
            answer.map_err(HostError::from)
        })
    }
}

async fn in_process(
    program: &StepProgram,
    step: &Step,
    limit: Duration,
) -> Result<crate::steps::StepAnswer, HostError> {
    let passing = |why: String| HostError::Passing(format!("{}: {why}", about(step)));
    let text = serde_json::to_vec(step).map_err(|error| passing(error.to_string()))?;
    let conversation = async {
        let mut child = Command::new(&program.program)
            .args(&program.arguments)
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            // Dropped at the limit: killed, and reaped in the background if it exits.
            .kill_on_drop(true)
            .spawn()?;
        if let Some(mut input) = child.stdin.take() {
            input.write_all(&text).await?;
        }
        let mut printed = Vec::new();
        if let Some(output) = child.stdout.take() {
            output.take(LONGEST_ANSWER).read_to_end(&mut printed).await?;
        }
        child.wait().await.map(|status| (status, printed))
    };
    match tokio::time::timeout(limit, conversation).await {
        Err(_) => {
            Err(passing(format!("not done after {limit:?}: the file system does not answer")))
        }
        Ok(Err(error)) => Err(passing(format!("the process for it could not be used: {error}"))),
        Ok(Ok((status, printed))) => answer_in(&printed).ok_or_else(|| {
            passing(format!("the process for it ended without an answer: {status}"))
        }),
    }
}

impl VolumeDriver for HostVolumes {
    fn set_up<'a>(
        &'a self,
        uid: &'a str,
        volume: &'a HostVolume,
        ownership: &'a VolumeOwnership,
    ) -> HostFuture<'a, PathBuf> {
        self.run(uid, Act::set_up(volume, ownership))
    }

    fn pin_sub_path<'a>(&'a self, uid: &'a str, request: &'a SubPath) -> HostFuture<'a, PathBuf> {
        self.run(uid, Act::pin(request))
    }

    fn read_file<'a>(&'a self, file: &'a VolumeFile) -> HostFuture<'a, Vec<u8>> {
        let VolumeFile { volume_path, path, most } = file.clone();
        let what = volume_path.join(path.trim_start_matches('/')).display().to_string();
        Box::pin(async move {
            let read = move || {
                let folder = Folder::open(&volume_path)?;
                folder.read(path.trim_start_matches('/'), Links::Within, most.saturating_add(1))
            };
            let read = self.apart.run_within(self.limit, read).await;
            let read = read.map_err(|error| HostError::Passing(format!("{what}: {error}")))?;
            read.map_err(|trouble| StepFailure::from(trouble).into())
        })
    }

    fn release_sub_paths<'a>(&'a self, uid: &'a str, container: &'a str) -> HostFuture<'a, ()> {
        let released = self.run(uid, Act::Release { container: container.to_owned() });
        Box::pin(async move { released.await.map(drop) })
    }

    fn tear_down<'a>(&'a self, uid: &'a str) -> HostFuture<'a, ()> {
        let done = self.run(uid, Act::TearDown);
        Box::pin(async move { done.await.map(drop) })
    }
}
