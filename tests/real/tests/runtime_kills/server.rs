//! `keelson cri` that is killed and started again on the same directories.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use node_testkit::bed::Bed;
use node_testkit::start::RunningPart;
use node_testkit::{parts, programs};

/// The bridge of the built-in network.
pub(crate) const BRIDGE: &str = "keelson0";

/// The programs of these tests, built before the bed.
#[derive(Debug, Clone)]
pub(crate) struct KillTestPrograms {
    pub(crate) keelson: PathBuf,
    supervisor: PathBuf,
}

pub(crate) fn build() -> Result<KillTestPrograms> {
    let keelson = programs::build("keelson", "keelson")?;
    let target = format!("{}-unknown-linux-musl", std::env::consts::ARCH);
    let dir = keelson.ancestors().nth(2).context("the binary is in no target folder")?.to_owned();
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--quiet", "--package", "pod-supervisor", "--bin", "keelson-pod"]);
    cargo.args(["--no-default-features", "--target", &target, "--target-dir"]).arg(&dir);
    let status = cargo.status().context("run cargo")?;
    ensure!(status.success(), "cargo could not build the supervisor: {status}");
    Ok(KillTestPrograms { keelson, supervisor: dir.join(target).join("debug/keelson-pod") })
}

/// The directories of one runtime, which outlive its processes.
#[derive(Debug, Clone)]
pub(crate) struct RuntimeHome {
    programs: KillTestPrograms,
    dir: PathBuf,
}

impl RuntimeHome {
    pub(crate) fn new(bed: &Bed, programs: KillTestPrograms) -> Result<Self> {
        let dir = bed.create_dir("k")?;
        let text = serde_json::json!({
            "version": 1,
            "supervisor": programs.supervisor,
            "cni": { "configurations": dir.join("net.d"), "results": dir.join("cni") },
            "network": { "bridge": BRIDGE },
        });
        fs::write(dir.join("cri.json"), text.to_string())?;
        bed.create_dir("runs")?;
        bed.create_dir("logs-of-pods")?;
        Ok(Self { programs, dir })
    }

    /// The same with a configuration for real plugins: a bridge, addresses, host ports.
    pub(crate) fn on_plugins(bed: &Bed, programs: KillTestPrograms) -> Result<Self> {
        let home = Self::new(bed, programs)?;
        let bridge = parts::program("cni-plugins", "bridge")?;
        let plugins = bridge.parent().context("the plugins are in no folder")?;
        let file = home.dir.join("cri.json");
        let mut text: serde_json::Value = serde_json::from_slice(&fs::read(&file)?)?;
        text["cni"]["plugins"] = serde_json::json!([plugins]);
        fs::write(&file, text.to_string())?;
        let ipam = serde_json::json!({
            "type": "host-local",
            "dataDir": home.leases(),
            "ranges": [[{ "subnet": "10.89.0.0/16" }]],
            "routes": [{ "dst": "0.0.0.0/0" }],
        });
        let network = serde_json::json!({
            "cniVersion": "1.1.0",
            "name": "kills",
            "plugins": [
                { "type": "bridge", "bridge": "kills0", "isGateway": true, "ipam": ipam },
                { "type": "portmap", "capabilities": { "portMappings": true }, "snat": false },
            ],
        });
        let dir = home.dir.join("net.d");
        fs::create_dir_all(&dir)?;
        fs::write(dir.join("10-kills.conflist"), network.to_string())?;
        Ok(home)
    }

    /// The addresses that a plugin has assigned.
    pub(crate) fn leases(&self) -> PathBuf {
        self.dir.join("leases")
    }

    /// The stored results of plugins.
    pub(crate) fn results(&self) -> PathBuf {
        self.dir.join("cni")
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.join("cri.sock")
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.dir.join("root")
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.dir.join("state")
    }

    /// Starts a server, optionally with a crash point.
    pub(crate) fn start(&self, bed: &Bed, crash_at: Option<&str>) -> Result<RunningPart> {
        let mut command = Command::new(&self.programs.keelson);
        command.args(["cri", "--listen", &format!("unix://{}", self.socket().display())]);
        command.arg("--root").arg(self.root()).arg("--state").arg(self.state());
        command.arg("--config").arg(self.dir.join("cri.json"));
        command.envs(crash_at.map(|point| ("KEELSON_CRASH_AT", point)));
        RunningPart::start(bed, "keelson-cri", &mut command)
    }

    /// A process that imports an archive; the caller may kill it.
    pub(crate) fn import(&self, archive: &Path) -> Command {
        let mut command = Command::new(&self.programs.keelson);
        command.args(["image", "import", "--address"]);
        command.arg(format!("unix://{}", self.socket().display())).arg(archive);
        command.stdin(Stdio::null());
        command
    }

    pub(crate) fn import_whole(&self, archive: &Path) -> Result<()> {
        let output = self.import(archive).output().context("run keelson image import")?;
        if !output.status.success() {
            bail!("import: {}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(())
    }
}
