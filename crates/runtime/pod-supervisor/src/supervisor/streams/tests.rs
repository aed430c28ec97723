//! The thread over real pipes: logs, rotation under a flood, slow clients, input.

use super::*;
use container_create::spec::StreamsSpec;
use std::fs::File;
use std::io::{Read, Write};
use std::time::{Duration, Instant};

struct StreamsFixture {
    dir: tempfile::TempDir,
    streams: ContainerStreams,
    output: Option<File>,
    error: Option<File>,
    input: Option<File>,
}

fn pipe() -> (OwnedFd, OwnedFd) {
    rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).expect("a pipe")
}

fn fixture(stdin_once: bool) -> StreamsFixture {
    let dir = tempfile::tempdir().expect("a folder");
    let ((out_read, out_write), (err_read, err_write)) = (pipe(), pipe());
    let (in_read, in_write) = pipe();
    let flags = rustix::event::EventfdFlags::CLOEXEC;
    let log_path = dir.path().join("0.log").display().to_string();
    let log = StreamsSpec { log_path, ..StreamsSpec::default() };
    let streams = ContainerStreams::start(StreamsStart {
        output: out_read,
        error: Some(err_read),
        input: Some(in_write),
        terminal: false,
        log: LogPath::of(&log).expect("a path"),
        stdin_once,
        longest_line: 0,
        wake: Arc::new(rustix::event::eventfd(0, flags).expect("an eventfd")),
    })
    .expect("started");
    StreamsFixture {
        dir,
        streams,
        output: Some(out_write.into()),
        error: Some(err_write.into()),
        input: Some(in_read.into()),
    }
}

fn until(what: &str, mut check: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(10);
    while !check() {
        assert!(Instant::now() < end, "{what} did not happen");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Waits until all commands sent so far are done.
fn wait_for_commands(fixture: &mut StreamsFixture) {
    let number = fixture.streams.reopen().expect("asked");
    until("obeying", || fixture.streams.reopened().0 >= number);
}

fn drain(fixture: &mut StreamsFixture) {
    fixture.output = None;
    fixture.error = None;
    until("draining", || fixture.streams.is_drained());
}

#[test]
fn both_streams_are_logged_and_their_end_is_reported() {
    let mut fixture = fixture(false);
    fixture.output.as_mut().expect("open").write_all(b"one\ntw").expect("written");
    until("the first line", || {
        std::fs::read(fixture.dir.path().join("0.log")).is_ok_and(|log| !log.is_empty())
    });
    fixture.output.as_mut().expect("open").write_all(b"o\nrest").expect("written");
    fixture.error.as_mut().expect("open").write_all(b"bad\n").expect("written");
    drain(&mut fixture);
    let log = std::fs::read_to_string(fixture.dir.path().join("0.log")).expect("a log");
    let mut lines: Vec<&str> = log.lines().map(|line| &line[31..]).collect();
    lines.sort_unstable();
    assert_eq!(lines, ["stderr F bad", "stdout F one", "stdout F two", "stdout P rest"]);
}

#[test]
fn rotation_under_a_flood_loses_nothing() {
    const LINES: usize = 200_000;
    let mut fixture = fixture(false);
    let mut output = fixture.output.take().expect("open");
    let writer = std::thread::spawn(move || {
        for number in 0..LINES {
            writeln!(output, "line {number}").expect("written");
        }
    });
    let log = fixture.dir.path().join("0.log");
    let mut rotated = 0;
    while !writer.is_finished() {
        rotated += 1;
        std::fs::rename(&log, fixture.dir.path().join(format!("0.log.{rotated}")))
            .expect("renamed");
        let number = fixture.streams.reopen().expect("asked");
        until("reopening", || {
            fixture.streams.reopened().0 >= number || fixture.streams.is_drained()
        });
        assert!(log.exists());
    }
    writer.join().expect("joined");
    drain(&mut fixture);
    assert!(rotated > 1, "the flood was over before anything was rotated");
    let mut seen = Vec::new();
    for name in (1..=rotated).map(|number| format!("0.log.{number}")).chain(["0.log".to_owned()]) {
        let text = std::fs::read_to_string(fixture.dir.path().join(name)).expect("a log");
        seen.extend(text.lines().map(|line| line[40..].to_owned()));
    }
    let wanted: Vec<String> = (0..LINES).map(|number| format!("line {number}")).collect();
    assert_eq!(seen.len(), wanted.len());
    assert!(seen == wanted, "lines are lost, doubled or out of order");
}

/// A silent container would never notice by writing.
#[test]
fn a_silent_container_frees_the_slots_of_disconnected_clients() {
    let mut fixture = fixture(false);
    for _ in 0..MAX_ATTACHMENTS {
        let ((out_read, out_write), (in_read, in_write)) = (pipe(), pipe());
        let error = out_write.try_clone().expect("a copy");
        fixture.streams.attach(&[Some(in_read), Some(out_write), Some(error)]).expect("attached");
        drop((out_read, in_write));
    }
    let (read, write) = pipe();
    fixture.streams.attach(&[None, Some(write), None]).expect("attached");
    wait_for_commands(&mut fixture);
    fixture.output.as_mut().expect("open").write_all(b"heard").expect("written");
    let mut received = [0; 5];
    File::from(read).read_exact(&mut received).expect("it has a place");
    assert_eq!(&received, b"heard");
    drain(&mut fixture);
}

/// Connected clients keep their slots.
#[test]
fn a_silent_client_stays_attached() {
    let mut fixture = fixture(false);
    let clients: Vec<_> = (0..=MAX_ATTACHMENTS)
        .map(|_| {
            let (read, write) = pipe();
            fixture.streams.attach(&[None, Some(write), None]).expect("attached");
            File::from(read)
        })
        .collect();
    wait_for_commands(&mut fixture);
    fixture.output.as_mut().expect("open").write_all(b"heard").expect("written");
    drain(&mut fixture);
    drop(fixture);
    let received: Vec<usize> = clients
        .into_iter()
        .map(|mut client| client.read_to_end(&mut Vec::new()).expect("read"))
        .collect();
    let mut expected = vec![5; MAX_ATTACHMENTS];
    expected.push(0);
    assert_eq!(received, expected);
}

#[test]
fn clients_get_copies_and_give_input() {
    let mut fixture = fixture(true);
    let ((read_out, write_out), (read_in, write_in)) = (pipe(), pipe());
    fixture.streams.attach(&[Some(read_in), Some(write_out), None]).expect("attached");
    let mut input: File = write_in.into();
    input.write_all(b"typed").expect("written");
    let mut typed = [0; 5];
    fixture.input.as_mut().expect("open").read_exact(&mut typed).expect("read");
    assert_eq!(&typed, b"typed");
    // The client has closed its input: with `stdin_once` the container's input closes too.
    drop(input);
    let mut rest = Vec::new();
    fixture.input.as_mut().expect("open").read_to_end(&mut rest).expect("the end");
    assert_eq!(rest, b"");
    fixture.output.as_mut().expect("open").write_all(b"answer\n").expect("written");
    let mut client: File = read_out.into();
    let mut answer = [0; 7];
    client.read_exact(&mut answer).expect("read");
    assert_eq!(&answer, b"answer\n");
    drain(&mut fixture);
    let mut rest = Vec::new();
    client.read_to_end(&mut rest).expect("the end");
    assert_eq!(rest, b"", "the end of the container is the end of the client's stream");
}

#[test]
fn a_disconnected_client_is_removed() {
    let mut fixture = fixture(false);
    for _ in 0..3 * MAX_ATTACHMENTS {
        let (read, write) = pipe();
        fixture.streams.attach(&[None, Some(write), None]).expect("attached");
        drop(read);
        fixture.output.as_mut().expect("open").write_all(b"x\n").expect("written");
    }
    let (read, write) = pipe();
    rustix::io::ioctl_fionbio(&read, true).expect("not blocking");
    until("a free place", || {
        let copy = write.try_clone().expect("copy");
        let _ = fixture.streams.attach(&[None, Some(copy), None]);
        fixture.output.as_mut().expect("open").write_all(b"y\n").expect("written");
        rustix::io::read(&read, &mut [0; 2]).is_ok()
    });
    drop((read, write));
    drain(&mut fixture);
}

#[test]
fn a_log_that_cannot_be_written_does_not_stop_the_container() {
    let mut fixture = fixture(false);
    // The new log's path is a directory: reopening fails, the old log stays open.
    std::fs::remove_file(fixture.dir.path().join("0.log")).expect("removed");
    std::fs::create_dir(fixture.dir.path().join("0.log")).expect("made");
    let number = fixture.streams.reopen().expect("asked");
    until("reopening", || fixture.streams.reopened().0 >= number);
    assert!(fixture.streams.reopened().1.is_some(), "the failure is told");
    fixture.output.as_mut().expect("open").write_all(&vec![b'x'; 1 << 20]).expect("written");
    drain(&mut fixture);
}
