//! containerd with runc and CNI plugins, all in one directory of the bed.
//!
//! Rule: the configuration is complete and generated here; nothing is read from the host's `/etc`.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use super::process::{RunningPart, output_of};
use crate::bed::Bed;
use crate::parts;

/// The parts that this starter needs.
const PARTS: [&str; 3] = ["containerd", "runc", "cni-plugins"];
const READY: Duration = Duration::from_secs(30);

/// A registry that stands in for another, over plain HTTP.
#[derive(Debug, Clone)]
pub struct Mirror {
    /// The host in image names, such as `registry.k8s.io`.
    pub of: String,
    /// The address of the mirror, such as `http://127.0.0.1:5000`.
    pub at: String,
}

/// Which containerd.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ContainerdGeneration {
    #[default]
    Pinned,
    /// 1.6: it has no event stream and does not report its cgroup driver. By verb only.
    Old,
}

impl ContainerdGeneration {
    fn part(self) -> &'static str {
        match self {
            Self::Pinned => "containerd",
            Self::Old => "containerd-1.6",
        }
    }
}

/// Options of a containerd.
#[derive(Debug, Clone, Default)]
pub struct ContainerdOptions {
    pub generation: ContainerdGeneration,
    pub mirrors: Vec<Mirror>,
    /// A second runtime handler named `test-handler`, the same runc under another name.
    pub test_handler: bool,
    /// Put containers into systemd's scopes: for machines whose PID 1 is systemd.
    pub systemd_cgroups: bool,
    /// The sandbox image, if not the default one.
    pub sandbox_image: Option<String>,
}

/// A containerd that answers.
#[derive(Debug)]
pub struct Containerd {
    running: RunningPart,
    dir: PathBuf,
    part: &'static str,
}

impl Containerd {
    /// The parts to name in a test's needs.
    pub const NEEDS: &'static [&'static str] = &PARTS;
    /// The same for [`ContainerdGeneration::Old`].
    pub const OLD_NEEDS: &'static [&'static str] = &["containerd-1.6", "runc", "cni-plugins"];

    /// Starts containerd and waits until it answers.
    ///
    /// # Errors
    /// When a part is missing or containerd does not come up, with the end of its log.
    pub fn start(bed: &Bed, options: &ContainerdOptions) -> Result<Self> {
        let dir = bed.create_dir("containerd")?;
        let configuration = dir.join("config.toml");
        let text = match options.generation {
            ContainerdGeneration::Pinned => configure(&dir, options)?,
            ContainerdGeneration::Old => configure_old(&dir, options)?,
        };
        write(&configuration, &text)?;
        write(&dir.join("cni/net.d/10-bed.conflist"), BRIDGE)?;
        for mirror in &options.mirrors {
            let hosts = format!(
                "server = \"{at}\"\n[host.\"{at}\"]\n  capabilities = [\"pull\", \"resolve\"]\n",
                at = mirror.at
            );
            write(&dir.join("certs.d").join(&mirror.of).join("hosts.toml"), &hosts)?;
        }
        let part = options.generation.part();
        let mut command = Command::new(parts::program(part, "containerd")?);
        command.arg("--config").arg(&configuration).env("PATH", search_path(part)?);
        let running = RunningPart::start(bed, "containerd", &mut command)?;
        let mut containerd = Self { running, dir, part };
        let mut version = containerd.ctr()?;
        version.arg("version");
        containerd.running.wait_until("answer", READY, || output_of(&mut version))?;
        Ok(containerd)
    }

    /// Its socket, for gRPC: CRI and containerd's own services.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.dir.join("containerd.sock")
    }

    /// Its socket as kubelets and CRI clients want it.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    /// A `ctr` that talks to it.
    ///
    /// # Errors
    /// When the part is missing.
    pub fn ctr(&self) -> Result<Command> {
        let mut command = Command::new(parts::program(self.part, "ctr")?);
        command.arg("--address").arg(self.socket()).env("PATH", search_path(self.part)?);
        Ok(command)
    }

    /// Runs `ctr` and returns what it printed.
    ///
    /// # Errors
    /// When it fails, with its output.
    pub fn run_ctr(&self, arguments: &[&str]) -> Result<String> {
        output_of(self.ctr()?.args(arguments))
    }

    /// Imports an image archive into the namespace that CRI looks in.
    ///
    /// # Errors
    /// When containerd rejects it.
    pub fn import(&self, archive: &Path) -> Result<String> {
        self.run_ctr(&["--namespace", "k8s.io", "images", "import", &archive.to_string_lossy()])
    }

    /// The process and its log.
    pub fn process(&mut self) -> &mut RunningPart {
        &mut self.running
    }
}

/// containerd finds its shim, and the shim finds runc, by PATH.
fn search_path(containerd: &str) -> Result<std::ffi::OsString> {
    let mut dirs = Vec::new();
    for (part, program) in [(containerd, "ctr"), ("runc", "runc")] {
        dirs.extend(parts::program(part, program)?.parent().map(Path::to_owned));
    }
    dirs.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
    std::env::join_paths(dirs).context("put PATH together")
}

fn write(path: &Path, text: &str) -> Result<()> {
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir).with_context(|| format!("make {}", dir.display()))?;
    }
    fs::write(path, text).with_context(|| format!("write {}", path.display()))
}

fn configure(dir: &Path, options: &ContainerdOptions) -> Result<String> {
    let dir = dir.display();
    let runc = parts::program("runc", "runc")?;
    let plugins = parts::program("cni-plugins", "bridge")?;
    let plugins = plugins.parent().unwrap_or(Path::new("/"));
    let mut text = format!(
        "version = 3\n\
         root = \"{dir}/root\"\n\
         state = \"{dir}/state\"\n\
         [grpc]\n  address = \"{dir}/containerd.sock\"\n\
         [plugins.'io.containerd.internal.v1.opt']\n  path = \"{dir}/opt\"\n\
         [plugins.'io.containerd.nri.v1.nri']\n  disable = true\n\
         [plugins.'io.containerd.cri.v1.images'.registry]\n  config_path = \"{dir}/certs.d\"\n"
    );
    if let Some(image) = &options.sandbox_image {
        write!(
            text,
            "[plugins.'io.containerd.cri.v1.images'.pinned_images]\n  sandbox = \"{image}\"\n"
        )?;
    }
    write!(
        text,
        "[plugins.'io.containerd.cri.v1.runtime']\n  \
           # a bed may lack the capability to lower its score\n  \
           restrict_oom_score_adj = true\n\
         [plugins.'io.containerd.cri.v1.runtime'.cni]\n  \
           bin_dirs = [\"{}\"]\n  conf_dir = \"{dir}/cni/net.d\"\n\
         [plugins.'io.containerd.cri.v1.runtime'.containerd]\n  default_runtime_name = \"runc\"\n",
        plugins.display()
    )?;
    let handlers: &[&str] =
        if options.test_handler { &["runc", "test-handler"] } else { &["runc"] };
    for handler in handlers {
        let table = format!("plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.{handler}");
        write!(
            text,
            "[{table}]\n  runtime_type = \"io.containerd.runc.v2\"\n\
             [{table}.options]\n  BinaryName = \"{}\"\n  SystemdCgroup = {}\n",
            runc.display(),
            options.systemd_cgroups
        )?;
    }
    Ok(text)
}

/// A configuration in version 2 of the format; one handler, no second one.
fn configure_old(dir: &Path, options: &ContainerdOptions) -> Result<String> {
    let dir = dir.display();
    let runc = parts::program("runc", "runc")?;
    let plugins = parts::program("cni-plugins", "bridge")?;
    let plugins = plugins.parent().unwrap_or(Path::new("/"));
    let table = "plugins.'io.containerd.grpc.v1.cri'";
    let mut text = format!(
        "version = 2\n\
         root = \"{dir}/root\"\n\
         state = \"{dir}/state\"\n\
         [grpc]\n  address = \"{dir}/containerd.sock\"\n\
         [plugins.'io.containerd.internal.v1.opt']\n  path = \"{dir}/opt\"\n\
         [{table}]\n  restrict_oom_score_adj = true\n"
    );
    if let Some(image) = &options.sandbox_image {
        writeln!(text, "  sandbox_image = \"{image}\"")?;
    }
    write!(
        text,
        "[{table}.registry]\n  config_path = \"{dir}/certs.d\"\n\
         [{table}.cni]\n  bin_dir = \"{}\"\n  conf_dir = \"{dir}/cni/net.d\"\n\
         [{table}.containerd]\n  default_runtime_name = \"runc\"\n\
         [{table}.containerd.runtimes.runc]\n  runtime_type = \"io.containerd.runc.v2\"\n\
         [{table}.containerd.runtimes.runc.options]\n  BinaryName = \"{}\"\n  \
           SystemdCgroup = {}\n",
        plugins.display(),
        runc.display(),
        options.systemd_cgroups
    )?;
    Ok(text)
}

/// Pods on a bridge of the bed. No masquerading: a bed's network leads nowhere, so iptables is not
/// needed.
pub const BRIDGE: &str = r#"{
  "cniVersion": "1.0.0",
  "name": "bed",
  "plugins": [
    {
      "type": "bridge",
      "bridge": "pods0",
      "isGateway": true,
      "hairpinMode": true,
      "ipam": {
        "type": "host-local",
        "ranges": [[{ "subnet": "10.88.0.0/16" }]],
        "routes": [{ "dst": "0.0.0.0/0" }]
      }
    },
    { "type": "portmap", "capabilities": { "portMappings": true } }
  ]
}
"#;
