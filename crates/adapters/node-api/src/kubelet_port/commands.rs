//! Run and checkpoint on the kubelet's port.
//!
//! Rule: codes and texts are upstream's (pkg/kubelet/server/server.go: getRun, checkpoint). Both
//! have a limit of their own.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use http_server::{WorkPermit, WorkPermits};
use ports::local_api::LocalPod;
use ports::local_runtime::LocalRuntime;
use ports::{ApiTime, LocalApi};

use super::pods;
use super::query::QueryParameters;
use super::reply::KubeletReply;
use super::route::ContainerPath;
use super::streams::no_runtime;

/// Commands and checkpoints at the same time.
const COMMAND_PERMITS: usize = 32;

/// Runs commands in containers and writes checkpoints of them.
pub(super) struct PortCommands {
    runtime: Option<Arc<dyn LocalRuntime>>,
    permits: WorkPermits,
    /// The directory of checkpoints.
    checkpoints: PathBuf,
}

impl PortCommands {
    pub(super) fn new(runtime: Option<Arc<dyn LocalRuntime>>, checkpoints: PathBuf) -> Self {
        Self { runtime, permits: WorkPermits::new(COMMAND_PERMITS), checkpoints }
    }

    fn start(&self) -> Result<(&dyn LocalRuntime, WorkPermit), KubeletReply> {
        let permit = self.permits.try_acquire().ok_or_else(KubeletReply::too_many)?;
        Ok((self.runtime.as_deref().ok_or_else(no_runtime)?, permit))
    }

    /// Runs the command `cmd`, whose words are separated by spaces, to their end.
    pub(super) async fn run(
        &self,
        local: &dyn LocalApi,
        path: ContainerPath<'_>,
        query: &str,
    ) -> Result<KubeletReply, KubeletReply> {
        let container = pods::container_to_exec(local, path)?;
        let query = QueryParameters::parse(query);
        let command = query.first("cmd").unwrap_or_default();
        let words: Vec<String> = command.split(' ').map(str::to_owned).collect();
        let (runtime, _permit) = self.start()?;
        let ended = runtime.run_command(&container.id, words).await;
        let ended = ended.map_err(|error| KubeletReply::text(500, error.to_string()))?;
        if ended.exit_code != 0 {
            let stderr = String::from_utf8_lossy(&ended.stderr);
            let text = format!("command '{command}' exited with {}: {stderr}", ended.exit_code);
            return Err(KubeletReply::text(500, text));
        }
        Ok(KubeletReply::json([ended.stdout, ended.stderr].concat()))
    }

    pub(super) async fn checkpoint(
        &self,
        local: &dyn LocalApi,
        path: ContainerPath<'_>,
        query: &str,
    ) -> Result<KubeletReply, KubeletReply> {
        let pod = pods::pod(local, path.pod)?;
        if !pods::has_container(&pod.object, path.container) {
            let text = format!("container {} does not exist", path.container);
            return Err(KubeletReply::text(404, text));
        }
        let query = QueryParameters::parse(query);
        let seconds = query.all("timeout").next_back().map_or(Ok(0), str::parse::<i64>);
        let seconds = seconds
            .map_err(|_| KubeletReply::text(404, "cannot parse value of timeout parameter"))?;
        let failed = |why: String| {
            let (namespace, name) = (path.pod.namespace, path.pod.name);
            let of = format!("{namespace}/{name}/{}", path.container);
            KubeletReply::text(500, format!("checkpointing of {of} failed ({why})"))
        };
        let Some(container) = pods::running(&pod, path.container) else {
            return Err(failed(format!("container {} not found", path.container)));
        };
        let (runtime, _permit) = self.start()?;
        self.create_dir().await.map_err(|error| failed(error.to_string()))?;
        let file = self.checkpoint_file(&pod, path.container);
        let written = runtime.checkpoint(&container.id, file.clone(), seconds).await;
        written.map_err(|error| failed(error.to_string()))?;
        let body = serde_json::json!({"items": [file]}).to_string();
        Ok(KubeletReply::json(Bytes::from(body)))
    }

    /// Checkpoints contain the memory of containers: only root may read them.
    async fn create_dir(&self) -> std::io::Result<()> {
        let mut builder = tokio::fs::DirBuilder::new();
        builder.recursive(true).mode(0o700).create(&self.checkpoints).await
    }

    fn checkpoint_file(&self, pod: &LocalPod, container: &str) -> String {
        let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let nanos = since_epoch.unwrap_or_default().as_nanos();
        let now = ApiTime::from_nanos(i64::try_from(nanos).unwrap_or(i64::MAX)).to_seconds_text();
        let (name, namespace) = (&pod.name, &pod.namespace);
        let file = format!("checkpoint-{name}_{namespace}-{container}-{now}.tar");
        self.checkpoints.join(file).display().to_string()
    }
}
