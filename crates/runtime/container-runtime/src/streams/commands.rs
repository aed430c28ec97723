//! Exec and attach on a session: bytes both ways, sizes, and how it ended.
//!
//! Rule: nothing is held back and nothing piles up: each direction waits for its slower side. When
//! the client goes away, an exec is killed; a container that was attached to goes on.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use pod_supervisor::{ExecRequest, Stdio};
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::unix::pipe;
use tokio::sync::{mpsc, watch};

use super::Wanted;
use super::session::{Channel, Ending, Has, Input, Output, PART, Session};
use crate::failure::{Doing as _, Result};
use crate::identity;
use crate::runtime::execs::{ExecGuard, Running, pipe_pair};
use crate::runtime::{Runtime, Terminal};

/// After the command's end, a child that holds its output is waited for this long without a word.
const SILENCE: Duration = Duration::from_millis(500);

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

/// Runs the command and tells the client how it ended.
pub(super) async fn run(runtime: &Runtime, wanted: Wanted, session: Session) {
    let output = session.output.clone();
    let has = streams_of(&wanted);
    let outcome = match wanted {
        Wanted::Exec(request) => {
            exec(runtime, &request.container_id, request.cmd, has, session).await
        }
        Wanted::Attach(request) => attach(runtime, &request.container_id, has, session).await,
        Wanted::PortForward(_) => return,
    };
    let ending = outcome.unwrap_or_else(|failure| Ending::Failed(failure.text));
    let _ = output.send(Output::Status(ending)).await;
}

async fn exec(
    runtime: &Runtime,
    container: &str,
    command: Vec<String>,
    has: Has,
    session: Session,
) -> Result<Ending> {
    let running = runtime.running(container)?;
    let process = runtime.exec_process(&running.container.id, command, has.tty).await?;
    let exec = identity::fresh()?;
    let (stdio, ends) = if has.tty { Default::default() } else { pipes(has)? };
    let exited = running.supervisor.expect_exec(&exec);
    let guard = ExecGuard::new(&running, &exec);
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
            running.supervisor.forget_exec(&exec);
            guard.disarm();
            return Err(error.into());
        }
    };
    let (over_sender, over) = watch::channel(false);
    let Session { input, output } = session;
    let copying = async {
        match started.terminal {
            Some(master) => copy_terminal(master, (input, output), has, over).await,
            None => copy_pipes(ends, (input, output), over).await,
        }
    };
    tokio::pin!(copying);
    let ending = async {
        let exit = exited.await;
        over_sender.send_replace(true);
        exit
    };
    tokio::pin!(ending);
    let exit = tokio::select! {
        exit = &mut ending => {
            // What it still said goes out before its end is told.
            let _ = copying.await;
            exit
        }
        left = &mut copying => match left {
            // The client is gone: the guard kills the command.
            Left::Client => return Ok(Ending::Failed("the client went away".to_owned())),
            Left::Command => ending.await,
        },
    };
    guard.disarm();
    Ok(match exit {
        Ok(exit) if exit.code == 0 => Ending::Success,
        Ok(exit) => Ending::ExitCode(exit.code),
        Err(_) => Ending::Failed("the pod's supervisor ended before the command".to_owned()),
    })
}

async fn attach(runtime: &Runtime, container: &str, has: Has, session: Session) -> Result<Ending> {
    let running: Running = runtime.running(container)?;
    let (stdio, ends) = pipes(has)?;
    running.supervisor.client.attach(&running.container.id, stdio).await?;
    let (resize_sender, mut resizes) = mpsc::channel(4);
    let (supervisor, id) = (Arc::clone(&running.supervisor), running.container.id.clone());
    tokio::spawn(async move {
        while let Some(size) = resizes.recv().await {
            let _ = supervisor.client.resize(&id, size).await;
        }
    });
    let Session { mut input, output } = session;
    // Sizes go to the container's terminal; the rest is copied.
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
    tokio::select! {
        _ = copy_pipes(ends, (forwarded, output), over) => {}
        () = async { tokio::join!(sorting, watching); } => {}
    }
    Ok(Ending::Success)
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

/// Who ended it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Left {
    Client,
    Command,
}

type Client = (mpsc::Receiver<Input>, mpsc::Sender<Output>);

async fn copy_pipes(ends: Ends, (mut input, output): Client, over: watch::Receiver<bool>) -> Left {
    let Ends { mut stdin, stdout, stderr } = ends;
    let feeding = async {
        while let Some(event) = input.recv().await {
            match event {
                Input::Stdin(bytes) => {
                    if let Some(pipe) = &mut stdin
                        && pipe.write_all(&bytes).await.is_err()
                    {
                        // The command reads no more; the rest is dropped.
                        stdin = None;
                    }
                }
                Input::StdinEnd => stdin = None,
                Input::Resize(_) => {}
            }
        }
        Left::Client
    };
    let draining = async {
        let out = drain(stdout, Channel::Stdout, &output, over.clone());
        let err = drain(stderr, Channel::Stderr, &output, over);
        tokio::join!(out, err);
        Left::Command
    };
    tokio::select! {
        left = draining => left,
        left = feeding => left,
    }
}

/// Sends what comes, to its end; once the command is over, silence is an end too.
async fn drain(
    stream: Option<impl AsyncRead + Unpin>,
    channel: Channel,
    output: &mpsc::Sender<Output>,
    mut over: watch::Receiver<bool>,
) {
    let Some(mut stream) = stream else {
        // A command without output ends when it ends.
        let _ = over.wait_for(|over| *over).await;
        return;
    };
    let mut part = vec![0; PART];
    loop {
        let read = if *over.borrow_and_update() {
            match tokio::time::timeout(SILENCE, stream.read(&mut part)).await {
                Ok(read) => read,
                Err(_) => return,
            }
        } else {
            tokio::select! {
                read = stream.read(&mut part) => read,
                _ = over.changed() => continue,
            }
        };
        match read {
            Ok(0) | Err(_) => return,
            Ok(read) => {
                let bytes = Bytes::copy_from_slice(&part[..read]);
                if output.send(Output::Data(channel, bytes)).await.is_err() {
                    return;
                }
            }
        }
    }
}

async fn copy_terminal(
    master: OwnedFd,
    (mut input, output): Client,
    has: Has,
    over: watch::Receiver<bool>,
) -> Left {
    let Ok(terminal) = Terminal::new(master) else { return Left::Command };
    let (reader, mut writer, resizer) = terminal.split();
    let feeding = async move {
        while let Some(event) = input.recv().await {
            match event {
                Input::Stdin(bytes) if has.stdin => {
                    if writer.write_all(&bytes).await.is_err() {
                        return Left::Command;
                    }
                }
                Input::Resize(size) => resizer.resize(size),
                // The end of input is typed.
                Input::StdinEnd => {
                    let _ = writer.write_all(&[4]).await;
                }
                Input::Stdin(_) => {}
            }
        }
        Left::Client
    };
    let draining = async {
        drain(Some(reader), Channel::Stdout, &output, over).await;
        Left::Command
    };
    tokio::select! {
        left = draining => left,
        left = feeding => left,
    }
}
