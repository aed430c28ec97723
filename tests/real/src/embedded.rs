//! `keelson cri` as a part: the built binary in a bed, with a configuration of the test's choosing.
//!
//! Rule: it is started as an administrator would, by its command line and a configuration file; it
//! may be killed and started again on the same directories. Paths are short: socket paths are
//! limited.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use node_testkit::bed::Bed;
use node_testkit::start::{Mirror, RunningPart};
use node_testkit::{parts, programs};

/// The bridge of the built-in network.
pub const BRIDGE: &str = "keelson0";
const READY: Duration = Duration::from_secs(60);

/// The programs of the embedded runtime.
#[derive(Debug, Clone)]
pub struct RuntimePrograms {
    pub keelson: PathBuf,
    /// `None` if the binary contains its supervisor.
    pub supervisor: Option<PathBuf>,
}

impl RuntimePrograms {
    /// Builds both with the profile of the calling test; call it before a bed is made.
    pub fn build() -> Result<Self> {
        let keelson = programs::build("keelson", "keelson")?;
        let dir =
            keelson.ancestors().nth(2).context("the binary is in no target folder")?.to_owned();
        let target = format!("{}-unknown-linux-musl", std::env::consts::ARCH);
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.args(["build", "--quiet", "--package", "pod-supervisor", "--bin", "keelson-pod"]);
        cargo.args(["--no-default-features", "--target", &target, "--target-dir"]).arg(&dir);
        let status = cargo.status().context("run cargo")?;
        ensure!(status.success(), "cargo could not build the supervisor: {status}");
        Ok(Self { keelson, supervisor: Some(dir.join(target).join("debug/keelson-pod")) })
    }

    /// A release binary.
    pub fn released(keelson: &Path) -> Self {
        Self { keelson: keelson.to_owned(), supervisor: None }
    }

    /// The binary at this path: a release binary contains its supervisor; for a debug build the
    /// static supervisor of the same build is in the same directory.
    pub fn beside(keelson: &Path) -> Self {
        let target = format!("{}-unknown-linux-musl/debug/keelson-pod", std::env::consts::ARCH);
        let debug = keelson.parent().filter(|dir| dir.ends_with("target/debug"));
        let supervisor = debug.and_then(Path::parent).map(|dir| dir.join(target));
        Self { keelson: keelson.to_owned(), supervisor: supervisor.filter(|path| path.exists()) }
    }
}

/// Options of the embedded runtime.
#[derive(Debug, Clone, Default)]
pub struct EmbeddedOptions {
    /// The text of a CNI configuration list; without one the built-in network is used.
    pub cni: Option<String>,
    /// Directories of plugins in addition to the real ones.
    pub more_plugins: Vec<PathBuf>,
    /// Have plugins free what belongs to none of our pods.
    pub collect_garbage: bool,
    pub mirrors: Vec<Mirror>,
    /// Log little, as in production; otherwise much, for debugging a failure.
    pub quiet: bool,
}

/// A running server.
#[derive(Debug)]
pub struct Embedded {
    running: RunningPart,
    programs: RuntimePrograms,
    dir: PathBuf,
    quiet: bool,
}

impl Embedded {
    /// The parts to name in a test's needs, where a CNI configuration is given.
    pub const NEEDS: &'static [&'static str] = &["cni-plugins"];

    pub fn start(bed: &Bed, programs: &RuntimePrograms, options: &EmbeddedOptions) -> Result<Self> {
        let dir = bed.create_dir("k")?;
        fs::create_dir_all(dir.join("net.d"))?;
        if let Some(text) = &options.cni {
            fs::write(dir.join("net.d/10-bed.conflist"), text)?;
        }
        let plugins = parts::program("cni-plugins", "bridge");
        let plugins = plugins.ok().and_then(|path| path.parent().map(Path::to_owned));
        let plugins: Vec<PathBuf> =
            plugins.into_iter().chain(options.more_plugins.iter().cloned()).collect();
        let registries: BTreeMap<&str, serde_json::Value> = options
            .mirrors
            .iter()
            .map(|mirror| {
                let value = serde_json::json!({ "mirrors": [mirror.at], "mirrorsOnly": true });
                (mirror.of.as_str(), value)
            })
            .collect();
        let mut text = serde_json::json!({
            "version": 1,
            "cni": {
                "configurations": dir.join("net.d"),
                "plugins": plugins,
                "results": dir.join("cni"),
            },
            "network": { "bridge": BRIDGE },
            "registries": registries,
            "handlers": ["test-handler", "runc"],
        });
        if options.collect_garbage {
            text["cni"]["collectGarbage"] = true.into();
        }
        if let Some(supervisor) = &programs.supervisor {
            text["supervisor"] = serde_json::json!(supervisor);
        }
        fs::write(dir.join("cri.json"), text.to_string())?;
        let quiet = options.quiet;
        let running = launch(bed, programs, &dir, quiet)?;
        let mut server = Self { running, programs: programs.clone(), dir, quiet };
        server.answers()?;
        Ok(server)
    }

    fn answers(&mut self) -> Result<()> {
        let socket = self.socket();
        self.running.wait_until("answer", READY, || {
            std::os::unix::net::UnixStream::connect(&socket)
                .map(drop)
                .with_context(|| socket.display().to_string())
        })
    }

    /// Kills the server and starts another on the same directories.
    pub fn kill_and_start(&mut self, bed: &Bed) -> Result<()> {
        if self.running.is_alive()? {
            self.running.kill()?;
        }
        self.running = launch(bed, &self.programs, &self.dir, self.quiet)?;
        self.answers()
    }

    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.dir.join("cri.sock")
    }

    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    /// Its directory: configuration, root, state, CNI results.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn import(&self, archive: &Path) -> Result<()> {
        let output = Command::new(&self.programs.keelson)
            .args(["image", "import", "--address", &self.endpoint()])
            .arg(archive)
            .output()
            .context("run keelson image import")?;
        if !output.status.success() {
            let printed = String::from_utf8_lossy(&output.stderr);
            bail!("import {}: {printed}", archive.display());
        }
        Ok(())
    }

    /// The process and its log.
    pub fn process(&mut self) -> &mut RunningPart {
        &mut self.running
    }
}

fn launch(bed: &Bed, programs: &RuntimePrograms, dir: &Path, quiet: bool) -> Result<RunningPart> {
    let mut command = Command::new(&programs.keelson);
    command
        .args(["cri", "-v", if quiet { "1" } else { "4" }])
        .args(["--listen", &format!("unix://{}/cri.sock", dir.display())])
        .arg("--root")
        .arg(dir.join("root"))
        .arg("--state")
        .arg(dir.join("state"))
        .arg("--config")
        .arg(dir.join("cri.json"));
    RunningPart::start(bed, "keelson-cri", &mut command)
}

#[cfg(test)]
mod tests {
    use container_runtime::RuntimeSettings;
    use serde_json::Value;

    const DOCUMENT: &str = include_str!("../../../docs/runtime-settings.md");

    fn settings() -> RuntimeSettings {
        RuntimeSettings::new("/root".into(), "/state".into())
    }

    /// The documented configuration is valid, every field of it is explained, and its defaults are
    /// correct.
    #[test]
    fn the_documented_settings_are_read() {
        let example = DOCUMENT.split("```json\n").nth(1).and_then(|rest| rest.split("```").next());
        let example = example.unwrap();
        let read = settings().with_file("the example", example.as_bytes()).unwrap();
        let fields: Value = serde_json::from_str(example).unwrap();
        for field in fields.as_object().unwrap().keys() {
            assert!(DOCUMENT.contains(&format!("| `{field}` |")), "{field} is not explained");
        }
        let usual = settings();
        assert_eq!(read.cni.configurations, usual.cni.configurations);
        assert_eq!(read.cni.plugins, usual.cni.plugins);
        assert_eq!(read.cni.results, usual.cni.results);
        assert_eq!(read.cni.deadline, usual.cni.deadline);
        assert_eq!(read.cni.collect_garbage, usual.cni.collect_garbage);
        assert_eq!(read.built_in_network.bridge, usual.built_in_network.bridge);
        assert_eq!(read.built_in_network.subnets[..1], usual.built_in_network.subnets[..]);
        assert_eq!(read.device_specifications, usual.device_specifications);
        assert_eq!(read.streams, usual.streams);
    }
}
