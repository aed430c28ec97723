//! The verbs for people on pods of `keelson run --detach`: no containerd, no runc, no network.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use node_testkit::bed::Test;
use node_testkit::images::{self, Content, Image};
use node_testkit::programs;
use rustix::process::{Pid, Signal, kill_process};

use crate::node::{STEADY, wait_for};

const PATIENCE: Duration = Duration::from_secs(60);

/// Of the embedded runtime: another network than its own choice.
const SETTINGS: &str =
    r#"{"version": 1, "network": {"bridge": "verbs0", "subnets": ["10.77.0.0/24"]}}"#;

/// One root of `keelson run`, and the verbs on it.
struct Home {
    keelson: PathBuf,
    folder: PathBuf,
}

impl Home {
    fn state(&self) -> PathBuf {
        self.folder.join("state")
    }

    fn run(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.keelson);
        command.arg("run").arg("--root").arg(self.folder.join("root"));
        command.arg("--state").arg(self.state()).args(arguments).stdin(Stdio::null());
        command
    }

    fn verb(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.keelson);
        let (verb, rest) = arguments.split_first().expect("a verb");
        command.arg(verb).arg("--socket").arg(self.state().join("agent.sock")).args(rest);
        command.stdin(Stdio::null());
        command
    }

    fn ask(&self, arguments: &[&str]) -> Result<String> {
        good(self.verb(arguments).output()?, arguments)
    }

    fn refused(&self, arguments: &[&str]) -> Result<String> {
        let answer = self.verb(arguments).output()?;
        ensure!(!answer.status.success(), "{arguments:?} did not refuse");
        Ok(String::from_utf8(answer.stderr)?)
    }

    fn write(&self, name: &str, text: &str) -> Result<String> {
        let path = self.folder.join(name);
        fs::write(&path, text)?;
        Ok(path.display().to_string())
    }

    fn until_runs(&self, name: &str) -> Result<()> {
        wait_for(&format!("{name} runs"), PATIENCE, || {
            Ok(self.ask(&["ps"]).is_ok_and(|table| {
                table.lines().any(|line| line.contains(name) && line.contains("1/1     Running"))
            }))
        })
    }

    /// The background agents of this root.
    fn agents(&self) -> Result<Vec<i32>> {
        self.processes("run-agent")
    }

    /// Processes whose command line has this word and this home.
    fn processes(&self, word: &str) -> Result<Vec<i32>> {
        let home = self.folder.display().to_string();
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc")? {
            let name = entry?.file_name();
            let Some(number) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
            let line = fs::read(format!("/proc/{number}/cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).into_owned();
            if line.contains(word) && line.contains(&home) {
                found.push(number);
            }
        }
        Ok(found)
    }

    /// The agent is gone, and so is everything of its pods. A supervisor may be the last to go.
    fn nothing_is_left(&self) -> Result<()> {
        let mut left = Vec::new();
        let gone = wait_for("the agent ends with its last pod", PATIENCE, || {
            left = self.left()?;
            Ok(left.is_empty())
        });
        gone.with_context(|| format!("{left:?}"))
    }

    fn left(&self) -> Result<Vec<String>> {
        let home = format!("{}/", self.folder.display());
        let processes = self.processes("")?.into_iter().map(|number| format!("process {number}"));
        let mounts = fs::read_to_string("/proc/self/mountinfo")?;
        let mounts = mounts.lines().filter(|line| line.contains(&home)).map(str::to_owned);
        let mut left: Vec<String> = processes.chain(mounts).collect();
        for folder in ["root/agent/pods", "root/agent/keelson/background", "state/pods"] {
            let Ok(entries) = fs::read_dir(self.folder.join(folder)) else { continue };
            left.extend(entries.flatten().map(|entry| entry.path().display().to_string()));
        }
        Ok(left)
    }
}

fn good(answer: Output, what: &[&str]) -> Result<String> {
    let errors = String::from_utf8_lossy(&answer.stderr);
    ensure!(answer.status.success(), "{what:?}: {} {errors}", answer.status);
    Ok(String::from_utf8(answer.stdout)?)
}

fn manifest(name: &str, script: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  \
         terminationGracePeriodSeconds: 2\n  containers:\n  - name: main\n    image: {}\n    \
         imagePullPolicy: Never\n    command: [sh, -c, {script:?}]\n",
        images::BUSYBOX
    )
}

/// A pseudo terminal: this end, and the one for a program.
fn terminal() -> Result<(File, OwnedFd)> {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    grantpt(&master)?;
    unlockpt(&master)?;
    let name = ptsname(&master, Vec::new())?;
    let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY | rustix::fs::OFlags::CLOEXEC;
    let slave = rustix::fs::open(name, flags, rustix::fs::Mode::empty())?;
    Ok((File::from(master), slave))
}

/// A program on a terminal of 100 columns and 30 rows.
struct OnTerminal {
    master: File,
    child: Child,
    seen: String,
}

impl OnTerminal {
    fn start(mut command: Command) -> Result<Self> {
        let (master, slave) = terminal()?;
        resize(&master, 100, 30)?;
        command.stdin(slave.try_clone()?).stdout(slave.try_clone()?).stderr(slave);
        let child = command.spawn()?;
        drop(command);
        Ok(Self { master, child, seen: String::new() })
    }

    fn type_in(&mut self, text: &str) -> Result<()> {
        Ok(self.master.write_all(text.as_bytes())?)
    }

    /// Reads until the words were seen.
    fn until(&mut self, words: &str) -> Result<()> {
        let begun = Instant::now();
        let mut part = [0; 4096];
        while !self.seen.contains(words) {
            ensure!(begun.elapsed() < PATIENCE, "no {words:?} in {:?}", self.seen);
            let timeout = rustix::event::Timespec { tv_sec: 1, tv_nsec: 0 };
            let mut ready =
                [rustix::event::PollFd::new(&self.master, rustix::event::PollFlags::IN)];
            if rustix::event::poll(&mut ready, Some(&timeout))? == 0 {
                continue;
            }
            match self.master.read(&mut part) {
                Ok(0) | Err(_) => bail!("it ended; no {words:?} in {:?}", self.seen),
                Ok(read) => self.seen.push_str(&String::from_utf8_lossy(&part[..read])),
            }
        }
        Ok(())
    }

    fn end(mut self) -> Result<(Option<i32>, String)> {
        let mut part = [0; 4096];
        while let Ok(read @ 1..) = self.master.read(&mut part) {
            self.seen.push_str(&String::from_utf8_lossy(&part[..read]));
        }
        Ok((self.child.wait()?.code(), self.seen))
    }
}

fn resize(master: &File, columns: u16, rows: u16) -> Result<()> {
    let size =
        rustix::termios::Winsize { ws_col: columns, ws_row: rows, ws_xpixel: 0, ws_ypixel: 0 };
    Ok(rustix::termios::tcsetwinsize(master, size)?)
}

/// An image without a shell, tar or anything but one program.
fn bare_image() -> Result<Image> {
    let busybox = images::busybox()?;
    let program = busybox.files().values().find_map(|file| match &file.content {
        Content::HostFile(path) => Some(path.clone()),
        _ => None,
    });
    Ok(Image::new("localhost/bare:1")
        .with_host_file("busybox", 0o755, &program.context("busybox in its image")?)
        .configured(|config| config.entrypoint = vec!["/busybox".to_owned()]))
}

fn archives() -> Result<Vec<String>> {
    [images::busybox()?, bare_image()?]
        .iter()
        .map(|image| Ok(image.oci_archive()?.display().to_string()))
        .collect()
}

#[test]
fn verbs_work_on_pods_in_the_background() -> Result<()> {
    let keelson = programs::build("keelson", "keelson")?;
    let archives = archives()?;
    Test::new().deadline(Duration::from_secs(240)).run(move |bed| {
        let home = Home { keelson: keelson.clone(), folder: bed.make_folder("home")? };
        let script = format!("echo up; {STEADY}");
        let web = home.write("web.yaml", &manifest("web", &script))?;
        let settings = home.write("runtime.json", SETTINGS)?;
        let mut detach = vec!["--detach", "--import", &archives[0], "--import", &archives[1]];
        detach.extend(["--runtime-config", &settings, &web]);
        let said = good(home.run(&detach).output()?, &detach)?;
        ensure!(said.contains("default/web runs in the background"), "{said}");
        home.until_runs("web")?;
        ensure!(home.agents()?.len() == 1, "{:?}", home.agents()?);
        has_address_of_the_settings(&home, "web")?;

        exec(&home)?;
        exec_on_a_terminal(&home)?;
        large_streams(&home)?;
        copy(&home)?;
        ports(&home)?;
        usage_and_images(&home)?;
        attach(&home)?;
        more_pods(&home, &web)?;

        ensure!(home.ask(&["stop", "web"])?.contains("has ended"), "stop");
        home.nothing_is_left()
    })
}

fn has_address_of_the_settings(home: &Home, pod: &str) -> Result<()> {
    let said = home.ask(&["exec", pod, "--", "ip", "-4", "-o", "addr", "show", "eth0"])?;
    ensure!(said.contains("inet 10.77.0."), "{said}");
    Ok(())
}

fn exec(home: &Home) -> Result<()> {
    let script = "echo o; echo e >&2; exit 7";
    let answer = home.verb(&["exec", "web", "--", "sh", "-c", script]).output()?;
    ensure!(answer.status.code() == Some(7), "{answer:?}");
    ensure!((answer.stdout.as_slice(), answer.stderr.as_slice()) == (b"o\n", b"e\n"), "{answer:?}");
    let missing = home.verb(&["exec", "web", "--", "/nothing"]).output()?;
    ensure!(missing.status.code() == Some(126), "{missing:?}");
    let none = home.refused(&["exec", "web", "-c", "other", "--", "true"])?;
    ensure!(none.contains("has no container other; it has main"), "{none}");
    let nobody = home.refused(&["exec", "nobody", "--", "true"])?;
    ensure!(nobody.contains("no pod named nobody here; there are default/web"), "{nobody}");
    Ok(())
}

fn exec_on_a_terminal(home: &Home) -> Result<()> {
    let mut shell = OnTerminal::start(home.verb(&["exec", "-it", "web", "--", "sh"]))?;
    shell.until("# ")?;
    shell.type_in("tty; stty size\n")?;
    shell.until("30 100")?;
    ensure!(shell.seen.contains("/dev/pts/"), "{}", shell.seen);
    resize(&shell.master, 90, 20)?;
    let number = i32::try_from(shell.child.id()).ok().and_then(Pid::from_raw);
    // The program has no controlling terminal here: the kernel tells nobody of the new size.
    kill_process(number.context("its number")?, Signal::WINCH)?;
    // Whoever types before the size has arrived sees the old one.
    shell.type_in("until [ \"$(stty size)\" = '20 90' ]; do :; done; echo si''zed\n")?;
    shell.until("sized")?;
    shell.type_in("exit 9\n")?;
    let (code, seen) = shell.end()?;
    ensure!(code == Some(9), "{code:?} {seen}");
    Ok(())
}

/// 64 MiB through `cat`: what goes in comes out, and the end of the input is the end of it.
fn large_streams(home: &Home) -> Result<()> {
    const PART: usize = 1 << 20;
    const PARTS: usize = 64;
    let mut cat = home
        .verb(&["exec", "-i", "web", "--", "cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut input = cat.stdin.take().context("its input")?;
    let part = |number: usize| -> Vec<u8> {
        (0..PART).map(|at| ((at * 31 + number * 7) % 251) as u8).collect()
    };
    let writing = std::thread::spawn(move || -> Result<()> {
        for number in 0..PARTS {
            input.write_all(&part(number))?;
        }
        Ok(())
    });
    let mut output = cat.stdout.take().context("its output")?;
    let mut found = vec![0; PART];
    for number in 0..PARTS {
        output.read_exact(&mut found).with_context(|| format!("part {number}"))?;
        ensure!(found == part(number), "part {number} is another");
    }
    ensure!(output.read(&mut found)? == 0, "more came out than went in");
    writing.join().map_err(|_| anyhow::anyhow!("writing panicked"))??;
    ensure!(cat.wait()?.success(), "cat failed");
    Ok(())
}

fn copy(home: &Home) -> Result<()> {
    let site = home.folder.join("site");
    fs::create_dir_all(site.join("deep"))?;
    fs::write(site.join("deep/page"), "page")?;
    let site = site.display().to_string();
    home.ask(&["cp", &site, "web:/srv"])?;
    let found = home.ask(&["exec", "web", "--", "cat", "/srv/deep/page"])?;
    ensure!(found == "page", "{found}");
    let back = home.folder.join("back");
    home.ask(&["cp", "web:/srv", &back.display().to_string()])?;
    ensure!(fs::read_to_string(back.join("deep/page"))? == "page", "not the same");
    // A symlink that would lead out of the container means something inside.
    let outside = home.folder.join("outside");
    fs::write(&outside, "outside")?;
    let leads = format!("ln -s {} /leads-out; ln -s /etc/hostname /leads-in", outside.display());
    home.ask(&["exec", "web", "--", "sh", "-c", &leads])?;
    let copied = home.folder.join("copied").display().to_string();
    let refused = home.refused(&["cp", "web:/leads-out", &copied])?;
    ensure!(refused.contains("not in the container"), "{refused}");
    home.refused(&["cp", &format!("{site}/deep/page"), "web:/leads-out"])?;
    ensure!(fs::read_to_string(&outside)? == "outside", "written through a symlink");
    home.ask(&["cp", "web:/leads-in", &copied])?;
    let own = home.ask(&["exec", "web", "--", "hostname"])?;
    ensure!(fs::read_to_string(&copied)? == own, "not the container's");
    Ok(())
}

/// A running program, ended when the test is done with it.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn ports(home: &Home) -> Result<()> {
    let httpd = "mkdir /w; echo hi > /w/index.html; httpd -p 8000 -h /w";
    home.ask(&["exec", "web", "--", "sh", "-c", httpd])?;
    let mut command = home.verb(&["port-forward", "--address", "127.0.0.1", "web", ":8000", ":1"]);
    let mut forward = Running(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?);
    let output = forward.0.stdout.take().context("its output")?;
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(output));
    let mut port = || -> Result<u16> {
        let line = lines.next().context("a line")??;
        let port = line.split("127.0.0.1:").nth(1).and_then(|rest| rest.split(' ').next());
        port.and_then(|port| port.parse().ok()).with_context(|| format!("a port in {line}"))
    };
    let (open, closed) = (port()?, port()?);
    for _ in 0..3 {
        let answer = node_testkit::start::get(([127, 0, 0, 1], open).into(), "/")?;
        ensure!(answer.body == "hi\n", "{}", answer.body);
    }
    // Nobody listens there: the connection ends, and the others go on.
    let mut socket = TcpStream::connect(("127.0.0.1", closed))?;
    socket.set_read_timeout(Some(PATIENCE))?;
    ensure!(matches!(socket.read(&mut [0; 8]), Ok(0) | Err(_)), "something answered");
    let answer = node_testkit::start::get(([127, 0, 0, 1], open).into(), "/")?;
    ensure!(answer.body == "hi\n", "{}", answer.body);
    Ok(())
}

fn usage_and_images(home: &Home) -> Result<()> {
    let table = home.ask(&["top"])?;
    let line = table.lines().find(|line| line.contains("web")).context("web in top")?;
    let words: Vec<&str> = line.split_whitespace().collect();
    ensure!(words.get(2) == Some(&"main"), "{table}");
    ensure!(words.get(3).is_some_and(|cpu| cpu.ends_with('m')), "{table}");
    ensure!(words.get(4).is_some_and(|memory| memory.ends_with('B')), "{table}");
    let listed = home.ask(&["images"])?;
    ensure!(listed.contains(images::BUSYBOX) && listed.contains("localhost/bare:1"), "{listed}");
    let missing = home.refused(&["images", "rm", "localhost/nothing:1"])?;
    ensure!(missing.contains("no image named localhost/nothing:1"), "{missing}");
    Ok(())
}

fn attach(home: &Home) -> Result<()> {
    let name = "ask";
    let text = format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  restartPolicy: Never\n  \
         containers:\n  - name: main\n    image: {}\n    imagePullPolicy: Never\n    stdin: true\n    \
         stdinOnce: true\n    command: [cat]\n",
        images::BUSYBOX
    );
    let file = home.write("ask.yaml", &text)?;
    good(home.run(&["--detach", &file]).output()?, &["run"])?;
    home.until_runs(name)?;
    let refused = home.refused(&["attach", "-i", "web"])?;
    ensure!(refused.contains("has no standard input"), "{refused}");
    let mut attached =
        home.verb(&["attach", "-i", name]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut input = attached.stdin.take().context("its input")?;
    input.write_all(b"hello\n")?;
    let mut output = attached.stdout.take().context("its output")?;
    let mut line = [0; 6];
    output.read_exact(&mut line)?;
    ensure!(&line == b"hello\n", "{line:?}");
    // The end of the input is the container's, and so its own end.
    drop(input);
    ensure!(attached.wait()?.success(), "attach failed");
    wait_for("it has succeeded", PATIENCE, || Ok(home.ask(&["ps"])?.contains("Succeeded")))?;
    ensure!(home.ask(&["logs", name])? == "hello\n", "its log");
    home.ask(&["stop", name])?;
    Ok(())
}

/// A second hand-over, the same again, a foreground run beside it, a killed agent.
fn more_pods(home: &Home, web: &str) -> Result<()> {
    let settings = home.folder.join("runtime.json").display().to_string();
    let again = home.run(&["--runtime-config", &settings, "--detach", web]).output()?;
    let words = String::from_utf8_lossy(&again.stderr).into_owned();
    ensure!(words.contains("is not in force: the background agent ran already"), "{words}");
    let said = good(again, &["run"])?;
    ensure!(said.contains("default/web is wanted like this already"), "{said}");
    let beside = home.run(&[web]).output()?;
    let words = String::from_utf8(beside.stderr)?;
    ensure!(!beside.status.success() && words.contains("runs the pods of"), "{words}");
    let [agent] = home.agents()?[..] else { bail!("{:?} agents", home.agents()?) };
    let before = home.ask(&["exec", "web", "--", "cat", "/proc/1/stat"])?;
    kill_process(Pid::from_raw(agent).context("its number")?, Signal::KILL)?;
    // A killed process lets go of its sockets and locks one after another.
    wait_for("the agent is gone", PATIENCE, || {
        Ok(home.agents()?.is_empty() && home.refused(&["ps"])?.contains("no agent answers"))
    })?;
    let alone = home.run(&[web]).output()?;
    let words = String::from_utf8(alone.stderr)?;
    ensure!(words.contains("ended without its pods (default/web)"), "{words}");
    good(home.run(&["--detach"]).output()?, &["run", "--detach"])?;
    home.until_runs("web")?;
    let after = home.ask(&["exec", "web", "--", "cat", "/proc/1/stat"])?;
    let start = |stat: &str| stat.split_whitespace().nth(21).map(str::to_owned);
    ensure!(start(&before) == start(&after), "the container was started anew");
    // The agent that took them up was not told of the settings; it has kept them.
    let next = home.write("next.yaml", &manifest("next", STEADY))?;
    good(home.run(&["--detach", &next]).output()?, &["run"])?;
    home.until_runs("next")?;
    has_address_of_the_settings(home, "next")?;
    home.ask(&["stop", "next"])?;
    Ok(())
}

#[test]
fn an_image_runs_without_a_manifest() -> Result<()> {
    let keelson = programs::build("keelson", "keelson")?;
    let archives = archives()?;
    Test::new().deadline(Duration::from_secs(180)).run(move |bed| {
        let home = Home { keelson: keelson.clone(), folder: bed.make_folder("home")? };
        let import = ["--import", &archives[0], "--import", &archives[1]];
        let with = |more: &[&str]| home.run(&[&import[..], more].concat());
        let script = "echo \"$WORD\"; exit 5";
        let mut command =
            with(&["--image", images::BUSYBOX, "-e", "WORD=said", "--", "sh", "-c", script]);
        let ended = command.output()?;
        ensure!(ended.status.code() == Some(5), "{ended:?}");
        ensure!(ended.stdout == b"said\n", "{ended:?}");

        let mut cat = with(&["--image", images::BUSYBOX, "-i", "--", "cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        cat.stdin.take().context("its input")?.write_all(b"one\ntwo\n")?;
        let ended = cat.wait_with_output()?;
        ensure!(ended.status.success() && ended.stdout == b"one\ntwo\n", "{ended:?}");

        let shell = with(&["--image", images::BUSYBOX, "-it", "--name", "shell", "--", "sh"]);
        let mut shell = OnTerminal::start(shell)?;
        // Its first prompt may have come before anybody looked.
        wait_for("the shell runs", PATIENCE, || {
            Ok(home.ask(&["ps"]).is_ok_and(|table| table.contains("Running")))
        })?;
        shell.type_in("\n")?;
        shell.until("# ")?;
        shell.type_in("stty size; exit 6\n")?;
        let (code, seen) = shell.end()?;
        ensure!(code == Some(6) && seen.contains("30 100"), "{code:?} {seen}");

        // Nothing in the image but one program: files come and go all the same.
        let mut sleeping =
            with(&["--detach", "--image", "localhost/bare:1", "--", "sleep", "1000"]);
        good(sleeping.output()?, &["run", "--detach"])?;
        home.until_runs("bare")?;
        let note = home.write("note", "note")?;
        home.ask(&["cp", &note, "bare:/note"])?;
        let back = home.folder.join("note-back");
        home.ask(&["cp", "bare:/note", &back.display().to_string()])?;
        ensure!(fs::read_to_string(&back)? == "note", "another note");
        home.ask(&["stop", "bare"])?;
        home.nothing_is_left()?;
        ensure!(Path::new(&home.folder.join("root/agent.log")).exists(), "no log of the agent");
        Ok(())
    })
}
