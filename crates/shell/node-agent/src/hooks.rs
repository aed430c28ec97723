//! Container lifecycle hooks: exec, httpGet, sleep.
//!
//! Rules: a hook has only its caller's timeout. Its output goes to the log and into no event, as it
//! may be secret. An https hook that is answered in plain HTTP is repeated over HTTP, with a
//! warning.
//!
//! upstream: pkg/kubelet/lifecycle/handlers.go

use crate::reach::{Asker, Reach, reach};
use pod_lifecycle::{EventKind, PodEvent};
use pod_model::pod::Container;
use pod_model::pod::handler::LifecycleHandler;
use ports::PodRuntime;
use ports::probing::{NetworkProber, NetworkTry, TryAnswer};
use std::time::Duration;

/// The kubelet sets no timeout for an HTTP hook; here it has one, so that a silent peer does not
/// hold a pod.
const LONGEST_REQUEST: Duration = Duration::from_secs(30 * 60);

/// The prober's message for an HTTP status that fails a probe.
const UNWELCOME_STATUS: &str = "failed with statuscode";

/// Where a hook runs.
pub(crate) struct HookPlace<'a> {
    pub(crate) runtime: &'a dyn PodRuntime,
    pub(crate) prober: &'a dyn NetworkProber,
    pub(crate) container: &'a Container,
    pub(crate) container_id: &'a str,
    pub(crate) pod_ip: Option<&'a str>,
}

/// How a hook ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HookEnd {
    /// The text is for the log.
    pub(crate) result: Result<(), String>,
    pub(crate) event: Option<PodEvent>,
}

pub(crate) async fn run(hook: &LifecycleHandler, place: &HookPlace<'_>) -> HookEnd {
    let way = match hook.action() {
        Some(action) => reach(action, place.container, place.pod_ip, Asker::Hook),
        None => Err("invalid handler: it has no action".to_owned()),
    };
    match way {
        Err(why) => HookEnd { result: Err(why), event: None },
        Ok(Reach::Sleep(seconds)) => {
            tokio::time::sleep(Duration::from_secs(u64::try_from(seconds).unwrap_or(0))).await;
            HookEnd { result: Ok(()), event: None }
        }
        Ok(Reach::Exec(command)) => HookEnd { result: exec(&command, place).await, event: None },
        Ok(Reach::Network(what)) => request(what, place).await,
    }
}

async fn exec(command: &[String], place: &HookPlace<'_>) -> Result<(), String> {
    // No timeout here: the caller ends a preStop hook with its grace period, the adapter a
    // postStart hook after hours; the kubelet waits for ever.
    let call = place.runtime.exec_sync(place.container_id, command, Duration::ZERO);
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

async fn request(what: NetworkTry, place: &HookPlace<'_>) -> HookEnd {
    let answer = place.prober.attempt(&what, LONGEST_REQUEST).await;
    let (TryAnswer::PlainHttp(why), NetworkTry::Http { host, port, path, headers, user_agent, .. }) =
        (&answer, what)
    else {
        return HookEnd { result: judged(answer), event: None };
    };
    let peer =
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
    let headers: Vec<(String, String)> = headers
        .into_iter()
        .filter(|(name, _)| !name.eq_ignore_ascii_case("authorization"))
        .collect();
    let plain = NetworkTry::Http { scheme: "http", host, port, path, headers, user_agent };
    match judged(place.prober.attempt(&plain, LONGEST_REQUEST).await) {
        Ok(()) => HookEnd {
            result: Ok(()),
            event: Some(PodEvent {
                kind: EventKind::Warning,
                reason: "LifecycleHTTPFallback".to_owned(),
                message: format!(
                    "request to HTTPS lifecycle hook {peer} got HTTP response, retry with HTTP succeeded"
                ),
                field_path: None,
            }),
        },
        Err(_) => HookEnd { result: Err(why.clone()), event: None },
    }
}

/// Any response of the peer is good enough for a hook, whatever its status. The prober judges it as
/// for a probe; its message shows that there was a response.
fn judged(answer: TryAnswer) -> Result<(), String> {
    match answer {
        TryAnswer::Success(_) | TryAnswer::Warning(_) => Ok(()),
        TryAnswer::Failure(why) if why.contains(UNWELCOME_STATUS) => Ok(()),
        TryAnswer::Failure(why) | TryAnswer::PlainHttp(why) => Err(why),
    }
}
