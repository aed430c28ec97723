//! Rotates the logs of running containers.
//!
//! Rules: sizes are read at the configured interval, all in one call; logs that have reached their
//! size are rotated, a few at a time, at most one rotation per container. `node-policy` decides
//! what is done to which file. If the runtime does not open a new log, the old one is renamed back,
//! so that nothing written is lost. A log that cannot be compressed is rotated all the same: the
//! disk may be full, and the number of files is bounded either way.

use crate::clock::AgentClock;
use crate::keyed_tasks::KeyedTasks;
use crate::observed::ObservedPods;
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
struct ContainerLog {
    id: String,
    log: String,
}

#[derive(Clone)]
struct LogRotator {
    files: Arc<dyn LogFiles>,
    runtime: Arc<dyn PodRuntime>,
    clock: AgentClock,
    limits: LogLimits,
}

/// Rotates for ever.
pub(crate) async fn rotate_logs(context: Arc<PodContext>, settings: LogRotation) {
    let rotator = LogRotator {
        files: context.ports.logs.clone(),
        runtime: context.ports.runtime.clone(),
        clock: context.clock.clone(),
        limits: settings.limits,
    };
    let dir = context.settings.setup.pod_logs_directory.as_str();
    let mut under_way: KeyedTasks<String, ()> = KeyedTasks::default();
    let mut queue: VecDeque<ContainerLog> = VecDeque::new();
    let mut periodic_tasks = tokio::time::interval(settings.interval);
    periodic_tasks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = periodic_tasks.tick() => {
                let container_logs = container_logs(&context.observed, dir);
                // A container that has exited meanwhile writes no more.
                queue.retain(|queued| container_logs.contains_key(&queued.id));
                for container_log in due(&rotator, container_logs).await {
                    let waits = queue.iter().any(|queued| queued.id == container_log.id);
                    if !waits && !under_way.contains(&container_log.id) {
                        queue.push_back(container_log);
                    }
                }
                if queue.is_empty() && under_way.is_empty() {
                    context.ports.periodic_tasks.ended();
                }
            }
            (id, ended) = under_way.next() => {
                if let Err(panicked) = ended {
                    error!(container_id = id, err = panicked.0, "Rotating a log ended in a panic");
                }
            }
        }
        while under_way.len() < settings.workers.max(1) {
            let Some(container_log) = queue.pop_front() else { break };
            let rotator = rotator.clone();
            under_way.start(container_log.id.clone(), "log-rotation", async move {
                rotator.rotate(&container_log).await;
            });
        }
    }
}

/// Running containers that log below our log directory, by id.
fn container_logs(observed: &ObservedPods, dir: &str) -> BTreeMap<String, String> {
    let mut container_logs = BTreeMap::new();
    for (_, pod) in observed.all() {
        let running = pod.containers.iter().map(|each| &each.record);
        for record in running.filter(|record| record.state == ContainerState::Running) {
            if Path::new(&record.log_path).starts_with(dir) {
                container_logs.insert(record.id.clone(), record.log_path.clone());
            }
        }
    }
    container_logs
}

/// Containers whose log has reached its size, or is missing.
async fn due(rotator: &LogRotator, container_logs: BTreeMap<String, String>) -> Vec<ContainerLog> {
    if container_logs.is_empty() {
        return Vec::new();
    }
    let (ids, logs): (Vec<String>, Vec<String>) = container_logs.into_iter().unzip();
    let sizes = match rotator.files.sizes(&logs).await {
        Ok(sizes) => sizes,
        Err(error) => {
            error!(err = %error, "Cannot look at the logs of containers; none is rotated");
            return Vec::new();
        }
    };
    let container_logs = ids.into_iter().zip(logs).map(|(id, log)| ContainerLog { id, log });
    let is_due = |size: &Option<u64>| size.is_none_or(|size| rotator.limits.is_reached(size));
    container_logs
        .zip(sizes)
        .filter(|(_, size)| is_due(size))
        .map(|(container_log, _)| container_log)
        .collect()
}

impl LogRotator {
    async fn rotate(&self, container_log: &ContainerLog) {
        if let Err(why) = self.try_rotate(container_log).await {
            error!(
                container_id = container_log.id,
                path = container_log.log,
                err = why,
                "Failed to rotate log for container"
            );
        }
    }

    async fn try_rotate(&self, container_log: &ContainerLog) -> Result<(), String> {
        let Some(name) = Path::new(&container_log.log).file_name().and_then(|name| name.to_str())
        else {
            return Err("the path of the log names no file".to_owned());
        };
        let size = match self.size(container_log).await? {
            Some(size) => size,
            None => {
                debug!(
                    container_id = container_log.id,
                    path = container_log.log,
                    "The log is not there"
                );
                self.reopen(container_log).await?;
                self.size(container_log)
                    .await?
                    .ok_or("not a file, even after it was opened again")?
            }
        };
        if !self.limits.is_reached(size) {
            return Ok(());
        }
        let names =
            self.files.names(&container_log.log).await.map_err(|error| error.to_string())?;
        for step in rotation(name, &names, &self.limits, self.clock.now()) {
            self.apply_step(container_log, name, step).await?;
        }
        info!(
            v = 4,
            container_id = container_log.id,
            path = container_log.log,
            size,
            "Rotated a log"
        );
        Ok(())
    }

    async fn apply_step(
        &self,
        container_log: &ContainerLog,
        name: &str,
        step: RotationStep,
    ) -> Result<(), String> {
        match step {
            RotationStep::Remove(old) => {
                let removed = self.files.remove(&container_log.log, &old).await;
                removed.map_err(|error| format!("cannot remove the old log {old}: {error}"))
            }
            RotationStep::Pack(old) => {
                if let Err(error) = self.files.pack(&container_log.log, &old).await {
                    warn!(path = container_log.log, name = old, err = %error, "Cannot pack an old log");
                }
                Ok(())
            }
            RotationStep::Rotate(to) => {
                let renamed = self.files.rename(&container_log.log, name, &to).await;
                renamed.map_err(|error| format!("cannot rename it to {to}: {error}"))?;
                let Err(why) = self.reopen(container_log).await else { return Ok(()) };
                // Refused if the runtime has opened a new log all the same.
                if let Err(error) = self.files.rename(&container_log.log, &to, name).await {
                    warn!(path = container_log.log, name = to, err = %error, "The rotated log stays");
                }
                Err(why)
            }
        }
    }

    async fn size(&self, container_log: &ContainerLog) -> Result<Option<u64>, String> {
        let sizes = self.files.sizes(std::slice::from_ref(&container_log.log)).await;
        Ok(sizes.map_err(|error| error.to_string())?.into_iter().next().flatten())
    }

    async fn reopen(&self, container_log: &ContainerLog) -> Result<(), String> {
        let reopened = self.runtime.reopen_log(&container_log.id).await;
        reopened.map_err(|error| {
            format!("failed to reopen container log {:?}: {error}", container_log.id)
        })
    }
}
