//! Running one plugin: a program with a deadline, limits on what it may print, and nothing of our
//! environment but where programs are.

use std::path::PathBuf;
use std::process::Stdio;

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Command;

use super::super::{INSIDE, PodNetwork};
use super::{CniSettings, arguments};
use crate::failure::{Doing as _, Failure, Result};

/// What a plugin may print.
const LARGEST_ANSWER: u64 = 1 << 20;

pub(super) struct Call<'a> {
    pub(super) command: &'static str,
    pub(super) kind: &'a str,
    /// The pod and the path of its namespace.
    pub(super) pod: Option<(&'a PodNetwork, &'a str)>,
    pub(super) input: Vec<u8>,
}

pub(super) async fn run(settings: &CniSettings, call: &Call<'_>) -> Result<Vec<u8>> {
    let program = find(settings, call.kind)?;
    let what = format!("plugin {} {}", call.kind, call.command);
    let mut command = Command::new(&program);
    command
        .env_clear()
        .env("CNI_COMMAND", call.command)
        .env("CNI_PATH", std::env::join_paths(&settings.plugins).unwrap_or_default())
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    if let Some((pod, namespace)) = call.pod {
        command
            .env("CNI_CONTAINERID", &pod.sandbox)
            .env("CNI_NETNS", namespace)
            .env("CNI_IFNAME", INSIDE)
            .env("CNI_ARGS", arguments::text(pod));
    }
    let work = async {
        let mut child = command.spawn()?;
        let (mut input, output, errors) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let feed = async {
            if let Some(input) = &mut input {
                // A plugin that reads nothing closes its end; its exit status says the rest.
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
            return Err(Failure::new(tonic::Code::DeadlineExceeded, text));
        }
    };
    if status.success() {
        return Ok(output);
    }
    Err(Failure::plain(format!("{what} failed: {}", refusal(&output, &errors, status))))
}

async fn limited(stream: Option<impl tokio::io::AsyncRead + Unpin>) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(mut stream) = stream {
        (&mut stream).take(LARGEST_ANSWER).read_to_end(&mut bytes).await?;
        // The rest is read and dropped, so that the plugin is not stuck on its own words.
        tokio::io::copy(&mut stream, &mut tokio::io::sink()).await?;
    }
    Ok(bytes)
}

/// Plugins tell errors as JSON on standard output.
fn refusal(output: &[u8], errors: &[u8], status: std::process::ExitStatus) -> String {
    let error: Value = serde_json::from_slice(output).unwrap_or_default();
    let text = |name: &str| error.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (message, details) = (text("msg"), text("details"));
    match (message.is_empty(), details.is_empty()) {
        (false, true) => message,
        (false, false) => format!("{message}; {details}"),
        (true, _) => {
            let said = String::from_utf8_lossy(errors);
            let said: String = said.trim().chars().take(1000).collect();
            if said.is_empty() { status.to_string() } else { format!("{status}: {said}") }
        }
    }
}

fn find(settings: &CniSettings, kind: &str) -> Result<PathBuf> {
    settings.plugins.iter().map(|folder| folder.join(kind)).find(|path| path.is_file()).ok_or_else(
        || {
            let folders: Vec<_> =
                settings.plugins.iter().map(|folder| folder.display().to_string()).collect();
            Failure::plain(format!("CNI plugin {kind:?} is in none of {}", folders.join(", ")))
        },
    )
}
