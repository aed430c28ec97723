//! Runs one plugin: a program with a timeout, limits on its output, and our environment beside the
//! CNI variables, since plugins are configured through it (proxies, paths of credentials).
//!
//! Rule: one plugin at a time per pod, also across servers. A plugin outlives a killed server; its
//! input is a file that stays locked as long as the plugin has it, so that the next server tears
//! down only after the plugin has ended.
//!
//! upstream: containernetworking/cni pkg/invoke/args.go

use std::fs::File;
use std::io::{Seek as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Command;

use super::super::{INSIDE, PodNetwork};
use super::{CniSettings, arguments};
use crate::durable;
use crate::failure::{CallContext as _, CriError, Result, blocking};

/// The limit of a plugin's output.
const MAX_ANSWER_SIZE: u64 = 1 << 20;
/// The interval at which an earlier server's plugin is checked.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

pub(super) struct PluginCall<'a> {
    pub(super) command: &'static str,
    pub(super) kind: &'a str,
    /// The pod and the path of its namespace.
    pub(super) pod: Option<(&'a PodNetwork, &'a str)>,
    pub(super) input: Vec<u8>,
}

pub(super) async fn run(settings: &CniSettings, call: &PluginCall<'_>) -> Result<Vec<u8>> {
    let program = find(settings, call.kind)?;
    let what = format!("plugin {} {}", call.kind, call.command);
    let mut command = Command::new(&program);
    command
        .env("CNI_COMMAND", call.command)
        .env("CNI_PATH", std::env::join_paths(&settings.plugins).unwrap_or_default())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    // Variables of our own environment must not leak into this call.
    for name in ["CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_ARGS"] {
        command.env_remove(name);
    }
    if let Some((pod, namespace)) = call.pod {
        command
            .env("CNI_CONTAINERID", &pod.sandbox)
            .env("CNI_NETNS", namespace)
            .env("CNI_IFNAME", INSIDE)
            .env("CNI_ARGS", arguments::text(pod))
            .stdin(lock_input(settings, call, &pod.sandbox).await.doing(&what)?);
    }
    let work = async {
        let mut child = command.spawn()?;
        let (mut input, output, errors) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let feed = async {
            if let Some(input) = &mut input {
                // A plugin that reads nothing closes its end; its exit status is checked anyway.
                let _ = input.write_all(&call.input).await;
            }
            drop(input.take());
        };
        let ((), output, errors) = tokio::join!(feed, limited(output), limited(errors));
        Ok::<_, std::io::Error>((child.wait().await?, output?, errors?))
    };
    let (status, output, errors) = match tokio::time::timeout(settings.deadline, work).await {
        Ok(outcome) => outcome.doing(format!("{what}: running {}", program.display()))?,
        Err(_) => {
            let text = format!("{what}: not done after {:?}; it was killed", settings.deadline);
            return Err(CriError::new(tonic::Code::DeadlineExceeded, text));
        }
    };
    if status.success() {
        return Ok(output);
    }
    Err(CriError::plain(format!("{what} failed: {}", plugin_error(&output, &errors, status))))
}

/// The input as a locked file. Waits for a plugin that still holds the previous one.
async fn lock_input(settings: &CniSettings, call: &PluginCall<'_>, sandbox: &str) -> Result<File> {
    let (dir, path) = (settings.calls.clone(), settings.calls.join(sandbox));
    let mut file = blocking(move || {
        durable::make_dir(&dir)?;
        File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .doing(format!("opening {}", path.display()))
    })
    .await?;
    let waiting = async {
        while flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    };
    if tokio::time::timeout(settings.deadline, waiting).await.is_err() {
        let text = format!("a plugin of a former server works on {sandbox} still");
        return Err(CriError::new(tonic::Code::DeadlineExceeded, text));
    }
    let input = call.input.clone();
    blocking(move || {
        write_again(&mut file, &input).doing("writing a plugin's input")?;
        Ok(file)
    })
    .await
}

fn write_again(file: &mut File, bytes: &[u8]) -> std::io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(bytes)?;
    file.rewind()
}

async fn limited(stream: Option<impl tokio::io::AsyncRead + Unpin>) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(mut stream) = stream {
        (&mut stream).take(MAX_ANSWER_SIZE).read_to_end(&mut bytes).await?;
        // The rest is read and dropped, so that the plugin does not block on its own output.
        tokio::io::copy(&mut stream, &mut tokio::io::sink()).await?;
    }
    Ok(bytes)
}

/// Plugins report errors as JSON on standard output.
fn plugin_error(output: &[u8], errors: &[u8], status: std::process::ExitStatus) -> String {
    let error: Value = serde_json::from_slice(output).unwrap_or_default();
    let text = |name: &str| error.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (message, details) = (text("msg"), text("details"));
    match (message.is_empty(), details.is_empty()) {
        (false, true) => message,
        (false, false) => format!("{message}; {details}"),
        (true, _) => {
            let stderr_text = String::from_utf8_lossy(errors);
            let stderr_text: String = stderr_text.trim().chars().take(1000).collect();
            if stderr_text.is_empty() {
                status.to_string()
            } else {
                format!("{status}: {stderr_text}")
            }
        }
    }
}

pub(super) fn find(settings: &CniSettings, kind: &str) -> Result<PathBuf> {
    settings.plugins.iter().map(|dir| dir.join(kind)).find(|path| path.is_file()).ok_or_else(|| {
        let dirs: Vec<_> = settings.plugins.iter().map(|dir| dir.display().to_string()).collect();
        CriError::plain(format!("CNI plugin {kind:?} is in none of {}", dirs.join(", ")))
    })
}
