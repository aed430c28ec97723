//! `keelson run`: pods by the embedded runtime alone, in a bed without containerd or runc.

use std::fs;
use std::io::{BufRead as _, Read};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use node_testkit::bed::Test;
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

fn run(keelson: &Path, folder: &Path, archive: &Path) -> Command {
    let mut command = Command::new(keelson);
    command
        .arg("run")
        .arg("--root")
        .arg(folder.join("root"))
        .arg("--state")
        .arg(folder.join("state"))
        .arg("--import")
        .arg(archive)
        .stdin(Stdio::null());
    command
}

#[test]
fn pods_run_with_nothing_else_installed() -> Result<()> {
    let keelson = programs::build("keelson", "keelson")?;
    let archive = images::busybox()?.oci_archive()?;
    Test::new().deadline(Duration::from_secs(120)).run(move |bed| {
        bed.mount_odd_names()?;
        let folder = bed.make_folder("run")?;
        let job = folder.join("job.yaml");
        fs::write(&job, manifest("job", "restartPolicy: Never", "echo out; echo err >&2; exit 3"))?;
        let ended = run(&keelson, &folder, &archive).arg(&job).output()?;
        let (out, words) = (String::from_utf8(ended.stdout)?, String::from_utf8(ended.stderr)?);
        ensure!(ended.status.code() == Some(3), "{} {out} {words}", ended.status);
        ensure!(out.ends_with("/main | out\n"), "{out}");
        ensure!(words.contains("/main | err\n"), "{words}");

        let web = folder.join("web.yaml");
        let script =
            format!("mkdir /w; echo hi > /w/index.html; httpd -p 80 -h /w; echo up; {STEADY}");
        fs::write(&web, manifest("web", "restartPolicy: Always", &script))?;
        let log = fs::File::create(bed.logs().join("run.log"))?;
        let mut running = run(&keelson, &folder, &archive)
            .arg(&web)
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()?;
        let socket = folder.join("state/agent.sock");
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
        let left = fs::read_dir(folder.join("root/agent/pods"))?.count();
        ensure!(left == 0, "{left} pod folders are left");
        Ok(())
    })
}

#[test]
fn the_exit_code_tells_how_stopped_pods_ended() -> Result<()> {
    const DEAF: &str = "trap '' TERM; echo up; while :; do sleep 1; done";
    const SAYS_THREE: &str = "trap 'exit 3' TERM; echo up; while :; do sleep 1000 & wait; done";
    let keelson = programs::build("keelson", "keelson")?;
    let archive = images::busybox()?.oci_archive()?;
    Test::new().deadline(Duration::from_secs(180)).run(move |bed| {
        let folder = bed.make_folder("run")?;
        let pod = folder.join("pod.yaml");
        let ways = [Some(Signal::INT), Some(Signal::TERM), None];
        for (way, script, expected) in [
            (ways[0], SAYS_THREE, 3),
            (Some(Signal::HUP), SAYS_THREE, 3),
            (ways[1], DEAF, 137),
            (ways[2], SAYS_THREE, 3),
            (ways[2], &*STEADY.replacen("; ", "; echo up; ", 1), 0),
        ] {
            fs::write(&pod, manifest("stopped", "restartPolicy: Always", script))?;
            let told = run(&keelson, &folder, &archive);
            // Whoever runs the tests may have been told not to mind a closed terminal (`nohup`), which
            // its children would inherit.
            let mut running = Command::new("env")
                .arg("--default-signal=HUP")
                .arg(told.get_program())
                .args(told.get_args())
                .arg(&pod)
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(fs::File::create(bed.logs().join("run.log"))?)
                .spawn()?;
            let mut out = std::io::BufReader::new(running.stdout.take().context("its output")?);
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
                    stop.args(["stop", "stopped", "--socket"]).arg(folder.join("state/agent.sock"));
                    ensure!(stop.status()?.success(), "stop");
                }
            }
            let ended = running.wait()?;
            ensure!(ended.code() == Some(expected), "{script:?} by {way:?}: {ended}");
        }
        Ok(())
    })
}
