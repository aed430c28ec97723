//! Container lifecycle hooks: exec, httpGet, sleep.
//!
//! Rules: a hook has only its caller's timeout. Its output goes to the log and into no event, as it
//! may be secret. An https hook that is answered in plain HTTP is repeated over HTTP, with a
//! warning.
//!
//! upstream: pkg/kubelet/lifecycle/handlers.go

use crate::resolve_handler::{Requester, ResolvedHandler, resolve_handler};
use pod_lifecycle::{EventType, PodEvent};
use pod_model::pod::Container;
use pod_model::pod::handler::LifecycleHandler;
use ports::PodRuntime;
use ports::probing::{NetworkProbeRequest, NetworkProber, ProbeAttemptResult};
use std::time::Duration;

/// The kubelet sets no timeout for an HTTP hook; here it has one, so that a silent peer does not
/// hold a pod.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30 * 60);

/// The prober's message for an HTTP status that fails a probe.
const BAD_STATUS_PREFIX: &str = "failed with statuscode";

/// Where a hook runs.
pub(crate) struct HookTarget<'a> {
    pub(crate) runtime: &'a dyn PodRuntime,
    pub(crate) prober: &'a dyn NetworkProber,
    pub(crate) container: &'a Container,
    pub(crate) container_id: &'a str,
    pub(crate) pod_ip: Option<&'a str>,
}

/// How a hook ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HookResult {
    /// The text is for the log.
    pub(crate) result: Result<(), String>,
    pub(crate) event: Option<PodEvent>,
}

pub(crate) async fn run(hook: &LifecycleHandler, hook_target: &HookTarget<'_>) -> HookResult {
    let resolved = match hook.action() {
        Some(action) => {
            resolve_handler(action, hook_target.container, hook_target.pod_ip, Requester::Hook)
        }
        None => Err("invalid handler: it has no action".to_owned()),
    };
    match resolved {
        Err(why) => HookResult { result: Err(why), event: None },
        Ok(ResolvedHandler::Sleep(seconds)) => {
            tokio::time::sleep(Duration::from_secs(u64::try_from(seconds).unwrap_or(0))).await;
            HookResult { result: Ok(()), event: None }
        }
        Ok(ResolvedHandler::Exec(command)) => {
            HookResult { result: exec(&command, hook_target).await, event: None }
        }
        Ok(ResolvedHandler::Network(what)) => request(what, hook_target).await,
    }
}

async fn exec(command: &[String], hook_target: &HookTarget<'_>) -> Result<(), String> {
    // No timeout here: the caller ends a preStop hook with its grace period, the adapter a
    // postStart hook after hours; the kubelet waits for ever.
    let call = hook_target.runtime.exec_sync(hook_target.container_id, command, Duration::ZERO);
    match call.await {
        Ok(output) if output.exit_code == 0 => Ok(()),
        Ok(output) => Err(format!(
            "command {:?} exited with {}: {}",
            command.join(" "),
            output.exit_code,
            String::from_utf8_lossy(&output.stderr).trim()
        )),
        Err(error) => Err(error.to_string()),
    }
}

async fn request(what: NetworkProbeRequest, hook_target: &HookTarget<'_>) -> HookResult {
    let answer = hook_target.prober.attempt(&what, REQUEST_TIMEOUT).await;
    let (
        ProbeAttemptResult::PlainHttp(why),
        NetworkProbeRequest::Http { host, port, path, headers, user_agent, .. },
    ) = (&answer, what)
    else {
        return HookResult { result: accept_any_status(answer), event: None };
    };
    let peer =
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
    let headers: Vec<(String, String)> = headers
        .into_iter()
        .filter(|(name, _)| !name.eq_ignore_ascii_case("authorization"))
        .collect();
    let plain = NetworkProbeRequest::Http { scheme: "http", host, port, path, headers, user_agent };
    match accept_any_status(hook_target.prober.attempt(&plain, REQUEST_TIMEOUT).await) {
        Ok(()) => HookResult {
            result: Ok(()),
            event: Some(PodEvent {
                kind: EventType::Warning,
                reason: "LifecycleHTTPFallback".to_owned(),
                message: format!(
                    "request to HTTPS lifecycle hook {peer} got HTTP response, retry with HTTP succeeded"
                ),
                field_path: None,
            }),
        },
        Err(_) => HookResult { result: Err(why.clone()), event: None },
    }
}

/// Any response of the peer is good enough for a hook, whatever its status. The prober judges it as
/// for a probe; its message shows that there was a response.
fn accept_any_status(answer: ProbeAttemptResult) -> Result<(), String> {
    match answer {
        ProbeAttemptResult::Success(_) | ProbeAttemptResult::Warning(_) => Ok(()),
        ProbeAttemptResult::Failure(why) if why.contains(BAD_STATUS_PREFIX) => Ok(()),
        ProbeAttemptResult::Failure(why) | ProbeAttemptResult::PlainHttp(why) => Err(why),
    }
}
