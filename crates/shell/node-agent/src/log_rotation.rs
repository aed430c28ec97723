//! Rotates the logs of running containers.
//!
//! Rules: sizes are read at the configured interval, all in one call; logs that have reached their
//! size are rotated, a few at a time, at most one rotation per container. `node-policy` decides
//! what is done to which file. If the runtime does not open a new log, the old one is renamed back,
//! so that nothing written is lost. A log that cannot be compressed is rotated all the same: the
//! disk may be full, and the number of files is bounded either way.

use crate::branch::Branch;
use crate::clock::Clock;
use crate::observed::Observed;
use crate::pods::PodContext;
use node_policy::log_rotation::{LogLimits, RotationStep, rotation};
use ports::runtime_objects::ContainerState;
use ports::{LogFiles, PodRuntime};
use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::MissedTickBehavior;
use tracing::{debug, error, info, warn};

/// The configuration of log rotation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogRotation {
    pub limits: LogLimits,
    /// `containerLogMaxWorkers`.
    pub workers: usize,
    /// `containerLogMonitorInterval`.
    pub interval: Duration,
}

/// A running container and its log.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Writer {
    id: String,
    log: String,
}

#[derive(Clone)]
struct Rotating {
    files: Arc<dyn LogFiles>,
    runtime: Arc<dyn PodRuntime>,
    clock: Clock,
    limits: LogLimits,
}

/// Rotates for ever.
pub(crate) async fn keep_small(context: Arc<PodContext>, settings: LogRotation) {
    let rotating = Rotating {
        files: context.ports.logs.clone(),
        runtime: context.ports.runtime.clone(),
        clock: context.clock.clone(),
        limits: settings.limits,
    };
    let folder = context.settings.setup.pod_logs_directory.as_str();
    let mut under_way: Branch<String, ()> = Branch::default();
    let mut queue: VecDeque<Writer> = VecDeque::new();
    let mut rounds = tokio::time::interval(settings.interval);
    rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = rounds.tick() => {
                let writers = writers(&context.observed, folder);
                // A container that has exited meanwhile writes no more.
                queue.retain(|queued| writers.contains_key(&queued.id));
                for writer in due(&rotating, writers).await {
                    let waits = queue.iter().any(|queued| queued.id == writer.id);
                    if !waits && !under_way.contains(&writer.id) {
                        queue.push_back(writer);
                    }
                }
                if queue.is_empty() && under_way.is_empty() {
                    context.ports.rounds.ended();
                }
            }
            (id, ended) = under_way.next() => {
                if let Err(panicked) = ended {
                    error!(container_id = id, err = panicked.0, "Rotating a log ended in a panic");
                }
            }
        }
        while under_way.len() < settings.workers.max(1) {
            let Some(writer) = queue.pop_front() else { break };
            let rotating = rotating.clone();
            under_way.start(writer.id.clone(), "log-rotation", async move {
                rotating.rotate(&writer).await;
            });
        }
    }
}

/// Running containers that log below our log directory, by id.
fn writers(observed: &Observed, folder: &str) -> BTreeMap<String, String> {
    let mut writers = BTreeMap::new();
    for (_, pod) in observed.all() {
        let running = pod.containers.iter().map(|each| &each.record);
        for record in running.filter(|record| record.state == ContainerState::Running) {
            if Path::new(&record.log_path).starts_with(folder) {
                writers.insert(record.id.clone(), record.log_path.clone());
            }
        }
    }
    writers
}

/// Containers whose log has reached its size, or is missing.
async fn due(rotating: &Rotating, writers: BTreeMap<String, String>) -> Vec<Writer> {
    if writers.is_empty() {
        return Vec::new();
    }
    let (ids, logs): (Vec<String>, Vec<String>) = writers.into_iter().unzip();
    let sizes = match rotating.files.sizes(&logs).await {
        Ok(sizes) => sizes,
        Err(error) => {
            error!(err = %error, "Cannot look at the logs of containers; none is rotated");
            return Vec::new();
        }
    };
    let writers = ids.into_iter().zip(logs).map(|(id, log)| Writer { id, log });
    let is_due = |size: &Option<u64>| size.is_none_or(|size| rotating.limits.is_reached(size));
    writers.zip(sizes).filter(|(_, size)| is_due(size)).map(|(writer, _)| writer).collect()
}

impl Rotating {
    async fn rotate(&self, writer: &Writer) {
        if let Err(why) = self.try_rotate(writer).await {
            error!(
                container_id = writer.id,
                path = writer.log,
                err = why,
                "Failed to rotate log for container"
            );
        }
    }

    async fn try_rotate(&self, writer: &Writer) -> Result<(), String> {
        let Some(name) = Path::new(&writer.log).file_name().and_then(|name| name.to_str()) else {
            return Err("the path of the log names no file".to_owned());
        };
        let size = match self.size(writer).await? {
            Some(size) => size,
            None => {
                debug!(container_id = writer.id, path = writer.log, "The log is not there");
                self.reopen(writer).await?;
                self.size(writer).await?.ok_or("not a file, even after it was opened again")?
            }
        };
        if !self.limits.is_reached(size) {
            return Ok(());
        }
        let names = self.files.names(&writer.log).await.map_err(|error| error.to_string())?;
        for step in rotation(name, &names, &self.limits, self.clock.now()) {
            self.take(writer, name, step).await?;
        }
        info!(v = 4, container_id = writer.id, path = writer.log, size, "Rotated a log");
        Ok(())
    }

    async fn take(&self, writer: &Writer, name: &str, step: RotationStep) -> Result<(), String> {
        match step {
            RotationStep::Remove(old) => {
                let removed = self.files.remove(&writer.log, &old).await;
                removed.map_err(|error| format!("cannot remove the old log {old}: {error}"))
            }
            RotationStep::Pack(old) => {
                if let Err(error) = self.files.pack(&writer.log, &old).await {
                    warn!(path = writer.log, name = old, err = %error, "Cannot pack an old log");
                }
                Ok(())
            }
            RotationStep::Rotate(to) => {
                let renamed = self.files.rename(&writer.log, name, &to).await;
                renamed.map_err(|error| format!("cannot rename it to {to}: {error}"))?;
                let Err(why) = self.reopen(writer).await else { return Ok(()) };
                // Refused if the runtime has opened a new log all the same.
                if let Err(error) = self.files.rename(&writer.log, &to, name).await {
                    warn!(path = writer.log, name = to, err = %error, "The rotated log stays");
                }
                Err(why)
            }
        }
    }

    async fn size(&self, writer: &Writer) -> Result<Option<u64>, String> {
        let sizes = self.files.sizes(std::slice::from_ref(&writer.log)).await;
        Ok(sizes.map_err(|error| error.to_string())?.into_iter().next().flatten())
    }

    async fn reopen(&self, writer: &Writer) -> Result<(), String> {
        let reopened = self.runtime.reopen_log(&writer.id).await;
        reopened.map_err(|error| format!("failed to reopen container log {:?}: {error}", writer.id))
    }
}
