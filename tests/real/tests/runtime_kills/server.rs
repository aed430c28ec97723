//! `keelson cri` that is killed and started again on the same directories.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use node_testkit::bed::Bed;
use node_testkit::start::Running;
use node_testkit::{parts, programs};

/// The bridge of the built-in network.
pub(crate) const BRIDGE: &str = "keelson0";

/// The programs of these tests, built before the bed.
#[derive(Debug, Clone)]
pub(crate) struct Programs {
    pub(crate) keelson: PathBuf,
    supervisor: PathBuf,
}

pub(crate) fn build() -> Result<Programs> {
    let keelson = programs::build("keelson", "keelson")?;
    let target = format!("{}-unknown-linux-musl", std::env::consts::ARCH);
    let folder =
        keelson.ancestors().nth(2).context("the binary is in no target folder")?.to_owned();
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--quiet", "--package", "pod-supervisor", "--bin", "keelson-pod"]);
    cargo.args(["--no-default-features", "--target", &target, "--target-dir"]).arg(&folder);
    let status = cargo.status().context("run cargo")?;
    ensure!(status.success(), "cargo could not build the supervisor: {status}");
    Ok(Programs { keelson, supervisor: folder.join(target).join("debug/keelson-pod") })
}

/// The directories of one runtime, which outlive its processes.
#[derive(Debug, Clone)]
pub(crate) struct Home {
    programs: Programs,
    folder: PathBuf,
}

impl Home {
    pub(crate) fn new(bed: &Bed, programs: Programs) -> Result<Self> {
        let folder = bed.make_folder("k")?;
        let text = serde_json::json!({
            "version": 1,
            "supervisor": programs.supervisor,
            "cni": { "configurations": folder.join("net.d"), "results": folder.join("cni") },
            "network": { "bridge": BRIDGE },
        });
        fs::write(folder.join("cri.json"), text.to_string())?;
        bed.make_folder("runs")?;
        bed.make_folder("logs-of-pods")?;
        Ok(Self { programs, folder })
    }

    /// The same with a configuration for real plugins: a bridge, addresses, host ports.
    pub(crate) fn on_plugins(bed: &Bed, programs: Programs) -> Result<Self> {
        let home = Self::new(bed, programs)?;
        let bridge = parts::program("cni-plugins", "bridge")?;
        let plugins = bridge.parent().context("the plugins are in no folder")?;
        let file = home.folder.join("cri.json");
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
        let folder = home.folder.join("net.d");
        fs::create_dir_all(&folder)?;
        fs::write(folder.join("10-kills.conflist"), network.to_string())?;
        Ok(home)
    }

    /// The addresses that a plugin has assigned.
    pub(crate) fn leases(&self) -> PathBuf {
        self.folder.join("leases")
    }

    /// The stored results of plugins.
    pub(crate) fn results(&self) -> PathBuf {
        self.folder.join("cni")
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.join("cri.sock")
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.folder.join("root")
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.folder.join("state")
    }

    /// Starts a server, optionally with a crash point.
    pub(crate) fn start(&self, bed: &Bed, crash_at: Option<&str>) -> Result<Running> {
        let mut command = Command::new(&self.programs.keelson);
        command.args(["cri", "--listen", &format!("unix://{}", self.socket().display())]);
        command.arg("--root").arg(self.root()).arg("--state").arg(self.state());
        command.arg("--config").arg(self.folder.join("cri.json"));
        command.envs(crash_at.map(|point| ("KEELSON_CRASH_AT", point)));
        Running::start(bed, "keelson-cri", &mut command)
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
