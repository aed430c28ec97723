//! `keelson run` at a terminal: the pods live as long as it does.
//!
//! Rule: the first Ctrl-C ends the pods within their grace periods, the second kills what still
//! runs, and both leave nothing behind; only the third exits at once. A terminal that is closed
//! ends the pods too, unless SIGHUP is ignored (`nohup`). A root that a background agent uses, or
//! has left pods in, is not touched; pods that an earlier run in the foreground left are ended.

use super::background_store::BackgroundPodStore;
use super::compose::{self, KillNow, RunDirs, RunMode};
use super::desired_pods::{DesiredPods, DesiredPodsSender, WantedPod};
use super::leftover_pods;
use super::manifest;
use super::show::OutputMode;
use crate::logging::{self, LogFormat, LogSettings, Verbosity};
use crate::terminal;
use anyhow::{Context, Result, anyhow, bail};
use host_process::root_lock::{RootLock, RootLockError};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

/// Within this time the agent has recorded that pods are killed, so that the next agent, which ends
/// what is left, kills them too.
const SAVE_TIMEOUT: Duration = Duration::from_secs(1);

pub(super) fn run(
    dirs: &RunDirs,
    pods: Vec<WantedPod>,
    images: &[String],
    show: OutputMode,
    is_verbose: bool,
) -> Result<ExitCode> {
    if is_verbose {
        start_log();
    }
    let lock = lock(dirs)?;
    let tasks = compose::tasks()?;
    let leftover_pods = tasks.block_on(BackgroundPodStore::below(&dirs.agent_root()).load())?;
    if !leftover_pods.is_empty() {
        let names: Vec<String> =
            leftover_pods.iter().map(|pod| format!("{}/{}", pod.namespace, pod.name)).collect();
        bail!(
            "a background agent of {} ended without its pods ({}); `keelson run --detach` takes \
             them up again, another --root and --state leave them alone",
            dirs.root.display(),
            names.join(", ")
        );
    }
    let wanted = pods.iter().map(|pod| (pod.namespace.as_str(), pod.name.as_str()));
    for pod in tasks.block_on(leftover_pods::below(&dirs.agent_root(), wanted, &[]))? {
        terminal::print_error(&leftover_pods::notice(&pod));
    }
    compose::import(&dirs.root, images)?;
    let run_mode = RunMode { show, background_store: None, agent_log: String::new(), ready: None };
    let root = &dirs.root;
    let wait_for_signals =
        async |desired_pods, kill_now| wait_for_signals(root, desired_pods, kill_now).await;
    let code = tasks.block_on(compose::monitor_pods(
        dirs,
        DesiredPods::of(pods),
        run_mode,
        wait_for_signals,
    ));
    tasks.shutdown_timeout(Duration::from_secs(1));
    drop(lock);
    code.map(ExitCode::from)
}

pub(super) fn start_log() {
    logging::start(&LogSettings {
        format: LogFormat::Text,
        verbosity: Verbosity { level: 0, files: Vec::new() },
        split_stream: false,
    });
}

/// One agent per root; if it is in use, the error names the next step.
pub(super) fn lock(dirs: &RunDirs) -> Result<RootLock> {
    let agent_root = dirs.agent_root();
    std::fs::create_dir_all(&agent_root).with_context(|| agent_root.display().to_string())?;
    RootLock::acquire(&agent_root, std::process::id()).map_err(|error| match error {
        RootLockError::Held { holder, .. } => anyhow!(
            "an agent ({holder}) runs the pods of {root} already: `keelson ps --socket {socket}` \
             shows them, `keelson run --detach` hands it more where it is one of the background; \
             another --root and --state run beside it",
            root = dirs.root.display(),
            socket = dirs.socket().display(),
        ),
        error => error.into(),
    })
}

/// The first signal ends the pods, the second kills what still runs, the third ends this program
/// alone. A terminal that is closed may be reported twice, by the kernel and by a shell, so SIGHUP
/// counts only once.
async fn wait_for_signals(
    root: &Path,
    desired_pods: DesiredPodsSender,
    kill_now: KillNow,
) -> Result<u8> {
    let mut interrupt = signal(SignalKind::interrupt()).context("listen for SIGINT")?;
    let mut terminate = signal(SignalKind::terminate()).context("listen for SIGTERM")?;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mut hang_up = if handles_sighup(&status) {
        Some(signal(SignalKind::hangup()).context("listen for SIGHUP")?)
    } else {
        None
    };
    let mut asked = async || {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    };
    let hung_up = async {
        match &mut hang_up {
            Some(hang_up) => {
                hang_up.recv().await;
            }
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = asked() => {}
        () = hung_up => {}
    }
    let wanted = desired_pods.borrow().pods.clone();
    terminal::print_error(&stopping(&wanted));
    desired_pods.send_modify(|desired| desired.pods.clear());
    asked().await;
    kill_now.send_replace(true);
    terminal::print_error("Killing what still runs. Ctrl-C again leaves without waiting for it");
    tokio::time::sleep(SAVE_TIMEOUT).await;
    asked().await;
    bail!(
        "left before every pod had ended; the next `keelson run` with --root {} ends what is left",
        root.display()
    )
}

/// The message after the first signal.
fn stopping(pods: &[WantedPod]) -> String {
    let longest = pods.iter().map(|pod| manifest::grace_seconds(&pod.text)).max().unwrap_or(0);
    match pods.len() {
        0 => "Ending. Ctrl-C again kills what still runs".to_owned(),
        1 => format!("Stopping 1 pod (up to {longest} s). Ctrl-C again kills it now"),
        many => format!("Stopping {many} pods (up to {longest} s). Ctrl-C again kills them now"),
    }
}

/// Whether SIGHUP is not ignored, from this process's status: a handler would undo that it is
/// ignored.
fn handles_sighup(status: &str) -> bool {
    const HANG_UP: u64 = 1;
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.unwrap_or_default() & HANG_UP == 0
}

#[cfg(test)]
mod tests {
    use super::{WantedPod, handles_sighup, stopping};

    #[test]
    fn the_first_signals_message_names_the_grace_period_and_the_second_signal() {
        let pod = |name: &str, grace: &str| WantedPod {
            namespace: "default".to_owned(),
            name: name.to_owned(),
            manifest: name.to_owned(),
            text: format!("kind: Pod\nspec: {{{grace}}}\n").into(),
            contents: Vec::new(),
            instead_of: None,
        };
        let (usual, long) = (pod("a", ""), pod("b", "terminationGracePeriodSeconds: 90"));
        for (pods, expected) in [
            (vec![], "Ending. Ctrl-C again kills what still runs"),
            (vec![usual.clone()], "Stopping 1 pod (up to 30 s). Ctrl-C again kills it now"),
            (vec![usual, long], "Stopping 2 pods (up to 90 s). Ctrl-C again kills them now"),
        ] {
            assert_eq!(stopping(&pods), expected);
        }
    }

    #[test]
    fn an_ignored_sighup_is_detected() {
        assert!(!handles_sighup("Name:\tkeelson\nSigIgn:\t0000000000001001\nSigCgt:\t0\n"));
        assert!(handles_sighup("SigBlk:\t0000000000000001\nSigIgn:\t0000000000001000\n"));
        assert!(handles_sighup(""));
    }
}
