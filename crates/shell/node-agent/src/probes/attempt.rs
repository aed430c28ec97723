//! One attempt of a probe, by exec in the container or over the network.
//!
//! upstream: pkg/kubelet/prober/prober.go, pkg/probe/exec/exec.go

use crate::reach::{Asker, Reach, reach};
use container_setup::expansion;
use pod_lifecycle::ProbeResult;
use pod_model::pod::Container;
use pod_model::pod::handler::Probe;
use ports::PodRuntime;
use ports::container_runtime::ContainerRuntimeError;
use ports::probing::{NetworkProber, NetworkTry, TryAnswer};
use std::collections::BTreeMap;
use std::time::Duration;

/// Attempts if the probe cannot be run at all (no answer from the runtime).
const TRIES: u32 = 3;
/// How much of a command's output a message may contain.
const LONGEST_OUTPUT: usize = 10 * 1024;
/// Beyond the probe's own timeout: for a runtime or a prober that does not keep it.
const SLACK: Duration = Duration::from_secs(10);

/// The inputs of an attempt.
#[derive(Debug, Clone)]
pub(super) struct Probing {
    container_name: String,
    container_id: String,
    way: Result<Reach, String>,
    limit: Duration,
}

impl Probing {
    /// Last: the container's id, and the timeout of an attempt.
    pub(super) fn new(
        container: &Container,
        probe: &Probe,
        pod_ip: Option<&str>,
        (container_id, limit): (&str, Duration),
    ) -> Self {
        let way = match probe.action() {
            Some(action) => reach(action, container, pod_ip, Asker::Probe),
            None => Err("missing probe handler".to_owned()),
        };
        let way = way.map(|way| match way {
            Reach::Exec(command) => Reach::Exec(expanded(container, &command)),
            other => other,
        });
        Self {
            container_name: container.name.to_string(),
            container_id: container_id.to_owned(),
            way,
            limit,
        }
    }

    pub(super) fn container_name(&self) -> &str {
        &self.container_name
    }

    pub(super) async fn attempt(
        &self,
        runtime: &dyn PodRuntime,
        prober: &dyn NetworkProber,
    ) -> ProbeResult {
        match &self.way {
            Err(why) => ProbeResult::Unknown(why.clone()),
            Ok(Reach::Sleep(_)) => ProbeResult::Unknown("a probe does not sleep".to_owned()),
            Ok(Reach::Network(what)) => self.over_network(what, prober).await,
            Ok(Reach::Exec(command)) => {
                let mut last = ProbeResult::Unknown(String::new());
                for _ in 0..TRIES {
                    last = self.by_exec(command, runtime).await;
                    if !matches!(last, ProbeResult::Unknown(_)) {
                        break;
                    }
                }
                last
            }
        }
    }

    async fn over_network(&self, what: &NetworkTry, prober: &dyn NetworkProber) -> ProbeResult {
        let call = prober.attempt(what, self.limit);
        match tokio::time::timeout(self.limit + SLACK, call).await {
            Ok(TryAnswer::Success(_)) => ProbeResult::Success,
            Ok(TryAnswer::Warning(text)) => ProbeResult::Warning(text),
            Ok(TryAnswer::Failure(text) | TryAnswer::PlainHttp(text)) => ProbeResult::Failure(text),
            Err(_) => ProbeResult::Failure(format!("no answer within {:?}", self.limit)),
        }
    }

    async fn by_exec(&self, command: &[String], runtime: &dyn PodRuntime) -> ProbeResult {
        let call = runtime.exec_sync(&self.container_id, command, self.limit);
        let timed_out = || {
            let text = format!(
                "command timed out: {:?} timed out after {:?}",
                command.join(" "),
                self.limit
            );
            ProbeResult::Failure(text)
        };
        match tokio::time::timeout(self.limit + SLACK, call).await {
            Err(_) | Ok(Err(ContainerRuntimeError::DeadlineExceeded { .. })) => timed_out(),
            Ok(Err(error)) => ProbeResult::Unknown(error.to_string()),
            Ok(Ok(output)) if output.exit_code == 0 => ProbeResult::Success,
            Ok(Ok(output)) => {
                let mut said = output.stdout;
                said.extend(output.stderr);
                said.truncate(LONGEST_OUTPUT);
                ProbeResult::Failure(String::from_utf8_lossy(&said).into_owned())
            }
        }
    }
}

/// The command with the container's plain variables expanded.
fn expanded(container: &Container, command: &[String]) -> Vec<String> {
    let plain = container.env.iter().filter(|each| each.value_from.is_none());
    let variables: BTreeMap<&str, &str> = plain.map(|each| (&*each.name, &*each.value)).collect();
    command.iter().map(|word| expansion::expand_from(word, &variables)).collect()
}
