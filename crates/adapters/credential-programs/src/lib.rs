//! Runs image credential provider plugins: a request on standard input, a response on standard
//! output.
//!
//! Rules: one run per request, a deadline for each, an output limit; a program that exits with
//! anything but 0, is late or writes too much has no response, and its whole process group is
//! killed at the deadline. Its output is never shown: standard error may hold the credentials too,
//! so an error gives only its length, and the command to run it by hand. Decides nothing about
//! images and caches nothing.
//!
//! upstream: pkg/credentialprovider/plugin/plugin.go (which logs the program's standard error)

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use ports::{CredentialProgramError, CredentialPrograms, PortFuture};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStdin, Command};

#[cfg(test)]
mod tests;

/// Upstream's timeout.
const DEADLINE: Duration = Duration::from_secs(60);
/// Credentials are short; a whole MiB of them is a mistake.
const MAX_OUTPUT_BYTES: usize = 1 << 20;

/// How one program is run. Its debug output shows no argument and no value: both may be secrets.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Invocation {
    pub arguments: Vec<String>,
    /// Added to the agent's own environment, and overriding it.
    pub environment: Vec<(String, String)>,
}

impl fmt::Debug for Invocation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.environment.iter().map(|(name, _)| name.as_str()).collect();
        out.debug_struct("Invocation")
            .field("arguments", &self.arguments.len())
            .field("environment", &names)
            .finish()
    }
}

/// The programs of one directory, by file name.
#[derive(Debug)]
pub struct ProgramDir {
    dir: PathBuf,
    programs: BTreeMap<String, Invocation>,
    deadline: Duration,
}

impl ProgramDir {
    /// Runs nothing yet.
    pub fn new(dir: &Path, programs: BTreeMap<String, Invocation>) -> Self {
        Self { dir: dir.to_owned(), programs, deadline: DEADLINE }
    }

    /// With another deadline for each run.
    #[must_use]
    pub fn with_deadline(self, deadline: Duration) -> Self {
        Self { deadline, ..self }
    }

    async fn ask(&self, provider: &str, request: Vec<u8>) -> Result<Vec<u8>, String> {
        let invocation = self.programs.get(provider).ok_or("no such program is configured")?;
        let program = self.dir.join(provider);
        match tokio::time::timeout(self.deadline, run(&program, invocation, &request)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(format!(
                "{}: no answer within {:?}; it was killed",
                program.display(),
                self.deadline
            )),
        }
    }
}

impl CredentialPrograms for ProgramDir {
    fn ask<'a>(
        &'a self,
        provider: &'a str,
        request: Vec<u8>,
    ) -> PortFuture<'a, Result<Vec<u8>, CredentialProgramError>> {
        Box::pin(async move {
            let failed = |cause| CredentialProgramError { provider: provider.to_owned(), cause };
            self.ask(provider, request).await.map_err(failed)
        })
    }
}

async fn run(program: &Path, invocation: &Invocation, request: &[u8]) -> Result<Vec<u8>, String> {
    let shown = program.display();
    let environment = invocation.environment.iter().map(|(name, value)| (name, value));
    let mut child = Command::new(program)
        .args(&invocation.arguments)
        .envs(environment)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .process_group(0)
        .spawn()
        .map_err(|error| format!("cannot run {shown}: {error}"))?;
    let mut group = ProviderProcessGroup::of(&child);
    let (input, output, errors) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    // A program that answers without reading all of its input is a good program still.
    let (_, answer, complaint) = tokio::join!(
        write_stdin(input, request),
        take(output, MAX_OUTPUT_BYTES + 1),
        take(errors, 0)
    );
    let failed = |error: std::io::Error| format!("cannot read from {shown}: {error}");
    let ((answer, _), (_, complained)) = (answer.map_err(failed)?, complaint.map_err(failed)?);
    let status = child.wait().await.map_err(failed)?;
    group.0 = None;
    if answer.len() > MAX_OUTPUT_BYTES {
        return Err(format!("{shown}: its answer has more than {MAX_OUTPUT_BYTES} bytes"));
    }
    if !status.success() {
        return Err(format!(
            "{shown}: {status}; the {complained} bytes that it wrote on standard error are not \
             shown, as there may be a login in them. Run it by hand: echo '{}' | {shown}",
            String::from_utf8_lossy(request).trim_end()
        ));
    }
    Ok(answer)
}

/// The program's process group, killed when this is dropped: the program is its first member and
/// not reaped yet, so that the id cannot have been reused.
struct ProviderProcessGroup(Option<Pid>);

impl ProviderProcessGroup {
    fn of(child: &Child) -> Self {
        Self(child.id().and_then(|id| Pid::from_raw(i32::try_from(id).unwrap_or(0))))
    }
}

impl Drop for ProviderProcessGroup {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            // It may have exited already.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

/// Writes the request and closes the pipe. The program may close its end first.
async fn write_stdin(input: Option<ChildStdin>, request: &[u8]) -> std::io::Result<()> {
    let Some(mut input) = input else { return Ok(()) };
    input.write_all(request).await?;
    input.shutdown().await
}

/// Reads up to a limit and discards the rest, so that the program can end; returns the total size.
async fn take(
    output: Option<impl AsyncRead + Unpin>,
    limit: usize,
) -> std::io::Result<(Vec<u8>, u64)> {
    let mut bytes = Vec::new();
    let mut discarded = 0;
    if let Some(output) = output {
        let mut rest = output.take(u64::try_from(limit).unwrap_or(u64::MAX));
        rest.read_to_end(&mut bytes).await?;
        discarded = tokio::io::copy(&mut rest.into_inner(), &mut tokio::io::sink()).await?;
    }
    let read = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    Ok((bytes, read.saturating_add(discarded)))
}
