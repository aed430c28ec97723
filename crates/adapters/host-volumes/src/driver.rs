//! The volume driver: each call becomes a step, and the step runs where it can do no harm.
//!
//! Rule: every step has a limit; a process that has not exited by then is killed and left to the
//! kernel, a thread is abandoned (at most as many as there are slots).

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use host_paths::{BlockingPool, OpenDir, SymlinkPolicy};
use ports::pod_host::{
    HostError, HostFuture, HostVolume, SubPath, VolumeDriver, VolumeFile, VolumeOwnership,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Command;

use crate::step_error::StepError;
use crate::steps::{VolumeOperation, VolumeStep, answer_in, step_path};

/// For a step that only looks, creates or mounts.
const STEP_TIMEOUT: Duration = Duration::from_secs(60);

/// For a step that may have much to remove.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(600);

const MAX_THREADS: usize = 16;
const MAX_ANSWER_BYTES: u64 = 1 << 20;

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
    blocking_pool: BlockingPool,
    locks: PodLocks,
    limit: Duration,
}

/// One step of a pod at a time: an abandoned write must not go on beside the
/// removal of the volume.
#[derive(Debug, Clone, Default)]
struct PodLocks(Arc<Mutex<HashMap<String, Weak<tokio::sync::Mutex<()>>>>>);

impl PodLocks {
    fn of(&self, uid: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut locks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lock) = locks.get(uid).and_then(Weak::upgrade) {
            return lock;
        }
        locks.retain(|_, lock| lock.strong_count() > 0);
        let lock = Arc::new(tokio::sync::Mutex::new(()));
        locks.insert(uid.to_owned(), Arc::downgrade(&lock));
        lock
    }
}

impl HostVolumes {
    /// `root` is the kubelet's root directory. Without a program all steps run on threads.
    pub fn new(root: &Path, program: Option<StepProgram>) -> Self {
        Self {
            root: Arc::new(root.to_owned()),
            program: program.map(Arc::new),
            blocking_pool: BlockingPool::new("volumes", MAX_THREADS, STEP_TIMEOUT),
            locks: PodLocks::default(),
            limit: STEP_TIMEOUT,
        }
    }

    /// Another limit for steps that only look, create or mount.
    #[must_use]
    pub fn with_limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    fn run<'a>(&'a self, uid: &str, operation: VolumeOperation) -> HostFuture<'a, PathBuf> {
        let limit = if operation == VolumeOperation::TearDown {
            self.limit.max(REMOVAL_TIMEOUT)
        } else {
            self.limit
        };
        let step = VolumeStep { root: self.root.as_ref().clone(), uid: uid.to_owned(), operation };
        let what = step_path(&step);
        let lock = self.locks.of(uid);
        Box::pin(async move {
            let turn = tokio::time::timeout(limit, lock.lock_owned()).await.map_err(|_| {
                HostError::Transient(format!(
                    "{what}: another step of the pod's volumes has not ended after {limit:?}"
                ))
            })?;
            let answer = match &self.program {
                Some(program) if step.is_foreign() => in_process(program, &step, limit).await?,
                _ => self
                    .blocking_pool
                    .run_within(limit, move || {
                        // The thread goes on when its caller has left; so does its turn.
                        let _turn = turn;
                        step.perform()
                    })
                    .await
                    .map_err(|error| HostError::Transient(format!("{what}: {error}")))?,
            };
            answer.map_err(HostError::from)
        })
    }
}

async fn in_process(
    program: &StepProgram,
    step: &VolumeStep,
    limit: Duration,
) -> Result<crate::steps::StepAnswer, HostError> {
    let transient = |reason: String| HostError::Transient(format!("{}: {reason}", step_path(step)));
    let text = serde_json::to_vec(step).map_err(|error| transient(error.to_string()))?;
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
            output.take(MAX_ANSWER_BYTES).read_to_end(&mut printed).await?;
        }
        child.wait().await.map(|status| (status, printed))
    };
    match tokio::time::timeout(limit, conversation).await {
        Err(_) => {
            Err(transient(format!("not done after {limit:?}: the file system does not answer")))
        }
        Ok(Err(error)) => Err(transient(format!("the process for it could not be used: {error}"))),
        Ok(Ok((status, printed))) => answer_in(&printed).ok_or_else(|| {
            transient(format!("the process for it ended without an answer: {status}"))
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
        self.run(uid, VolumeOperation::set_up(volume, ownership))
    }

    fn pin_sub_path<'a>(&'a self, uid: &'a str, request: &'a SubPath) -> HostFuture<'a, PathBuf> {
        self.run(uid, VolumeOperation::pin(request))
    }

    fn read_file<'a>(&'a self, file: &'a VolumeFile) -> HostFuture<'a, Vec<u8>> {
        let VolumeFile { volume_path, path, most } = file.clone();
        let what = volume_path.join(path.trim_start_matches('/')).display().to_string();
        Box::pin(async move {
            let read = move || {
                let dir = OpenDir::open(&volume_path)?;
                dir.read(
                    path.trim_start_matches('/'),
                    SymlinkPolicy::Within,
                    most.saturating_add(1),
                )
            };
            let read = self.blocking_pool.run_within(self.limit, read).await;
            let read = read.map_err(|error| HostError::Transient(format!("{what}: {error}")))?;
            read.map_err(|path_error| StepError::from(path_error).into())
        })
    }

    fn release_sub_paths<'a>(&'a self, uid: &'a str, container: &'a str) -> HostFuture<'a, ()> {
        let released = self.run(uid, VolumeOperation::Release { container: container.to_owned() });
        Box::pin(async move { released.await.map(drop) })
    }

    fn tear_down<'a>(&'a self, uid: &'a str) -> HostFuture<'a, ()> {
        let done = self.run(uid, VolumeOperation::TearDown);
        Box::pin(async move { done.await.map(drop) })
    }
}
