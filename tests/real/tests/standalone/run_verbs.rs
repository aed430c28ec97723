//! The user-facing verbs (`ps`, `exec`, `attach`, `cp`, …) on pods of `keelson run --detach`:
//! without containerd, runc and an external network.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use node_testkit::bed::BedTest;
use node_testkit::images::{self, FileContent, TestImage};
use node_testkit::programs;
use rustix::process::{Pid, Signal, kill_process};

use crate::exec_and_attach::{self, Verbs, good};
use crate::node::{STEADY, wait_for};
use crate::open_streams;
use crate::terminal::OnTerminal;

const WAIT_LIMIT: Duration = Duration::from_secs(60);

/// Embedded runtime settings with a network other than the default.
const SETTINGS: &str =
    r#"{"version": 1, "network": {"bridge": "verbs0", "subnets": ["10.77.0.0/24"]}}"#;

/// One root of `keelson run --detach`: `run` starts pods in it, the other verbs reach its agent.
struct DetachedRoot {
    keelson: PathBuf,
    dir: PathBuf,
}

impl DetachedRoot {
    fn state(&self) -> PathBuf {
        self.dir.join("state")
    }

    fn run(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.keelson);
        command.arg("run").arg("--root").arg(self.dir.join("root"));
        command.arg("--state").arg(self.state()).args(arguments).stdin(Stdio::null());
        command
    }

    fn verbs(&self) -> Verbs {
        Verbs {
            program: self.keelson.clone(),
            socket: Some(self.state().join("agent.sock")),
            dir: self.dir.clone(),
        }
    }

    fn ask(&self, arguments: &[&str]) -> Result<String> {
        self.verbs().ask(arguments)
    }

    fn refused(&self, arguments: &[&str]) -> Result<String> {
        self.verbs().refused(arguments)
    }

    fn write(&self, name: &str, text: &str) -> Result<String> {
        let path = self.dir.join(name);
        fs::write(&path, text)?;
        Ok(path.display().to_string())
    }

    fn wait_until_running(&self, name: &str) -> Result<()> {
        wait_for(&format!("{name} runs"), WAIT_LIMIT, || {
            Ok(self.ask(&["ps"]).is_ok_and(|table| {
                table.lines().any(|line| line.contains(name) && line.contains("1/1     Running"))
            }))
        })
    }

    /// The PIDs of the background agents of this root.
    fn agents(&self) -> Result<Vec<i32>> {
        self.processes("run-agent")
    }

    /// The PID of the only background agent.
    fn agent(&self) -> Result<u32> {
        match self.agents()?[..] {
            [agent] => Ok(u32::try_from(agent)?),
            ref others => bail!("{others:?} agents"),
        }
    }

    /// Processes whose command line contains this word and this root.
    fn processes(&self, word: &str) -> Result<Vec<i32>> {
        let dir = self.dir.display().to_string();
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc")? {
            let name = entry?.file_name();
            let Some(number) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
            let line = fs::read(format!("/proc/{number}/cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).into_owned();
            if line.contains(word) && line.contains(&dir) {
                found.push(number);
            }
        }
        Ok(found)
    }

    /// Waits until the agent has exited and nothing of its pods is left. A
    /// supervisor may exit last.
    fn wait_until_nothing_is_left(&self) -> Result<()> {
        let mut left = Vec::new();
        let gone = wait_for("the agent ends with its last pod", WAIT_LIMIT, || {
            left = self.leftovers()?;
            Ok(left.is_empty())
        });
        gone.with_context(|| format!("{left:?}"))
    }

    /// Processes, mounts and directories of this root that still exist.
    fn leftovers(&self) -> Result<Vec<String>> {
        let dir_prefix = format!("{}/", self.dir.display());
        let processes = self.processes("")?.into_iter().map(|number| format!("process {number}"));
        let mounts = fs::read_to_string("/proc/self/mountinfo")?;
        let mounts = mounts.lines().filter(|line| line.contains(&dir_prefix)).map(str::to_owned);
        let mut left: Vec<String> = processes.chain(mounts).collect();
        for dir in ["root/agent/pods", "root/agent/keelson/background", "state/pods"] {
            let Ok(entries) = fs::read_dir(self.dir.join(dir)) else { continue };
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
fn bare_image() -> Result<TestImage> {
    let busybox = images::busybox()?;
    let program = busybox.files().values().find_map(|file| match &file.content {
        FileContent::HostFile(path) => Some(path.clone()),
        _ => None,
    });
    Ok(TestImage::new("localhost/bare:1")
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
    BedTest::new().deadline(Duration::from_secs(240)).run(move |bed| {
        let root = DetachedRoot { keelson: keelson.clone(), dir: bed.create_dir("home")? };
        let script = format!("echo up; {STEADY}");
        let web = root.write("web.yaml", &manifest("web", &script))?;
        let settings = root.write("runtime.json", SETTINGS)?;
        let mut detach = vec!["--detach", "--import", &archives[0], "--import", &archives[1]];
        detach.extend(["--runtime-config", &settings, &web]);
        let printed = good(root.run(&detach).output()?, &detach)?;
        ensure!(printed.contains("default/web runs in the background"), "{printed}");
        root.wait_until_running("web")?;
        ensure!(root.agents()?.len() == 1, "{:?}", root.agents()?);
        has_address_of_the_settings(&root, "web")?;

        let verbs = root.verbs();
        open_streams::are_not_tcp(&verbs, "web", root.agent()?).context("open streams")?;
        open_streams::end_with_their_client(&verbs, "web")
            .context("streams of clients that disconnect")?;
        exec_and_attach::commands(&verbs, "web")?;
        exec_and_attach::command_on_a_terminal(&verbs, "web")?;
        exec_and_attach::large_streams(&verbs, "web", 64)?;
        exec_and_attach::copies(&verbs, "web")?;
        exec_and_attach::ports(&verbs, "web", 64)?;
        usage_and_images(&root)?;
        attach(&root)?;
        // After all these streams no port is left open.
        open_streams::has_no_tcp(root.agent()?).context("after all streams")?;
        open_streams::have_addresses_too(&root.state().join("agent.sock"), root.agent()?)?;
        more_pods(&root, &web)?;

        ensure!(root.ask(&["stop", "web"])?.contains("has ended"), "stop");
        root.wait_until_nothing_is_left()
    })
}

fn has_address_of_the_settings(root: &DetachedRoot, pod: &str) -> Result<()> {
    let printed = root.ask(&["exec", pod, "--", "ip", "-4", "-o", "addr", "show", "eth0"])?;
    ensure!(printed.contains("inet 10.77.0."), "{printed}");
    Ok(())
}

fn usage_and_images(root: &DetachedRoot) -> Result<()> {
    let table = root.ask(&["top"])?;
    let line = table.lines().find(|line| line.contains("web")).context("web in top")?;
    let columns: Vec<&str> = line.split_whitespace().collect();
    ensure!(columns.get(2) == Some(&"main"), "{table}");
    ensure!(columns.get(3).is_some_and(|cpu| cpu.ends_with('m')), "{table}");
    ensure!(columns.get(4).is_some_and(|memory| memory.ends_with('B')), "{table}");
    let listed = root.ask(&["images"])?;
    ensure!(listed.contains(images::BUSYBOX) && listed.contains("localhost/bare:1"), "{listed}");
    let missing = root.refused(&["images", "rm", "localhost/nothing:1"])?;
    ensure!(missing.contains("no image named localhost/nothing:1"), "{missing}");
    Ok(())
}

fn attach(root: &DetachedRoot) -> Result<()> {
    let name = "ask";
    let text = format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  restartPolicy: Never\n  \
         terminationGracePeriodSeconds: 1\n  \
         containers:\n  - name: main\n    image: {}\n    imagePullPolicy: Never\n    stdin: true\n    \
         stdinOnce: true\n    command: [sh, -c, \"{}\"]\n",
        images::BUSYBOX,
        exec_and_attach::ECHO
    );
    let file = root.write("ask.yaml", &text)?;
    good(root.run(&["--detach", &file]).output()?, &["run"])?;
    root.wait_until_running(name)?;
    let refused = root.refused(&["attach", "-i", "web"])?;
    ensure!(refused.contains("has no standard input"), "{refused}");
    exec_and_attach::attach_to_the_end(&root.verbs(), name)?;
    wait_for("it has succeeded", WAIT_LIMIT, || Ok(root.ask(&["ps"])?.contains("Succeeded")))?;
    ensure!(root.ask(&["logs", name])? == "hello\nover\n", "the container's log");
    let again = good(root.run(&["--detach", &file]).output()?, &["run"])?;
    ensure!(again.contains("default/ask runs in the background"), "{again}");
    root.wait_until_running(name)?;
    root.ask(&["stop", name])?;
    Ok(())
}

/// The same pods again, a foreground run beside the agent, a killed agent, and another pod for the
/// agent after it.
fn more_pods(root: &DetachedRoot, web: &str) -> Result<()> {
    let settings = root.dir.join("runtime.json").display().to_string();
    let again = root.run(&["--runtime-config", &settings, "--detach", web]).output()?;
    let stderr = String::from_utf8_lossy(&again.stderr).into_owned();
    ensure!(stderr.contains("has no effect: the background agent is running already"), "{stderr}");
    let printed = good(again, &["run"])?;
    ensure!(printed.contains("default/web is unchanged"), "{printed}");
    let beside = root.run(&[web]).output()?;
    let stderr = String::from_utf8(beside.stderr)?;
    ensure!(!beside.status.success() && stderr.contains("runs the pods of"), "{stderr}");
    let [agent] = root.agents()?[..] else { bail!("{:?} agents", root.agents()?) };
    let before = root.ask(&["exec", "web", "--", "cat", "/proc/1/stat"])?;
    kill_process(Pid::from_raw(agent).context("the agent's PID")?, Signal::KILL)?;
    // A killed process releases its sockets and locks one after another.
    wait_for("the agent is gone", WAIT_LIMIT, || {
        Ok(root.agents()?.is_empty() && root.refused(&["ps"])?.contains("no agent answers"))
    })?;
    let alone = root.run(&[web]).output()?;
    let stderr = String::from_utf8(alone.stderr)?;
    ensure!(stderr.contains("ended without its pods (default/web)"), "{stderr}");
    good(root.run(&["--detach"]).output()?, &["run", "--detach"])?;
    root.wait_until_running("web")?;
    let after = root.ask(&["exec", "web", "--", "cat", "/proc/1/stat"])?;
    let start = |stat: &str| stat.split_whitespace().nth(21).map(str::to_owned);
    ensure!(start(&before) == start(&after), "the container was restarted");
    // The agent that adopted the pods was started without the settings; it has loaded the
    // stored ones.
    let next = root.write("next.yaml", &manifest("next", STEADY))?;
    good(root.run(&["--detach", &next]).output()?, &["run"])?;
    root.wait_until_running("next")?;
    has_address_of_the_settings(root, "next")?;
    root.ask(&["stop", "next"])?;
    Ok(())
}

#[test]
fn an_image_runs_without_a_manifest() -> Result<()> {
    let keelson = programs::build("keelson", "keelson")?;
    let archives = archives()?;
    BedTest::new().deadline(Duration::from_secs(180)).run(move |bed| {
        let root = DetachedRoot { keelson: keelson.clone(), dir: bed.create_dir("home")? };
        let import = ["--import", &archives[0], "--import", &archives[1]];
        let with = |more: &[&str]| root.run(&[&import[..], more].concat());
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
        wait_for("the shell runs", WAIT_LIMIT, || {
            Ok(root.ask(&["ps"]).is_ok_and(|table| table.contains("Running")))
        })?;
        shell.type_in("\n")?;
        shell.until("# ")?;
        shell.type_in("stty size; exit 6\n")?;
        let (code, seen) = shell.end()?;
        ensure!(code == Some(6) && seen.contains("30 100"), "{code:?} {seen}");

        // `cp` works although the image has neither a shell nor tar.
        let mut sleeping =
            with(&["--detach", "--image", "localhost/bare:1", "--", "sleep", "1000"]);
        good(sleeping.output()?, &["run", "--detach"])?;
        root.wait_until_running("bare")?;
        let note = root.write("note", "note")?;
        root.ask(&["cp", &note, "bare:/note"])?;
        let back = root.dir.join("note-back");
        root.ask(&["cp", "bare:/note", &back.display().to_string()])?;
        ensure!(fs::read_to_string(&back)? == "note", "the copy differs");
        root.ask(&["stop", "bare"])?;
        root.wait_until_nothing_is_left()?;
        ensure!(Path::new(&root.dir.join("root/agent.log")).exists(), "no log of the agent");
        Ok(())
    })
}
