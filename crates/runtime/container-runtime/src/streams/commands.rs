//! Exec and attach on a session: data in both directions, terminal sizes, and the result.
//!
//! Rule: data is passed on at once and buffers are limited: each direction waits for its slower
//! side. When the client disconnects, an exec is killed, even if it does not read its input; an
//! attached container continues.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use bytes::Bytes;
use pod_supervisor::{ExecRequest, Stdio};
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::unix::pipe;
use tokio::sync::{mpsc, watch};

use super::Wanted;
use super::session::{Channel, Ending, Gone, Has, Input, Output, PART, SILENCE, Session};
use crate::failure::{Doing as _, Result};
use crate::identity;
use crate::runtime::execs::{ExecGuard, Running, UNHEARD, pipe_pair};
use crate::runtime::{Resizer, Runtime, Terminal};

#[cfg(test)]
mod tests;

pub(super) fn streams_of(wanted: &Wanted) -> Has {
    match wanted {
        Wanted::Exec(request) => Has {
            stdin: request.stdin,
            stdout: request.stdout,
            stderr: request.stderr,
            tty: request.tty,
        },
        Wanted::Attach(request) => Has {
            stdin: request.stdin,
            stdout: request.stdout,
            stderr: request.stderr,
            tty: request.tty,
        },
        Wanted::PortForward(_) => Has { stdin: false, stdout: false, stderr: false, tty: false },
    }
}

/// Runs the command and sends its result to the client.
pub(super) async fn run(runtime: &Runtime, wanted: Wanted, session: Session) {
    let Session { input, output, gone, tasks } = session;
    let client = Client { input, output: output.clone(), gone };
    let has = streams_of(&wanted);
    let outcome = match wanted {
        Wanted::Exec(request) => {
            exec(runtime, &request.container_id, request.cmd, has, client).await
        }
        Wanted::Attach(request) => attach(runtime, &request.container_id, has, client).await,
        Wanted::PortForward(_) => return,
    };
    let ending = match outcome {
        Ok(Some(ending)) => ending,
        // The client is gone.
        Ok(None) => return,
        Err(failure) => Ending::Failed(failure.text),
    };
    let _ = output.send(Output::Status(ending)).await;
    drop(output);
    tasks.finish().await;
}

/// The client's side of a command.
struct Client {
    input: mpsc::Receiver<Input>,
    output: mpsc::Sender<Output>,
    gone: Gone,
}

async fn exec(
    runtime: &Runtime,
    container: &str,
    command: Vec<String>,
    has: Has,
    client: Client,
) -> Result<Option<Ending>> {
    let running = runtime.running(container).await?;
    let process = runtime.exec_process(&running.container.id, command, has.tty).await?;
    let exec = identity::fresh()?;
    let (stdio, ends) = if has.tty { Default::default() } else { pipes(has)? };
    let exited = running.sandbox.execs.expect(&exec);
    let guard = ExecGuard::new(runtime, &running, &exec);
    let request = ExecRequest {
        container: running.container.id.clone(),
        exec: exec.clone(),
        process,
        timeout: None,
        stdio,
        user: None,
    };
    let started = match running.supervisor.client.exec(request).await {
        Ok(started) => started,
        Err(error) => {
            guard.not_started(&error);
            return Err(error.into());
        }
    };
    running.sandbox.execs.started(&exec);
    let (over_sender, over) = watch::channel(false);
    let copying = async {
        match started.terminal {
            Some(master) => copy_terminal(master, client, has, over).await,
            None => copy_pipes(ends, client, over).await,
        }
    };
    let ending = async {
        let exit = exited.await;
        over_sender.send_replace(true);
        exit
    };
    tokio::pin!(copying, ending);
    let exit = tokio::select! {
        exit = &mut ending => {
            // Remaining output is sent before the result.
            let _ = copying.await;
            exit
        }
        left = &mut copying => match left {
            // The guard kills the command.
            Left::Client => return Ok(None),
            Left::Command => ending.await,
        },
    };
    // If the exit is lost, the guard kills what may be left of the command.
    let Ok(exit) = exit else { return Ok(Some(Ending::Failed(UNHEARD.to_owned()))) };
    guard.disarm();
    Ok(Some(match exit.code {
        0 => Ending::Success,
        code => Ending::ExitCode(code),
    }))
}

async fn attach(
    runtime: &Runtime,
    container: &str,
    has: Has,
    client: Client,
) -> Result<Option<Ending>> {
    let running: Running = runtime.running(container).await?;
    let (stdio, ends) = pipes(has)?;
    running.supervisor.client.attach(&running.container.id, stdio).await?;
    let (resize_sender, mut resizes) = mpsc::channel(4);
    let (supervisor, id) = (Arc::clone(&running.supervisor), running.container.id.clone());
    tokio::spawn(async move {
        while let Some(size) = resizes.recv().await {
            let _ = supervisor.client.resize(&id, size).await;
        }
    });
    let Client { mut input, output, gone } = client;
    // Sizes are applied to the container's terminal; everything else is copied.
    let (forward, forwarded) = mpsc::channel(super::session::QUEUE);
    let sorting = async move {
        while let Some(event) = input.recv().await {
            let sent = match event {
                Input::Resize(size) => resize_sender.send(size).await.is_ok(),
                other => forward.send(other).await.is_ok(),
            };
            if !sent {
                return;
            }
        }
    };
    let mut ended = running.container.ended();
    let (over_sender, over) = watch::channel(false);
    let watching = async move {
        let _ = ended.wait_for(|over| *over).await;
        over_sender.send_replace(true);
        std::future::pending::<()>().await;
    };
    let sorted = Client { input: forwarded, output, gone };
    let left = tokio::select! {
        left = copy_pipes(ends, sorted, over) => left,
        () = async { tokio::join!(sorting, watching); } => Left::Command,
    };
    Ok((left == Left::Command).then_some(Ending::Success))
}

/// Our ends of a command's pipes.
#[derive(Default)]
struct Ends {
    stdin: Option<pipe::Sender>,
    stdout: Option<pipe::Receiver>,
    stderr: Option<pipe::Receiver>,
}

fn pipes(has: Has) -> Result<(Stdio, Ends)> {
    let (mut stdio, mut ends) = (Stdio::default(), Ends::default());
    if has.stdin {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).doing("making a pipe")?;
        stdio.stdin = Some(reader);
        ends.stdin = Some(pipe::Sender::from_owned_fd(writer).doing("taking up a pipe")?);
    }
    if has.stdout {
        let (reader, writer) = pipe_pair()?;
        ends.stdout = Some(reader);
        stdio.stdout = Some(writer);
    }
    if has.stderr {
        let (reader, writer) = pipe_pair()?;
        ends.stderr = Some(reader);
        stdio.stderr = Some(writer);
    }
    Ok((stdio, ends))
}

/// The side that ended the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Left {
    Client,
    Command,
}

async fn copy_pipes(ends: Ends, client: Client, over: watch::Receiver<bool>) -> Left {
    let Ends { stdin, stdout, stderr } = ends;
    let Client { input, output, gone } = client;
    let draining = async {
        let out = drain(stdout, Channel::Stdout, &output, over.clone());
        let err = drain(stderr, Channel::Stderr, &output, over.clone());
        let drained = tokio::try_join!(out, err).map(drop);
        finished(drained, over.clone()).await
    };
    tokio::select! {
        left = draining => left,
        left = feed(stdin, input, gone, None) => left,
    }
}

async fn copy_terminal(
    master: OwnedFd,
    client: Client,
    has: Has,
    over: watch::Receiver<bool>,
) -> Left {
    let Ok(terminal) = Terminal::new(master) else { return Left::Command };
    let (reader, writer, resizer) = terminal.split();
    let Client { input, output, gone } = client;
    let draining = async {
        let drained = drain(Some(reader), Channel::Stdout, &output, over.clone()).await;
        finished(drained, over.clone()).await
    };
    let writer = has.stdin.then_some(writer);
    tokio::select! {
        left = draining => left,
        left = feed(writer, input, gone, Some(resizer)) => left,
    }
}

/// The client no longer accepts output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Untaken;

/// A command may close its output long before its exit; until then its client is watched.
async fn finished(drained: Result<(), Untaken>, mut over: watch::Receiver<bool>) -> Left {
    if drained == Err(Untaken) {
        return Left::Client;
    }
    let _ = over.wait_for(|over| *over).await;
    Left::Command
}

/// Passes on the client's input until the client has left. Input that it sent before is passed on
/// as long as the command reads it.
async fn feed(
    mut sink: Option<impl AsyncWrite + Unpin>,
    mut input: mpsc::Receiver<Input>,
    mut gone: Gone,
    terminal: Option<Resizer>,
) -> Left {
    while let Some(event) = input.recv().await {
        // With a terminal, the end of input is sent as a control character.
        let bytes: &[u8] = match &event {
            Input::Stdin(held) => &held.bytes,
            Input::StdinEnd if terminal.is_some() => &[4],
            Input::StdinEnd => {
                sink = None;
                continue;
            }
            Input::Resize(size) => {
                if let Some(terminal) = &terminal {
                    terminal.resize(*size);
                }
                continue;
            }
        };
        let Some(open) = &mut sink else { continue };
        let written = tokio::select! {
            biased;
            written = open.write_all(bytes) => written,
            () = gone.left_behind() => return Left::Client,
        };
        if written.is_err() {
            // The command reads no more; the rest is dropped.
            sink = None;
        }
    }
    Left::Client
}

/// Sends output to its end; once the command has exited, silence is an end too.
async fn drain(
    stream: Option<impl AsyncRead + Unpin>,
    channel: Channel,
    output: &mpsc::Sender<Output>,
    mut over: watch::Receiver<bool>,
) -> Result<(), Untaken> {
    let Some(mut stream) = stream else { return Ok(()) };
    let mut part = vec![0; PART];
    loop {
        let read = if *over.borrow_and_update() {
            match tokio::time::timeout(SILENCE, stream.read(&mut part)).await {
                Ok(read) => read,
                Err(_) => return Ok(()),
            }
        } else {
            tokio::select! {
                read = stream.read(&mut part) => read,
                _ = over.changed() => continue,
            }
        };
        match read {
            Ok(0) | Err(_) => return Ok(()),
            Ok(read) => {
                let bytes = Bytes::copy_from_slice(&part[..read]);
                let sent = output.send(Output::Data(channel, bytes)).await;
                sent.map_err(|_| Untaken)?;
            }
        }
    }
}
