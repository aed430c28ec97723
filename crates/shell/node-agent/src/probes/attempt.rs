//! One attempt of a probe, by exec in the container or over the network.
//!
//! upstream: pkg/kubelet/prober/prober.go, pkg/probe/exec/exec.go

use crate::resolve_handler::{Requester, ResolvedHandler, resolve_handler};
use container_setup::expansion;
use pod_lifecycle::ProbeResult;
use pod_model::pod::Container;
use pod_model::pod::handler::Probe;
use ports::PodRuntime;
use ports::container_runtime::ContainerRuntimeError;
use ports::probing::{NetworkProbeRequest, NetworkProber, ProbeAttemptResult};
use std::collections::BTreeMap;
use std::time::Duration;

/// Attempts if the probe cannot be run at all (no answer from the runtime).
const MAX_ATTEMPTS: u32 = 3;
/// How much of a command's output a message may contain.
const MAX_OUTPUT_BYTES: usize = 10 * 1024;
/// Beyond the probe's own timeout: for a runtime or a prober that does not keep it.
const TIMEOUT_SLACK: Duration = Duration::from_secs(10);

/// The inputs of an attempt.
#[derive(Debug, Clone)]
pub(super) struct Probing {
    container_name: String,
    container_id: String,
    resolved: Result<ResolvedHandler, String>,
    limit: Duration,
}

impl Probing {
    /// `limit` is the timeout of an attempt.
    pub(super) fn new(
        container: &Container,
        probe: &Probe,
        pod_ip: Option<&str>,
        container_id: &str,
        limit: Duration,
    ) -> Self {
        let resolved = match probe.action() {
            Some(action) => resolve_handler(action, container, pod_ip, Requester::Probe),
            None => Err("missing probe handler".to_owned()),
        };
        let resolved = resolved.map(|resolved| match resolved {
            ResolvedHandler::Exec(command) => ResolvedHandler::Exec(expanded(container, &command)),
            other => other,
        });
        Self {
            container_name: container.name.to_string(),
            container_id: container_id.to_owned(),
            resolved,
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
        match &self.resolved {
            Err(why) => ProbeResult::Unknown(why.clone()),
            Ok(ResolvedHandler::Sleep(_)) => {
                ProbeResult::Unknown("a probe does not sleep".to_owned())
            }
            Ok(ResolvedHandler::Network(what)) => self.over_network(what, prober).await,
            Ok(ResolvedHandler::Exec(command)) => {
                let mut last = ProbeResult::Unknown(String::new());
                for _ in 0..MAX_ATTEMPTS {
                    last = self.by_exec(command, runtime).await;
                    if !matches!(last, ProbeResult::Unknown(_)) {
                        break;
                    }
                }
                last
            }
        }
    }

    async fn over_network(
        &self,
        what: &NetworkProbeRequest,
        prober: &dyn NetworkProber,
    ) -> ProbeResult {
        let call = prober.attempt(what, self.limit);
        match tokio::time::timeout(self.limit + TIMEOUT_SLACK, call).await {
            Ok(ProbeAttemptResult::Success(_)) => ProbeResult::Success,
            Ok(ProbeAttemptResult::Warning(text)) => ProbeResult::Warning(text),
            Ok(ProbeAttemptResult::Failure(text) | ProbeAttemptResult::PlainHttp(text)) => {
                ProbeResult::Failure(text)
            }
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
        match tokio::time::timeout(self.limit + TIMEOUT_SLACK, call).await {
            Err(_) | Ok(Err(ContainerRuntimeError::DeadlineExceeded { .. })) => timed_out(),
            // What containerd answers where the command took too long.
            Ok(Err(ContainerRuntimeError::Refused { code, .. })) if code == "DeadlineExceeded" => {
                timed_out()
            }
            Ok(Err(error)) => ProbeResult::Unknown(error.to_string()),
            Ok(Ok(output)) if output.exit_code == 0 => ProbeResult::Success,
            Ok(Ok(output)) => {
                let mut probe_output = output.stdout;
                probe_output.extend(output.stderr);
                probe_output.truncate(MAX_OUTPUT_BYTES);
                ProbeResult::Failure(String::from_utf8_lossy(&probe_output).into_owned())
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
