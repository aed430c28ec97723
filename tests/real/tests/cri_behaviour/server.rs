//! The embedded runtime as a server: the built binary with a static supervisor, in a bed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use node_testkit::bed::Bed;
use node_testkit::programs;
use node_testkit::start::RunningPart;
use real_tests::embedded::BRIDGE;

const READY: Duration = Duration::from_secs(30);

/// What a test of the runtime needs; built before its bed.
#[derive(Debug)]
pub(crate) struct ServerPrograms {
    keelson: PathBuf,
    supervisor: PathBuf,
}

pub(crate) fn build() -> Result<ServerPrograms> {
    let keelson = programs::build("keelson", "keelson")?;
    let target = format!("{}-unknown-linux-musl", std::env::consts::ARCH);
    let dir = keelson.ancestors().nth(2).context("the binary is in no target folder")?.to_owned();
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--quiet", "--package", "pod-supervisor", "--bin", "keelson-pod"]);
    cargo.args(["--no-default-features", "--target", &target, "--target-dir"]).arg(&dir);
    let status = cargo.status().context("run cargo")?;
    ensure!(status.success(), "cargo could not build the supervisor: {status}");
    Ok(ServerPrograms { keelson, supervisor: dir.join(target).join("debug/keelson-pod") })
}

/// A running `keelson cri`.
#[derive(Debug)]
pub(crate) struct CriServer {
    running: RunningPart,
    program: PathBuf,
    dir: PathBuf,
}

impl CriServer {
    pub(crate) fn start(bed: &Bed, programs: &ServerPrograms) -> Result<Self> {
        Self::start_with(bed, programs, |_, _| {})
    }

    /// Starts it with a changed configuration; the closure gets the server's own directory.
    pub(crate) fn start_with(
        bed: &Bed,
        programs: &ServerPrograms,
        change: impl FnOnce(&mut serde_json::Value, &Path),
    ) -> Result<Self> {
        Self::start_with_verbosity(bed, programs, 4, change)
    }

    /// The same with a log verbosity.
    pub(crate) fn start_with_verbosity(
        bed: &Bed,
        programs: &ServerPrograms,
        verbosity: u8,
        change: impl FnOnce(&mut serde_json::Value, &Path),
    ) -> Result<Self> {
        let dir = bed.create_dir("k")?;
        let config = dir.join("cri.json");
        let mut text = serde_json::json!({
            "version": 1,
            "supervisor": programs.supervisor,
            "cni": { "configurations": dir.join("net.d"), "results": dir.join("cni") },
            "network": { "bridge": BRIDGE },
            "handlers": ["test-handler", "runc"],
        });
        change(&mut text, &dir);
        fs::write(&config, text.to_string())?;
        let mut command = Command::new(&programs.keelson);
        command
            .args(["cri", "-v", &verbosity.to_string()])
            .args(["--listen", &format!("unix://{}/cri.sock", dir.display())])
            .arg("--root")
            .arg(dir.join("root"))
            .arg("--state")
            .arg(dir.join("state"))
            .arg("--config")
            .arg(&config);
        let running = RunningPart::start(bed, "keelson-cri", &mut command)?;
        let program = programs.keelson.clone();
        let mut keelson = Self { running, program, dir };
        let socket = keelson.socket();
        keelson.running.wait_until("answer", READY, || {
            ensure!(socket.exists(), "no socket yet");
            Ok(())
        })?;
        Ok(keelson)
    }

    /// Its log so far.
    pub(crate) fn log_text(&self) -> Result<String> {
        let log = self.running.log();
        let bytes = fs::read(log).with_context(|| log.display().to_string())?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.join("cri.sock")
    }

    pub(crate) fn import(&self, archive: &Path) -> Result<()> {
        let output = Command::new(&self.program)
            .args(["image", "import", "--address"])
            .arg(format!("unix://{}", self.socket().display()))
            .arg(archive)
            .output()
            .context("run keelson image import")?;
        if !output.status.success() {
            bail!("import: {}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(())
    }
}
