//! `keelson run` with ConfigMaps and Secrets beside the pods: variables, files, and new content.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use anyhow::{Result, ensure};
use node_testkit::bed::BedTest;
use node_testkit::{images, programs};

use crate::node::wait_for;

fn file(value: &str) -> String {
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: settings}}\ndata: {{k: '{value}'}}\n\
         ---\napiVersion: v1\nkind: Secret\nmetadata: {{name: login}}\nstringData: {{pass: hidden}}\n\
         ---\napiVersion: v1\nkind: Pod\nmetadata: {{name: taker}}\nspec:\n  \
         terminationGracePeriodSeconds: 1\n  containers:\n  - name: main\n    image: {}\n    \
         imagePullPolicy: Never\n    command: [sh, -c, {SCRIPT:?}]\n    \
         env: [{{name: PASS, valueFrom: {{secretKeyRef: {{name: login, key: pass}}}}}}]\n    \
         volumeMounts: [{{name: v, mountPath: /v}}, {{name: w, mountPath: /w}}]\n  \
         volumes:\n  - {{name: v, configMap: {{name: settings}}}}\n  \
         - {{name: w, secret: {{secretName: login, defaultMode: 0400}}}}\n",
        images::BUSYBOX
    )
}

/// Prints the file each time that it has changed.
const SCRIPT: &str = "echo $PASS $(cat /w/pass) $(stat -L -c %a /w/pass); \
    trap 'exit 0' TERM; while :; do k=$(cat /v/k); [ \"$k\" = \"$old\" ] || echo k is $k; old=$k; \
    sleep 0.1; done";

struct BackgroundRun<'a> {
    keelson: &'a Path,
    dir: &'a Path,
}

impl BackgroundRun<'_> {
    fn detach(&self, arguments: &[&Path]) -> Result<Output> {
        let mut command = Command::new(self.keelson);
        command.args(["run", "--detach", "--root"]).arg(self.dir.join("root"));
        command.arg("--state").arg(self.dir.join("state")).args(arguments);
        Ok(command.stdin(Stdio::null()).output()?)
    }

    fn ask(&self, verb: &[&str]) -> Result<String> {
        let socket = self.dir.join("state/agent.sock");
        let asked = Command::new(self.keelson).args(verb).arg("--socket").arg(socket).output()?;
        ensure!(asked.status.success(), "{}", String::from_utf8_lossy(&asked.stderr));
        Ok(String::from_utf8(asked.stdout)?)
    }

    fn wait_log(&self, text: &str) -> Result<()> {
        wait_for(text, Duration::from_secs(30), || {
            Ok(self.ask(&["logs", "taker"]).is_ok_and(|log| log.ends_with(text)))
        })
    }
}

#[test]
fn pods_from_the_command_line_use_the_objects_of_their_files() -> Result<()> {
    let keelson = programs::build("keelson", "keelson")?;
    let archive = images::busybox()?.oci_archive()?;
    BedTest::new().deadline(Duration::from_secs(120)).run(move |bed| {
        let dir = bed.create_dir("run")?;
        let run = BackgroundRun { keelson: &keelson, dir: &dir };
        let path = dir.join("pod.yaml");
        fs::write(
            &path,
            file("one").replace("kind: Secret", "kind: ConfigMap").replace("stringD", "d"),
        )?;
        let refused = run.detach(&[Path::new("--import"), &archive, &path])?;
        let words = String::from_utf8_lossy(&refused.stderr).into_owned();
        ensure!(!refused.status.success() && words.contains("secret \"login\""), "{words}");
        fs::write(&path, file("one"))?;
        let taken = run.detach(&[Path::new("--import"), &archive, &path])?;
        ensure!(taken.status.success(), "{}", String::from_utf8_lossy(&taken.stderr));
        run.wait_log("hidden hidden 400\nk is one\n")?;
        // The same pod with new content: it runs on.
        fs::write(&path, file("two"))?;
        let updated = String::from_utf8(run.detach(&[&path])?.stdout)?;
        ensure!(updated.contains("gets its new ConfigMaps"), "{updated}");
        run.wait_log("k is one\nk is two\n")?;
        run.ask(&["stop", "taker"])?;
        wait_for("the agent ends", Duration::from_secs(30), || {
            Ok(!dir.join("state/agent.sock").exists() || run.ask(&["ps"]).is_err())
        })?;
        let left = fs::read_dir(dir.join("root/agent/pods"))?.count();
        ensure!(left == 0, "{left} pod directories are left");
        Ok(())
    })
}
