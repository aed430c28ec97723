//! `keelson run`: pods by the embedded runtime alone, in a bed without containerd or runc.

use std::fs;
use std::io::{BufRead as _, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use node_testkit::bed::BedTest;
use node_testkit::{images, programs};
use rustix::process::{Pid, Signal, kill_process};

use crate::node::{STEADY, wait_for};

fn manifest(name: &str, rest: &str, script: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  {rest}\n  \
         terminationGracePeriodSeconds: 6\n  containers:\n  - name: main\n    image: {}\n    \
         imagePullPolicy: Never\n    command: [sh, -c, {script:?}]\n    \
         ports: [{{containerPort: 80, hostPort: 8080}}]\n",
        images::BUSYBOX
    )
}

fn run(keelson: &Path, dir: &Path, archive: &Path) -> Command {
    let mut command = Command::new(keelson);
    command
        .arg("run")
        .arg("--root")
        .arg(dir.join("root"))
        .arg("--state")
        .arg(dir.join("state"))
        .arg("--import")
        .arg(archive)
        .stdin(Stdio::null());
    command
}

#[test]
fn pods_run_with_nothing_else_installed() -> Result<()> {
    let keelson = programs::build("keelson", "keelson")?;
    let archive = images::busybox()?.oci_archive()?;
    BedTest::new().deadline(Duration::from_secs(120)).run(move |bed| {
        bed.mount_odd_names()?;
        let dir = bed.create_dir("run")?;
        let job = dir.join("job.yaml");
        fs::write(&job, manifest("job", "restartPolicy: Never", "echo out; echo err >&2; exit 3"))?;
        let ended = run(&keelson, &dir, &archive).arg(&job).output()?;
        let (out, words) = (String::from_utf8(ended.stdout)?, String::from_utf8(ended.stderr)?);
        ensure!(ended.status.code() == Some(3), "{} {out} {words}", ended.status);
        ensure!(out.ends_with("/main | out\n"), "{out}");
        ensure!(words.contains("/main | err\n"), "{words}");

        let web = dir.join("web.yaml");
        let script =
            format!("mkdir /w; echo hi > /w/index.html; httpd -p 80 -h /w; echo up; {STEADY}");
        fs::write(&web, manifest("web", "restartPolicy: Always", &script))?;
        let log = fs::File::create(bed.logs().join("run.log"))?;
        let mut running =
            run(&keelson, &dir, &archive).arg(&web).stdout(Stdio::piped()).stderr(log).spawn()?;
        let socket = dir.join("state/agent.sock");
        let ask = |verb: &[&str]| -> Result<String> {
            let asked = Command::new(&keelson).args(verb).arg("--socket").arg(&socket).output()?;
            ensure!(asked.status.success(), "{}", String::from_utf8_lossy(&asked.stderr));
            Ok(String::from_utf8(asked.stdout)?)
        };
        wait_for("the pod runs", Duration::from_secs(60), || {
            Ok(ask(&["ps"]).is_ok_and(|table| table.contains("1/1     Running")))
        })?;
        wait_for("the port answers", Duration::from_secs(30), || {
            let address = ([127, 0, 0, 1], 8080).into();
            Ok(node_testkit::start::get(address, "/").is_ok_and(|answer| answer.body == "hi\n"))
        })?;
        wait_for("its log", Duration::from_secs(30), || Ok(ask(&["logs", "web"])? == "up\n"))?;
        ensure!(ask(&["explain", "web"])?.contains("is where it should be"), "explain");
        let process = i32::try_from(running.id()).ok().and_then(Pid::from_raw);
        kill_process(process.context("its number")?, Signal::INT)?;
        let ended = running.wait()?;
        let mut out = String::new();
        running.stdout.take().context("its output")?.read_to_string(&mut out)?;
        ensure!(ended.code() == Some(0) && out.ends_with("/main | up\n"), "{ended} {out}");
        let left = fs::read_dir(dir.join("root/agent/pods"))?.count();
        ensure!(left == 0, "{left} pod folders are left");
        Ok(())
    })
}

#[test]
fn the_exit_code_reflects_how_stopped_pods_terminated() -> Result<()> {
    const EXITS_WITH_THREE: &str =
        "trap 'exit 3' TERM; echo up; while :; do sleep 1000 & wait; done";
    let keelson = programs::build("keelson", "keelson")?;
    let archive = images::busybox()?.oci_archive()?;
    BedTest::new().deadline(Duration::from_secs(180)).run(move |bed| {
        let dir = bed.create_dir("run")?;
        let pod = dir.join("pod.yaml");
        let ways = [Some(Signal::INT), Some(Signal::TERM), None];
        for (way, script, expected) in [
            (ways[0], EXITS_WITH_THREE, 3),
            (Some(Signal::HUP), EXITS_WITH_THREE, 3),
            (ways[1], DEAF, 137),
            (ways[2], EXITS_WITH_THREE, 3),
            (ways[2], &*STEADY.replacen("; ", "; echo up; ", 1), 0),
        ] {
            fs::write(&pod, manifest("stopped", "restartPolicy: Always", script))?;
            let run_command = run(&keelson, &dir, &archive);
            // The tests may run under `nohup`, and its ignored SIGHUP would be inherited.
            let mut running = Command::new("env")
                .arg("--default-signal=HUP")
                .arg(run_command.get_program())
                .args(run_command.get_args())
                .arg(&pod)
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(fs::File::create(bed.logs().join("run.log"))?)
                .spawn()?;
            let mut out = BufReader::new(running.stdout.take().context("its output")?);
            let mut line = String::new();
            out.read_line(&mut line)?;
            ensure!(line.ends_with("/main | up\n"), "{line}");
            match way {
                Some(signal) => {
                    let process = i32::try_from(running.id()).ok().and_then(Pid::from_raw);
                    kill_process(process.context("its number")?, signal)?;
                }
                None => {
                    let mut stop = Command::new(&keelson);
                    stop.args(["stop", "stopped", "--socket"]).arg(dir.join("state/agent.sock"));
                    ensure!(stop.status()?.success(), "stop");
                }
            }
            let ended = running.wait()?;
            ensure!(ended.code() == Some(expected), "{script:?} by {way:?}: {ended}");
        }
        Ok(())
    })
}

/// Ignores SIGTERM, in a pod with a long grace period.
const DEAF: &str = "trap '' TERM; echo up; while :; do sleep 1; done";

/// A `keelson run` in the foreground whose output is read as it arrives.
struct ForegroundRun {
    child: Child,
    words: BufReader<ChildStderr>,
}

impl ForegroundRun {
    fn start(mut command: Command) -> Result<Self> {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let words = BufReader::new(child.stderr.take().context("its messages")?);
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("its output")?).read_line(&mut line)?;
        ensure!(line.ends_with("/main | up\n"), "{line:?}");
        Ok(Self { child, words })
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        Ok(kill_process(Pid::from_child(&self.child), signal)?)
    }

    fn until(&mut self, word: &str) -> Result<String> {
        loop {
            let mut line = String::new();
            ensure!(self.words.read_line(&mut line)? > 0, "it ended without {word:?}");
            if line.contains(word) {
                return Ok(line);
            }
        }
    }
}

#[test]
fn a_second_interrupt_kills_pods_and_the_next_run_stops_those_left_by_a_third() -> Result<()> {
    let keelson = programs::build("keelson", "keelson")?;
    let archive = images::busybox()?.oci_archive()?;
    BedTest::new().deadline(Duration::from_secs(150)).run(move |bed| {
        let dir = bed.create_dir("run")?;
        let pod = dir.join("pod.yaml");
        let text = manifest("deaf", "restartPolicy: Always", DEAF);
        fs::write(&pod, text.replace("Seconds: 6", "Seconds: 600"))?;
        let foreground = || {
            let mut command = run(&keelson, &dir, &archive);
            command.arg(&pod);
            ForegroundRun::start(command)
        };
        let running = || -> Result<usize> {
            let trees = fs::read_dir("/proc")?.flatten();
            let lines = trees.map(|entry| fs::read(entry.path().join("cmdline")));
            let is_deaf = |line: &Vec<u8>| String::from_utf8_lossy(line).contains("trap '' TERM");
            Ok(lines.flatten().filter(is_deaf).count())
        };
        let mut first = foreground()?;
        first.signal(Signal::INT)?;
        let printed = first.until("Stopping")?;
        ensure!(
            printed == "Stopping 1 pod (up to 600 s). Ctrl-C again kills it now\n",
            "{printed}"
        );
        first.signal(Signal::INT)?;
        let began = Instant::now();
        let ended = first.child.wait()?;
        ensure!(ended.code() == Some(137), "{ended}");
        ensure!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
        ensure!(running()? == 0, "a container is left");
        let pods = fs::read_dir(dir.join("root/agent/pods"))?.count();
        ensure!(pods == 0, "{pods} pod folders are left");

        let mut second = foreground()?;
        for printed in ["Stopping", "Killing"] {
            second.signal(Signal::INT)?;
            second.until(printed)?;
        }
        second.signal(Signal::INT)?;
        let printed = second.until("left before")?;
        ensure!(second.child.wait()?.code() == Some(1) && printed.contains("ends what is left"));
        ends_what_is_left(&keelson, &dir, &running, true)?;

        fs::write(&pod, text.replace("Seconds: 6", "Seconds: 2"))?;
        let mut third = foreground()?;
        third.child.kill()?;
        third.child.wait()?;
        ensure!(running()? > 0, "the container goes on");
        ends_what_is_left(&keelson, &dir, &running, false)
    })
}

/// A background agent without its own pod reports what was left, lists it, and stops it.
fn ends_what_is_left(
    keelson: &Path,
    dir: &Path,
    running: &dyn Fn() -> Result<usize>,
    is_overdue: bool,
) -> Result<()> {
    let mut command = Command::new(keelson);
    command.args(["run", "--detach", "--root"]).arg(dir.join("root"));
    command.arg("--state").arg(dir.join("state")).stdin(Stdio::null());
    let begun = command.output()?;
    let words = String::from_utf8_lossy(&begun.stderr).into_owned();
    ensure!(begun.status.success() && words.contains("default/deaf was left"), "{words}");
    let socket = dir.join("state/agent.sock");
    let ask = || Command::new(keelson).args(["ps", "--socket"]).arg(&socket).output();
    let mut was_listed = false;
    wait_for("it is ended", Duration::from_secs(40), || {
        let is_listed = String::from_utf8(ask()?.stdout)?.contains("deaf");
        was_listed |= is_listed;
        Ok(running()? == 0 && !is_listed)
    })?;
    // One whose grace period was over may be gone before it could be listed.
    ensure!(was_listed || is_overdue, "`ps` never showed it");
    for entry in fs::read_dir("/proc")?.flatten() {
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).into_owned();
        let number = entry.file_name().to_str().and_then(|name| name.parse().ok());
        if line.contains("run-agent") && line.contains(&*dir.display().to_string()) {
            kill_process(number.and_then(Pid::from_raw).context("its number")?, Signal::TERM)?;
        }
    }
    wait_for("the agent ends", Duration::from_secs(10), || Ok(!ask()?.status.success()))
}
