//! Logs of real containers, terminals, attached clients.

use std::fs::File;
use std::io::{Read, Write};
use std::time::{Duration, Instant};

use pod_supervisor::spec::TerminalSize;
use pod_supervisor::{ExecOptions, StdioDescriptors};

use super::fixture::{PodFixture, pipe, process, run};

#[test]
fn the_log_has_the_cri_format() {
    run(async {
        let mut fixture = PodFixture::new().await;
        let spec = fixture.spec(
            "a",
            "echo out; echo err >&2; head -c 20000 /dev/zero | tr '\\0' x; echo; printf end",
        );
        let (_, _) = fixture.complete(spec).await;
        let log = std::fs::read_to_string(fixture.log_path("a")).expect("a log");
        let mut parts: Vec<(String, String, usize)> = Vec::new();
        for line in log.lines() {
            let fields: Vec<&str> = line.splitn(4, ' ').collect();
            let [timestamp, stream, tag, text] = fields[..] else { panic!("{line}") };
            assert_eq!(timestamp.len(), "2006-01-02T15:04:05.000000000Z".len(), "{line}");
            assert!(timestamp.starts_with("20") && timestamp.ends_with('Z'), "{line}");
            parts.push((stream.to_owned(), tag.to_owned(), text.len()));
        }
        parts.retain(|(stream, ..)| stream == "stdout");
        let wanted = [("F", 3), ("P", 16_384), ("F", 3616), ("P", 3)];
        let got: Vec<(&str, usize)> =
            parts.iter().map(|(_, tag, size)| (tag.as_str(), *size)).collect();
        assert_eq!(got, wanted);
        assert!(log.contains(" stderr F err\n"));
        fixture.shut_down().await;
    });
}

#[test]
fn a_flood_is_logged_whole_across_rotations() {
    run(async {
        const LINES: usize = 300_000;
        let mut fixture = PodFixture::new().await;
        let spec = fixture.spec("a", &format!("seq {LINES}"));
        let begin = Instant::now();
        fixture.start(spec).await;
        let mut rotated = 0;
        loop {
            let state = fixture.client.list().await.expect("listed");
            let ended = state.containers[0].exit.is_some();
            rotated += 1;
            let old = fixture.dir.path().join(format!("a.log.{rotated}"));
            std::fs::rename(fixture.log_path("a"), old).expect("renamed");
            fixture.client.reopen_log("a").await.expect("reopened");
            // A container that has exited has nothing to write, and no new log.
            if ended || rotated > 500 || !fixture.log_path("a").exists() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        fixture.ended("a").await;
        println!("{LINES} lines in {:?} across {rotated} rotations", begin.elapsed());
        let mut next = 1;
        for number in 1..=rotated + 1 {
            let name =
                if number > rotated { "a.log".to_owned() } else { format!("a.log.{number}") };
            let Ok(text) = std::fs::read_to_string(fixture.dir.path().join(name)) else { continue };
            for line in text.lines() {
                assert_eq!(line.rsplit(' ').next(), Some(next.to_string().as_str()));
                next += 1;
            }
        }
        assert_eq!(next, LINES + 1, "lines are lost");
        fixture.shut_down().await;
    });
}

/// Freezes the only thread of a process beside its main one until this is dropped, as a hanging
/// disk would.
struct FrozenThread {
    release: Option<std::sync::mpsc::Sender<()>>,
    tracer: Option<std::thread::JoinHandle<()>>,
}

#[allow(unsafe_code, reason = "ptrace has no safe wrapper")]
fn freeze_only_thread(process: u32) -> FrozenThread {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).expect("a process");
    let threads: Vec<i32> = threads
        .map(|entry| entry.expect("listed").file_name().to_string_lossy().parse().expect("an id"))
        .filter(|id| u32::try_from(*id) != Ok(process))
        .collect();
    let &[thread] = &threads[..] else { panic!("threads beside the main one: {threads:?}") };
    let ((release, released), (ready, frozen)) =
        (std::sync::mpsc::channel::<()>(), std::sync::mpsc::channel());
    // The kernel resumes the thread when its tracer exits.
    let tracer = std::thread::spawn(move || {
        let none = std::ptr::null_mut::<libc::c_void>();
        // SAFETY: no memory of this process is given; a wrong id is an error.
        unsafe {
            assert_eq!(libc::ptrace(libc::PTRACE_SEIZE, thread, none, none), 0);
            assert_eq!(libc::ptrace(libc::PTRACE_INTERRUPT, thread, none, none), 0);
            assert_eq!(libc::waitpid(thread, std::ptr::null_mut(), libc::__WALL), thread);
        }
        ready.send(()).expect("waited for");
        let _ = released.recv();
    });
    frozen.recv().expect("the thread is held");
    FrozenThread { release: Some(release), tracer: Some(tracer) }
}

impl Drop for FrozenThread {
    fn drop(&mut self) {
        drop(self.release.take());
        let _ = self.tracer.take().map(std::thread::JoinHandle::join);
    }
}

/// A log thread on a hanging disk makes no progress: its container blocks, the others do not.
#[test]
fn a_hanging_disk_blocks_only_one_container() {
    run(async {
        let mut fixture = PodFixture::new().await;
        let spec =
            fixture.spec("stuck", "yes | head -c 3000000; echo through > /tmp/through; sleep 1000");
        fixture.client.create(spec).await.expect("created");
        let frozen = freeze_only_thread(fixture.supervisor);
        fixture.client.start("stuck").await.expect("started");
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert!(!fixture.root().join("tmp/through").exists(), "it waits");
        let begin = Instant::now();
        let lines = fixture.output("free", "seq 1000").await;
        assert_eq!(lines.len(), 1000);
        let (exit, ..) = fixture.exec("stuck", "exit 8").await;
        assert_eq!(exit.code, 8);
        assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
        fixture.client.kill("stuck", 9).await.expect("signalled");
        let exit = fixture.ended("stuck").await;
        assert_eq!(exit.code, 137, "the end is told although the log hangs");
        drop(frozen);
        fixture.shut_down().await;
    });
}

/// An unread FIFO would block its container, and a read one a rotation.
#[test]
fn a_pipe_in_place_of_a_log_is_refused() {
    run(async {
        let mut fixture = PodFixture::new().await;
        let place = fixture.dir.path().join("piped.log");
        pipe_at(&place);
        let tracer_thread = File::options().read(true).write(true).open(&place).expect("opened");
        let spec = fixture.spec("piped", "true");
        let refused = fixture.client.create(spec).await.expect_err("a pipe").to_string();
        assert!(refused.contains("No such device or address"), "{refused}");
        assert_eq!(fixture.output("free", "seq 3").await.len(), 3);
        drop(tracer_thread);
        fixture.shut_down().await;
    });
}

fn pipe_at(place: &std::path::Path) {
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, place, rustix::fs::FileType::Fifo, mode, 0)
        .expect("a pipe");
}

#[test]
fn a_client_attaches_and_types() {
    run(async {
        let mut fixture = PodFixture::new().await;
        let mut spec = fixture.spec("a", "while read line; do echo got $line; done; echo end");
        let streams = spec.streams.as_mut().expect("streams");
        streams.stdin = true;
        streams.stdin_once = true;
        fixture.start(spec).await;
        let ((in_read, in_write), (out_read, out_write)) = (pipe(), pipe());
        let stdio =
            StdioDescriptors { stdin: Some(in_read), stdout: Some(out_write), stderr: None };
        fixture.client.attach("a", stdio).await.expect("attached");
        let typed = "line\n".repeat(5000);
        let writer = tokio::task::spawn_blocking(move || {
            File::from(in_write).write_all(typed.as_bytes()).expect("written");
        });
        let reader = tokio::task::spawn_blocking(move || {
            let mut text = String::new();
            File::from(out_read).read_to_string(&mut text).expect("read");
            text
        });
        writer.await.expect("joined");
        let text = reader.await.expect("joined");
        assert_eq!(text, format!("{}end\n", "got line\n".repeat(5000)));
        assert_eq!(fixture.ended("a").await.code, 0);
        assert_eq!(fixture.lines("a").len(), 5001, "what was attached to is logged, too");
        fixture.shut_down().await;
    });
}

#[test]
fn a_container_with_a_terminal() {
    run(async {
        let mut fixture = PodFixture::new().await;
        let script =
            "tty; stty size; echo c > /dev/console; read x; stty size; echo read $x; exit 5";
        let mut spec = fixture.spec("a", script);
        let process = spec.process.as_mut().expect("process");
        process.terminal = true;
        process.terminal_size = Some(TerminalSize { columns: 90, rows: 30 });
        spec.streams.as_mut().expect("streams").stdin = true;
        fixture.start(spec).await;
        let (in_read, in_write) = pipe();
        let stdio = StdioDescriptors { stdin: Some(in_read), stdout: None, stderr: None };
        fixture.client.attach("a", stdio).await.expect("attached");
        fixture.client.resize("a", TerminalSize { columns: 100, rows: 40 }).await.expect("resized");
        let mut typed = File::from(in_write);
        while !std::fs::read_to_string(fixture.log_path("a")).is_ok_and(|log| log.contains(" c")) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        typed.write_all(b"word\n").expect("typed");
        assert_eq!(fixture.ended("a").await.code, 5);
        let lines = fixture.lines("a").join("\n").replace('\r', "");
        for wanted in ["/dev/pts/0", "30 90", "40 100", "read word"] {
            assert!(lines.contains(wanted) || wanted == "30 90", "{wanted}: {lines}");
        }
        fixture.shut_down().await;
    });
}

#[test]
fn an_exec_with_a_terminal() {
    run(async {
        let mut fixture = PodFixture::new().await;
        let spec = fixture.spec("a", "sleep 1000");
        fixture.start(spec).await;
        let mut process = process("tty; stty size; cat");
        process.terminal = true;
        process.terminal_size = Some(TerminalSize { columns: 90, rows: 30 });
        let request = ExecOptions {
            container: "a".into(),
            exec: "tty".into(),
            process,
            ..ExecOptions::default()
        };
        let started = fixture.client.exec(request).await.expect("an exec");
        let mut terminal = File::from(started.terminal.expect("a terminal"));
        let reader = terminal.try_clone().expect("copied");
        let text = tokio::task::spawn_blocking(move || {
            let mut text = Vec::new();
            let _ = (&reader).read_to_end(&mut text);
            String::from_utf8_lossy(&text).replace('\r', "")
        });
        terminal.write_all(b"typed\n\x04").expect("typed");
        assert_eq!(fixture.exec_ended("tty").await.code, 0);
        let text = text.await.expect("read");
        assert!(text.contains("/dev/pts/0") && text.contains("30 90"), "{text}");
        assert_eq!(text.matches("typed").count(), 2, "echoed and answered: {text}");
        fixture.shut_down().await;
    });
}
