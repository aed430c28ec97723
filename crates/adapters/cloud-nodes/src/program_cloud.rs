//! A cloud provider that is a program: query on standard input, answer on standard output.
//!
//! Rule: one query per run, a deadline for each, an output limit, few at once; a program that exits
//! with anything but 0, is late, or prints anything else than the format is an error. Its whole
//! process group is killed at the deadline. The first line of its standard error is shown.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use document::MAX_BYTES;
use document::diagnostic::Origin;
use ports::PortFuture;
use ports::cloud_provider::{CloudError, CloudInstance, CloudNodeName, CloudProvider};
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::Semaphore;

use crate::machine_list::{read_answer, read_list};

const DEADLINE: Duration = Duration::from_secs(10);
/// Concurrent runs.
const MAX_CONCURRENT_RUNS: usize = 4;
/// How much of its standard error is kept.
const MAX_STDERR_BYTES: u64 = 4096;

/// Machines that a program reports.
#[derive(Debug)]
pub struct ProgramCloud {
    program: PathBuf,
    name: String,
    deadline: Duration,
    permits: Semaphore,
}

impl ProgramCloud {
    /// Runs nothing yet.
    pub fn new(program: &Path) -> Self {
        Self::with_deadline(program, DEADLINE)
    }

    /// With another deadline for each run.
    pub fn with_deadline(program: &Path, deadline: Duration) -> Self {
        let name = format!("program {}", program.display());
        Self {
            program: program.to_owned(),
            name,
            deadline,
            permits: Semaphore::new(MAX_CONCURRENT_RUNS),
        }
    }

    async fn run_verb(
        &self,
        verb: &str,
        request: &serde_json::Value,
    ) -> Result<Vec<u8>, CloudError> {
        let failed = |cause: String| CloudError { cloud: self.name.clone(), cause };
        // The wait for a slot is within the deadline too: callers know only one.
        let run = async {
            let _permit = self.permits.acquire().await.map_err(|error| error.to_string())?;
            self.run(verb, request.to_string().into_bytes()).await
        };
        match tokio::time::timeout(self.deadline, run).await {
            Ok(outcome) => outcome.map_err(failed),
            Err(_) => Err(failed(format!("no answer to {verb} within {:?}", self.deadline))),
        }
    }

    async fn run(&self, verb: &str, request: Vec<u8>) -> Result<Vec<u8>, String> {
        let mut child = Command::new(&self.program)
            .arg(verb)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .process_group(0)
            .spawn()
            .map_err(|error| format!("cannot be run: {error}"))?;
        let mut group = CloudProcessGroup::of(&child);
        let limit = u64::try_from(MAX_BYTES).unwrap_or(u64::MAX);
        let (input, output, errors) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take());
        // A program that answers without reading all of its input is a good program still.
        let (_, answer, stderr) = tokio::join!(
            write_stdin(input, &request),
            take(output, limit.saturating_add(1)),
            take(errors, MAX_STDERR_BYTES),
        );
        let answer = answer.map_err(|error| format!("cannot be read from: {error}"))?;
        if answer.len() > MAX_BYTES {
            return Err(format!("the answer to {verb} has more than {MAX_BYTES} bytes"));
        }
        let status =
            child.wait().await.map_err(|error| format!("cannot be waited for: {error}"))?;
        group.0 = None;
        if !status.success() {
            let stderr = stderr.unwrap_or_default();
            let stderr = String::from_utf8_lossy(&stderr);
            let first = stderr.lines().next().unwrap_or_default().trim();
            return Err(format!("{verb}: {status}: {first}"));
        }
        Ok(answer)
    }

    fn origin(&self) -> Origin {
        Origin::File { path: self.program.display().to_string().into(), line: 0, column: 0 }
    }
}

/// The program's process group, killed when this is dropped: the program is its first member and
/// not reaped yet, so that the id cannot have been reused.
struct CloudProcessGroup(Option<Pid>);

impl CloudProcessGroup {
    fn of(child: &Child) -> Self {
        Self(child.id().and_then(|id| Pid::from_raw(i32::try_from(id).unwrap_or(0))))
    }
}

impl Drop for CloudProcessGroup {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            // It may have exited already.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

/// Writes the query and closes the pipe. The program may close its end first.
async fn write_stdin(input: Option<ChildStdin>, request: &[u8]) -> std::io::Result<()> {
    let Some(mut input) = input else { return Ok(()) };
    input.write_all(request).await?;
    input.shutdown().await
}

/// Reads up to `limit` and discards the rest, so that the program can end.
async fn take(output: Option<impl AsyncRead + Unpin>, limit: u64) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(output) = output {
        let mut rest = output.take(limit);
        rest.read_to_end(&mut bytes).await?;
        tokio::io::copy(&mut rest.into_inner(), &mut tokio::io::sink()).await?;
    }
    Ok(bytes)
}

impl CloudProvider for ProgramCloud {
    fn name(&self) -> &str {
        &self.name
    }

    fn instance<'a>(
        &'a self,
        node: &'a CloudNodeName,
    ) -> PortFuture<'a, Result<Option<CloudInstance>, CloudError>> {
        Box::pin(async move {
            let request = json!({
                "apiVersion": "keelson/v1",
                "kind": "MachineQuestion",
                "name": node.name,
                "providerID": node.provider_id,
            });
            let answer = self.run_verb("machine", &request).await?;
            let failed = |cause| CloudError { cloud: self.name.clone(), cause };
            let machine = read_answer(&answer, &self.origin()).map_err(failed)?;
            match machine {
                Some(machine) if machine.node != node.name => Err(failed(format!(
                    "asked about {:?}, it answered about {:?}",
                    node.name, machine.node
                ))),
                other => Ok(other),
            }
        })
    }

    fn instances(&self) -> PortFuture<'_, Result<Vec<CloudInstance>, CloudError>> {
        Box::pin(async move {
            let request = json!({"apiVersion": "keelson/v1", "kind": "MachinesQuestion"});
            let answer = self.run_verb("machines", &request).await?;
            let list = read_list(&answer, &self.origin());
            list.map(|list| list.machines)
                .map_err(|cause| CloudError { cloud: self.name.clone(), cause })
        })
    }
}

#[cfg(test)]
mod tests;
