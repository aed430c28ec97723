//! Exec and attach on a session: data in both directions, terminal sizes, and the result.
//!
//! Rule: data is passed on at once and buffers are limited: each direction waits for its slower
//! side. When the client disconnects, an exec is killed, even if it does not read its input; an
//! attached container continues.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use bytes::Bytes;
use pod_supervisor::{ExecOptions, StdioDescriptors};
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::unix::pipe;
use tokio::sync::{mpsc, watch};

use super::StreamRequest;
use super::session::{
    ClientGone, ClientInput, CommandSession, CommandStatus, CommandStreams, IDLE_TIMEOUT, Output,
    OutputChannel, PART,
};
use crate::failure::{CallContext as _, Result};
use crate::identity;
use crate::runtime::execs::{EXIT_UNKNOWN_MESSAGE, ExecGuard, RunningContainer, pipe_pair};
use crate::runtime::{AsyncTerminal, Resizer, Runtime};

#[cfg(test)]
mod tests;

pub(super) fn streams_of(wanted: &StreamRequest) -> CommandStreams {
    match wanted {
        StreamRequest::Exec(request) => CommandStreams {
            stdin: request.stdin,
            stdout: request.stdout,
            stderr: request.stderr,
            tty: request.tty,
        },
        StreamRequest::Attach(request) => CommandStreams {
            stdin: request.stdin,
            stdout: request.stdout,
            stderr: request.stderr,
            tty: request.tty,
        },
        StreamRequest::PortForward(_) => {
            CommandStreams { stdin: false, stdout: false, stderr: false, tty: false }
        }
    }
}

/// Runs the command and sends its result to the client.
pub(super) async fn run(runtime: &Runtime, wanted: StreamRequest, session: CommandSession) {
    let CommandSession { input, output, gone, tasks } = session;
    let client = StreamClient { input, output: output.clone(), gone };
    let has = streams_of(&wanted);
    let outcome = match wanted {
        StreamRequest::Exec(request) => {
            exec(runtime, &request.container_id, request.cmd, has, client).await
        }
        StreamRequest::Attach(request) => attach(runtime, &request.container_id, has, client).await,
        StreamRequest::PortForward(_) => return,
    };
    let ending = match outcome {
        Ok(Some(ending)) => ending,
        // The client is gone.
        Ok(None) => return,
        Err(failure) => CommandStatus::Failed(failure.text),
    };
    let _ = output.send(Output::Status(ending)).await;
    drop(output);
    tasks.finish().await;
}

/// The client's side of a command.
struct StreamClient {
    input: mpsc::Receiver<ClientInput>,
    output: mpsc::Sender<Output>,
    gone: ClientGone,
}

async fn exec(
    runtime: &Runtime,
    container: &str,
    command: Vec<String>,
    has: CommandStreams,
    client: StreamClient,
) -> Result<Option<CommandStatus>> {
    let running = runtime.running(container).await?;
    let process = runtime.exec_process(&running.container.id, command, has.tty).await?;
    let exec = identity::fresh()?;
    let (stdio, ends) = if has.tty { Default::default() } else { pipes(has)? };
    let exited = running.sandbox.execs.expect(&exec);
    let guard = ExecGuard::new(runtime, &running, &exec);
    let request = ExecOptions {
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
            EndedBy::StreamClient => return Ok(None),
            EndedBy::Command => ending.await,
        },
    };
    // If the exit is lost, the guard kills what may be left of the command.
    let Ok(exit) = exit else {
        return Ok(Some(CommandStatus::Failed(EXIT_UNKNOWN_MESSAGE.to_owned())));
    };
    guard.disarm();
    Ok(Some(match exit.code {
        0 => CommandStatus::Success,
        code => CommandStatus::ExitCode(code),
    }))
}

async fn attach(
    runtime: &Runtime,
    container: &str,
    has: CommandStreams,
    client: StreamClient,
) -> Result<Option<CommandStatus>> {
    let running: RunningContainer = runtime.running(container).await?;
    let (stdio, ends) = pipes(has)?;
    running.supervisor.client.attach(&running.container.id, stdio).await?;
    let (resize_sender, mut resizes) = mpsc::channel(4);
    let (supervisor, id) = (Arc::clone(&running.supervisor), running.container.id.clone());
    tokio::spawn(async move {
        while let Some(size) = resizes.recv().await {
            let _ = supervisor.client.resize(&id, size).await;
        }
    });
    let StreamClient { mut input, output, gone } = client;
    // Sizes are applied to the container's terminal; everything else is copied.
    let (forward, forwarded) = mpsc::channel(super::session::QUEUE);
    let sorting = async move {
        while let Some(event) = input.recv().await {
            let sent = match event {
                ClientInput::Resize(size) => resize_sender.send(size).await.is_ok(),
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
    let sorted = StreamClient { input: forwarded, output, gone };
    let left = tokio::select! {
        left = copy_pipes(ends, sorted, over) => left,
        () = async { tokio::join!(sorting, watching); } => EndedBy::Command,
    };
    Ok((left == EndedBy::Command).then_some(CommandStatus::Success))
}

/// Our ends of a command's pipes.
#[derive(Default)]
struct PipeEnds {
    stdin: Option<pipe::Sender>,
    stdout: Option<pipe::Receiver>,
    stderr: Option<pipe::Receiver>,
}

fn pipes(has: CommandStreams) -> Result<(StdioDescriptors, PipeEnds)> {
    let (mut stdio, mut ends) = (StdioDescriptors::default(), PipeEnds::default());
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
enum EndedBy {
    StreamClient,
    Command,
}

async fn copy_pipes(ends: PipeEnds, client: StreamClient, over: watch::Receiver<bool>) -> EndedBy {
    let PipeEnds { stdin, stdout, stderr } = ends;
    let StreamClient { input, output, gone } = client;
    let draining = async {
        let out = copy_output(stdout, OutputChannel::Stdout, &output, over.clone());
        let err = copy_output(stderr, OutputChannel::Stderr, &output, over.clone());
        let drained = tokio::try_join!(out, err).map(drop);
        finished(drained, over.clone()).await
    };
    tokio::select! {
        left = draining => left,
        left = copy_input(stdin, input, gone, None) => left,
    }
}

async fn copy_terminal(
    master: OwnedFd,
    client: StreamClient,
    has: CommandStreams,
    over: watch::Receiver<bool>,
) -> EndedBy {
    let Ok(terminal) = AsyncTerminal::new(master) else { return EndedBy::Command };
    let (reader, writer, resizer) = terminal.split();
    let StreamClient { input, output, gone } = client;
    let draining = async {
        let drained = copy_output(Some(reader), OutputChannel::Stdout, &output, over.clone()).await;
        finished(drained, over.clone()).await
    };
    let writer = has.stdin.then_some(writer);
    tokio::select! {
        left = draining => left,
        left = copy_input(writer, input, gone, Some(resizer)) => left,
    }
}

/// The client no longer accepts output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ClientClosed;

/// A command may close its output long before its exit; until then its client is watched.
async fn finished(drained: Result<(), ClientClosed>, mut over: watch::Receiver<bool>) -> EndedBy {
    if drained == Err(ClientClosed) {
        return EndedBy::StreamClient;
    }
    let _ = over.wait_for(|over| *over).await;
    EndedBy::Command
}

/// Passes on the client's input until the client has left. Input that it sent before is passed on
/// as long as the command reads it.
async fn copy_input(
    mut sink: Option<impl AsyncWrite + Unpin>,
    mut input: mpsc::Receiver<ClientInput>,
    mut gone: ClientGone,
    terminal: Option<Resizer>,
) -> EndedBy {
    while let Some(event) = input.recv().await {
        // With a terminal, the end of input is sent as a control character.
        let bytes: &[u8] = match &event {
            ClientInput::Stdin(held) => &held.bytes,
            ClientInput::StdinEnd if terminal.is_some() => &[4],
            ClientInput::StdinEnd => {
                sink = None;
                continue;
            }
            ClientInput::Resize(size) => {
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
            () = gone.left_and_idle() => return EndedBy::StreamClient,
        };
        if written.is_err() {
            // The command reads no more; the rest is dropped.
            sink = None;
        }
    }
    EndedBy::StreamClient
}

/// Sends output to its end; once the command has exited, silence is an end too.
async fn copy_output(
    stream: Option<impl AsyncRead + Unpin>,
    channel: OutputChannel,
    output: &mpsc::Sender<Output>,
    mut over: watch::Receiver<bool>,
) -> Result<(), ClientClosed> {
    let Some(mut stream) = stream else { return Ok(()) };
    let mut part = vec![0; PART];
    loop {
        let read = if *over.borrow_and_update() {
            match tokio::time::timeout(IDLE_TIMEOUT, stream.read(&mut part)).await {
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
                sent.map_err(|_| ClientClosed)?;
            }
        }
    }
}
