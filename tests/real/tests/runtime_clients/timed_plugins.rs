//! The benchmark's wrapper for CNI plugins: it does not change a plugin's input and output, and it
//! logs the plugin's time.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use node_testkit::bed::BedTest;
use real_tests::cri_bench::plugins::TimedPlugins;

/// Prints its name, command and input, takes some time, and fails with its own exit code.
const PLUGIN: &str = "#!/bin/sh\necho $0 $CNI_COMMAND; cat; sleep 0.05; exit 3\n";

fn call(program: &Path, command: &str) -> Result<Output> {
    let mut child = Command::new(program)
        .env("CNI_COMMAND", command)
        .env("CNI_CONTAINERID", "a-pod")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| program.display().to_string())?;
    child.stdin.take().context("its input")?.write_all(b"a configuration")?;
    Ok(child.wait_with_output()?)
}

#[test]
fn timed_plugins_behave_like_the_plugins_they_wrap() -> Result<()> {
    BedTest::new().run(|bed| {
        let plugins = bed.create_dir("bin")?;
        for name in ["bridge", "host-local"] {
            fs::write(plugins.join(name), PLUGIN)?;
            fs::set_permissions(plugins.join(name), fs::Permissions::from_mode(0o755))?;
        }
        let clock = Path::new(env!("CARGO_BIN_EXE_timed-plugin"));
        let timed = TimedPlugins::install(&plugins, &bed.create_dir("work")?, clock)?;
        ensure!(timed.of_adding("a-pod").is_err(), "nothing was called yet");
        for (name, command) in [("bridge", "ADD"), ("bridge", "DEL"), ("host-local", "ADD")] {
            let output = call(&plugins.join(name), command)?;
            let printed = String::from_utf8_lossy(&output.stdout);
            let expected = format!("/{name} {command}\na configuration");
            ensure!(printed.ends_with(&expected), "{printed:?}");
            ensure!(output.status.code() == Some(3), "{}", output.status);
        }
        let times = fs::read_to_string(plugins.join("times"))?;
        ensure!(times.lines().count() == 2, "a plugin's own plugin is part of it: {times}");
        ensure!(timed.of_adding("a-pod")? >= Duration::from_millis(50), "{times}");
        ensure!(timed.of_adding("another").is_err(), "{times}");
        Ok(())
    })
}
