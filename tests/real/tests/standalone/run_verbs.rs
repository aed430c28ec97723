//! The verbs for people on pods of `keelson run --detach`: no containerd, no runc, no network.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use node_testkit::bed::Test;
use node_testkit::images::{self, Content, Image};
use node_testkit::programs;
use rustix::process::{Pid, Signal, kill_process};

use crate::node::{STEADY, wait_for};
use crate::open_streams;
use crate::reach::{self, Verbs, good};
use crate::terminal::OnTerminal;

const PATIENCE: Duration = Duration::from_secs(60);

/// Embedded runtime settings with a network other than the default.
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

    fn verbs(&self) -> Verbs {
        Verbs {
            program: self.keelson.clone(),
            socket: Some(self.state().join("agent.sock")),
            folder: self.folder.clone(),
        }
    }

    fn ask(&self, arguments: &[&str]) -> Result<String> {
        self.verbs().ask(arguments)
    }

    fn refused(&self, arguments: &[&str]) -> Result<String> {
        self.verbs().refused(arguments)
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

    /// The PIDs of the background agents of this root.
    fn agents(&self) -> Result<Vec<i32>> {
        self.processes("run-agent")
    }

    /// The PID of the only one.
    fn agent(&self) -> Result<u32> {
        match self.agents()?[..] {
            [agent] => Ok(u32::try_from(agent)?),
            ref others => bail!("{others:?} agents"),
        }
    }

    /// Processes whose command line contains this word and this root.
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

    /// The agent and everything of its pods are gone. A supervisor may exit last.
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

fn manifest(name: &str, script: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  \
         terminationGracePeriodSeconds: 2\n  containers:\n  - name: main\n    image: {}\n    \
         imagePullPolicy: Never\n    command: [sh, -c, {script:?}]\n",
        images::BUSYBOX
    )
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

        let verbs = home.verbs();
        open_streams::are_not_tcp(&verbs, "web", home.agent()?).context("open streams")?;
        open_streams::end_with_who_asked(&verbs, "web").context("whoever leaves")?;
        reach::commands(&verbs, "web")?;
        reach::command_on_a_terminal(&verbs, "web")?;
        reach::large_streams(&verbs, "web", 64)?;
        reach::copies(&verbs, "web")?;
        reach::ports(&verbs, "web", 64)?;
        usage_and_images(&home)?;
        attach(&home)?;
        // However many streams there were: none of them left a port behind.
        open_streams::has_no_tcp(home.agent()?).context("after all streams")?;
        open_streams::have_addresses_too(&home.state().join("agent.sock"), home.agent()?)?;
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
         terminationGracePeriodSeconds: 1\n  \
         containers:\n  - name: main\n    image: {}\n    imagePullPolicy: Never\n    stdin: true\n    \
         stdinOnce: true\n    command: [sh, -c, \"{}\"]\n",
        images::BUSYBOX,
        reach::ECHO
    );
    let file = home.write("ask.yaml", &text)?;
    good(home.run(&["--detach", &file]).output()?, &["run"])?;
    home.until_runs(name)?;
    let refused = home.refused(&["attach", "-i", "web"])?;
    ensure!(refused.contains("has no standard input"), "{refused}");
    reach::attach_to_the_end(&home.verbs(), name)?;
    wait_for("it has succeeded", PATIENCE, || Ok(home.ask(&["ps"])?.contains("Succeeded")))?;
    ensure!(home.ask(&["logs", name])? == "hello\nover\n", "its log");
    let again = good(home.run(&["--detach", &file]).output()?, &["run"])?;
    ensure!(again.contains("default/ask runs in the background"), "{again}");
    home.until_runs(name)?;
    home.ask(&["stop", name])?;
    Ok(())
}

/// A second run handed to the agent, the same again, a foreground run beside it, a killed agent.
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
    // A killed process releases its sockets and locks one after another.
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
    // The agent that adopted them did not get the settings; it has recovered them.
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
        // Its first prompt may have appeared before the test read it.
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
