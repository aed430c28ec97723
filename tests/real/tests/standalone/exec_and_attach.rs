//! exec, attach, port-forward, cp: what holds for these verbs with every runtime, for tests that
//! have one.
//!
//! Rule: every wait is for an output or a state; nothing depends on timing.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use node_testkit::start::get;

use crate::terminal::OnTerminal;

const WAIT_LIMIT: Duration = Duration::from_secs(60);
const PART: usize = 1 << 20;

/// The verbs of one agent.
pub(crate) struct Verbs {
    pub(crate) program: PathBuf,
    /// The agent's socket, if not the default one.
    pub(crate) socket: Option<PathBuf>,
    /// The directory for files of a test.
    pub(crate) dir: PathBuf,
}

impl Verbs {
    pub(crate) fn verb(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        let (verb, rest) = arguments.split_first().expect("a verb");
        command.arg(verb);
        if let Some(socket) = &self.socket {
            command.arg("--socket").arg(socket);
        }
        command.args(rest).stdin(Stdio::null());
        command
    }

    pub(crate) fn ask(&self, arguments: &[&str]) -> Result<String> {
        good(self.verb(arguments).output()?, arguments)
    }

    pub(crate) fn refused(&self, arguments: &[&str]) -> Result<String> {
        let answer = self.verb(arguments).output()?;
        ensure!(!answer.status.success(), "{arguments:?} did not refuse");
        Ok(String::from_utf8(answer.stderr)?)
    }

    /// Starts a verb that runs until its input or its other end closes.
    pub(crate) fn session(&self, arguments: &[&str]) -> Result<VerbSession> {
        let mut command = self.verb(arguments);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut running = RunningVerb(child.spawn()?);
        let output = running.0.stdout.take().context("its output")?;
        Ok(VerbSession { running, output: BufReader::new(output) })
    }

    fn path(&self, name: &str) -> String {
        self.dir.join(name).display().to_string()
    }
}

pub(crate) fn good(answer: Output, what: &[&str]) -> Result<String> {
    let errors = String::from_utf8_lossy(&answer.stderr);
    ensure!(answer.status.success(), "{what:?}: {} {errors}", answer.status);
    Ok(String::from_utf8(answer.stdout)?)
}

/// A running program, killed on drop.
struct RunningVerb(Child);

impl Drop for RunningVerb {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) struct VerbSession {
    running: RunningVerb,
    output: BufReader<std::process::ChildStdout>,
}

impl VerbSession {
    pub(crate) fn process(&self) -> u32 {
        self.running.0.id()
    }

    pub(crate) fn send(&mut self, words: &str) -> Result<()> {
        let input = self.running.0.stdin.as_mut().context("its input")?;
        Ok(input.write_all(words.as_bytes())?)
    }

    /// Closes the input; the output can still be read.
    pub(crate) fn end_input(&mut self) {
        drop(self.running.0.stdin.take());
    }

    pub(crate) fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        Ok(line)
    }

    /// The remaining output, and the exit code.
    pub(crate) fn end(mut self) -> Result<(Option<i32>, String)> {
        let mut rest = String::new();
        self.output.read_to_string(&mut rest)?;
        Ok((self.running.0.wait()?.code(), rest))
    }
}

/// A command's streams and exit code, and the errors for things that do not exist.
pub(crate) fn commands(verbs: &Verbs, pod: &str) -> Result<()> {
    let script = "echo o; echo e >&2; exit 7";
    let answer = verbs.verb(&["exec", pod, "--", "sh", "-c", script]).output()?;
    ensure!(answer.status.code() == Some(7), "{answer:?}");
    ensure!((answer.stdout.as_slice(), answer.stderr.as_slice()) == (b"o\n", b"e\n"), "{answer:?}");
    let missing = verbs.verb(&["exec", pod, "--", "/nothing"]).output()?;
    ensure!(missing.status.code() == Some(126), "{missing:?}");
    let none = verbs.refused(&["exec", pod, "-c", "other", "--", "true"])?;
    ensure!(none.contains("has no container other; it has main"), "{none}");
    let unknown_pod = verbs.refused(&["exec", "nobody", "--", "true"])?;
    ensure!(unknown_pod.contains("no pod named nobody here; there are default/"), "{unknown_pod}");
    Ok(())
}

pub(crate) fn command_on_a_terminal(verbs: &Verbs, pod: &str) -> Result<()> {
    let mut shell = OnTerminal::start(verbs.verb(&["exec", "-it", pod, "--", "sh"]))?;
    shell.until("# ")?;
    // The terminal's first size is set after the shell has started: a command typed before sees
    // none.
    let until = |size: &str, word: &str| {
        format!("until [ \"$(stty size)\" = '{size}' ]; do :; done; echo {word}''ed\n")
    };
    shell.type_in(&until("30 100", "siz"))?;
    shell.until("sized")?;
    shell.type_in("tty\n")?;
    shell.until("/dev/pts/")?;
    shell.resize(90, 20)?;
    shell.type_in(&until("20 90", "chang"))?;
    shell.until("changed")?;
    shell.type_in("exit 9\n")?;
    let (code, seen) = shell.end()?;
    ensure!(code == Some(9), "{code:?} {seen}");
    Ok(())
}

fn part(number: usize) -> Vec<u8> {
    (0..PART).map(|at| ((at * 31 + number * 7) % 251) as u8).collect()
}

/// Writes this many parts, and returns the writer.
fn write_parts<W: Write + Send + 'static>(mut to: W, parts: usize) -> JoinHandle<Result<W>> {
    std::thread::spawn(move || {
        for number in 0..parts {
            to.write_all(&part(number)).with_context(|| format!("write part {number}"))?;
        }
        Ok(to)
    })
}

/// Reads the same parts.
fn expect_parts(from: &mut impl Read, parts: usize) -> Result<()> {
    let mut found = vec![0; PART];
    for number in 0..parts {
        from.read_exact(&mut found).with_context(|| format!("part {number}"))?;
        ensure!(found == part(number), "part {number} is another");
    }
    Ok(())
}

fn joined<T>(writing: JoinHandle<Result<T>>) -> Result<T> {
    writing.join().map_err(|_| anyhow::anyhow!("writing panicked"))?
}

/// Through `cat`: the output equals the input, and the end of the input ends it. Through `wc`: the
/// end of the input does not end the command.
pub(crate) fn large_streams(verbs: &Verbs, pod: &str, parts: usize) -> Result<()> {
    let mut cat = verbs.session(&["exec", "-i", pod, "--", "cat"])?;
    let writing = write_parts(cat.running.0.stdin.take().context("its input")?, parts);
    expect_parts(&mut cat.output, parts)?;
    drop(joined(writing)?);
    let (code, rest) = cat.end()?;
    ensure!(code == Some(0) && rest.is_empty(), "{code:?}, {} bytes too many", rest.len());

    let mut count = verbs.session(&["exec", "-i", pod, "--", "sh", "-c", "wc -c; echo after"])?;
    let writing = write_parts(count.running.0.stdin.take().context("its input")?, parts);
    drop(joined(writing)?);
    let (code, printed) = count.end()?;
    ensure!(
        code == Some(0) && printed == format!("{}\nafter\n", parts * PART),
        "{code:?} {printed}"
    );
    Ok(())
}

pub(crate) fn copies(verbs: &Verbs, pod: &str) -> Result<()> {
    let site = verbs.dir.join("site");
    fs::create_dir_all(site.join("deep"))?;
    fs::write(site.join("deep/page"), "page")?;
    fs::write(site.join("large"), (0..8).flat_map(part).collect::<Vec<u8>>())?;
    let site = verbs.path("site");
    let there = |path: &str| format!("{pod}:{path}");
    verbs.ask(&["cp", &site, &there("/srv")])?;
    let found = verbs.ask(&["exec", pod, "--", "cat", "/srv/deep/page"])?;
    ensure!(found == "page", "{found}");
    let size = verbs.ask(&["exec", pod, "--", "stat", "-c", "%s", "/srv/large"])?;
    ensure!(size.trim() == (8 * PART).to_string(), "{size}");
    verbs.ask(&["cp", &there("/srv"), &verbs.path("back")])?;
    let back = verbs.dir.join("back");
    ensure!(fs::read_to_string(back.join("deep/page"))? == "page", "not the same");
    expect_parts(&mut fs::File::open(back.join("large"))?, 8)?;
    // A symlink that would lead out of the container means something inside.
    let outside = verbs.dir.join("outside");
    fs::write(&outside, "outside")?;
    let leads = format!("ln -s {} /leads-out; ln -s /etc/hostname /leads-in", outside.display());
    verbs.ask(&["exec", pod, "--", "sh", "-c", &leads])?;
    let copied = verbs.path("copied");
    let refused = verbs.refused(&["cp", &there("/leads-out"), &copied])?;
    ensure!(refused.contains("not in the container"), "{refused}");
    verbs.refused(&["cp", &format!("{site}/deep/page"), &there("/leads-out")])?;
    ensure!(fs::read_to_string(&outside)? == "outside", "written through a symlink");
    verbs.ask(&["cp", &there("/leads-in"), &copied])?;
    let own = verbs.ask(&["exec", pod, "--", "hostname"])?;
    ensure!(fs::read_to_string(&copied)? == own, "not the container's");
    Ok(())
}

/// Many connections, one with this many parts each way at once, and one to a closed port.
pub(crate) fn ports(verbs: &Verbs, pod: &str, parts: usize) -> Result<()> {
    let servers = "mkdir /w; echo hi > /w/index.html; httpd -p 8000 -h /w; \
                   nc -ll -p 8001 -e cat > /dev/null 2>&1 & \
                   until cat /proc/net/tcp /proc/net/tcp6 | grep -q :1F41; do sleep 0.1; done";
    verbs.ask(&["exec", pod, "--", "sh", "-c", servers])?;
    let words = ["port-forward", "--address", "127.0.0.1", pod, ":8000", ":8001", ":1"];
    let mut forward = verbs.session(&words)?;
    let mut port = || -> Result<u16> {
        let line = forward.line()?;
        let port = line.split("127.0.0.1:").nth(1).and_then(|rest| rest.split(' ').next());
        port.and_then(|port| port.parse().ok()).with_context(|| format!("a port in {line}"))
    };
    let (open, echo, closed) = (port()?, port()?, port()?);
    let page = || -> Result<()> {
        let answer = get(([127, 0, 0, 1], open).into(), "/")?;
        ensure!(answer.body == "hi\n", "{}", answer.body);
        Ok(())
    };
    (0..3).try_for_each(|_| page())?;
    let mut socket = TcpStream::connect(("127.0.0.1", echo))?;
    socket.set_read_timeout(Some(WAIT_LIMIT))?;
    let writing = write_parts(socket.try_clone()?, parts);
    expect_parts(&mut socket, parts).context("through a forwarded port")?;
    joined(writing)?;
    // One direction ends, and so does the program at the other end: its direction ends too.
    socket.shutdown(Shutdown::Write)?;
    ensure!(socket.read(&mut [0; 8])? == 0, "more came out than went in");
    // A closed port: the connection ends, and the others continue.
    let mut socket = TcpStream::connect(("127.0.0.1", closed))?;
    socket.set_read_timeout(Some(WAIT_LIMIT))?;
    ensure!(matches!(socket.read(&mut [0; 8]), Ok(0) | Err(_)), "something answered");
    page()
}

/// Echoes its input, and prints a line after its end: for [`attach_to_the_end`].
pub(crate) const ECHO: &str = "cat; echo over";

/// A pod with one container with `stdinOnce` that is never restarted: its input ends and its output
/// continues.
pub(crate) fn attach_to_the_end(verbs: &Verbs, pod: &str) -> Result<()> {
    let mut attached = verbs.session(&["attach", "-i", pod])?;
    attached.send("hello\n")?;
    let line = attached.line()?;
    ensure!(line == "hello\n", "{line:?}");
    attached.end_input();
    let (code, rest) = attached.end()?;
    ensure!(code == Some(0) && rest == "over\n", "{code:?} {rest}");
    Ok(())
}

/// A container whose input outlives a client: the next client continues. On containerd the end of
/// such an input ends the session, and not the container.
pub(crate) fn attach_again(verbs: &Verbs, pod: &str, container: &str) -> Result<()> {
    for word in ["one", "two"] {
        let mut attached = verbs.session(&["attach", "-i", pod, "-c", container])?;
        attached.send(&format!("{word}\n"))?;
        let line = attached.line()?;
        ensure!(line == format!("got {word}\n"), "{line:?}");
        attached.end_input();
        let (code, rest) = attached.end()?;
        ensure!(code == Some(0) && rest.is_empty(), "{code:?} {rest}");
    }
    Ok(())
}

/// A container with a terminal, attached from a terminal of another size, which then changes.
pub(crate) fn attach_on_a_terminal(verbs: &Verbs, pod: &str, container: &str) -> Result<()> {
    let mut shell = OnTerminal::start(verbs.verb(&["attach", "-it", pod, "-c", container]))?;
    for (size, columns, rows) in [("30 100", 100, 30), ("20 90", 90, 20)] {
        shell.resize(columns, rows)?;
        let wait =
            format!("until [ \"$(stty size)\" = '{size}' ]; do :; done; echo s''{columns}\n");
        shell.type_in(&wait)?;
        shell.until(&format!("s{columns}"))?;
    }
    shell.type_in("exit 4\n")?;
    let (code, seen) = shell.end()?;
    // The session ended well; how the container ended is its status' to tell.
    ensure!(code == Some(0), "{code:?} {seen}");
    Ok(())
}
