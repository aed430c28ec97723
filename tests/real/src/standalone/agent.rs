//! A standalone agent: ours or the reference, with a manifest directory.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use node_testkit::bed::Bed;
use node_testkit::parts;
use node_testkit::start::get;

const HEALTH: ([u8; 4], u16) = ([127, 0, 0, 1], 10248);
const SOCKET: &str = "/run/keelson/agent.sock";

/// Which agent, and how to start it.
#[derive(Debug, Clone)]
pub struct AgentKind {
    pub name: &'static str,
    pub command: Vec<String>,
    pub environment: Vec<(String, String)>,
}

impl AgentKind {
    /// The name of ours.
    pub const KEELSON: &'static str = "keelson";

    pub fn keelson(program: &Path) -> Self {
        let command = vec![program.display().to_string(), "kubelet".to_owned()];
        Self { name: Self::KEELSON, command, environment: Vec::new() }
    }

    pub fn reference() -> Result<Self> {
        let program = parts::program("kubelet", "kubelet")?;
        let command = vec![program.display().to_string()];
        Ok(Self { name: "reference", command, environment: Vec::new() })
    }
}

/// An agent's root directory, and more of its configuration. Two agents may use one root after each
/// other, never at once.
#[derive(Debug, Clone)]
pub struct AgentHome {
    dir: PathBuf,
    endpoint: String,
    more: String,
}

impl AgentHome {
    pub fn new(bed: &Bed, name: &str, endpoint: &str) -> Result<Self> {
        let dir = bed.create_dir(&format!("node-{name}"))?;
        fs::create_dir_all(dir.join("manifests"))?;
        Ok(Self { dir, endpoint: endpoint.to_owned(), more: String::new() })
    }

    /// More lines of configuration.
    #[must_use]
    pub fn with(mut self, lines: &str) -> Self {
        self.more.push_str(lines);
        self
    }

    pub fn manifests(&self) -> PathBuf {
        self.dir.join("manifests")
    }

    pub fn root(&self) -> PathBuf {
        self.dir.join("root")
    }
}

/// Memory in KiB.
#[derive(Debug, Clone, Copy)]
pub struct AgentMemory {
    pub pss: u64,
    pub private_dirty: u64,
}

pub struct AgentProcess {
    process: Child,
    manifests: PathBuf,
    program: String,
    is_ours: bool,
}

impl AgentProcess {
    /// Starts it and waits until it is healthy.
    pub fn start(bed: &Bed, kind: &AgentKind, home: &AgentHome) -> Result<Self> {
        let mut agent = Self::launch(bed, kind, home)?;
        ensure!(agent.until_healthy()?, "{} ended before it was healthy", kind.name);
        Ok(agent)
    }

    /// Starts it without waiting.
    pub fn launch(bed: &Bed, kind: &AgentKind, home: &AgentHome) -> Result<Self> {
        let manifests = home.manifests();
        let config = home.dir.join(format!("{}.yaml", kind.name));
        let text = configuration(&home.endpoint, &manifests);
        fs::write(&config, format!("{text}{}", home.more))?;
        let log = fs::File::options().create(true).append(true).open(Self::log(bed, kind))?;
        let (program, rest) = kind.command.split_first().context("a program")?;
        let process = Command::new(program)
            .args(rest)
            .arg(format!("--config={}", config.display()))
            .arg(format!("--root-dir={}", home.root().display()))
            .args(["--hostname-override=node"])
            .envs(kind.environment.iter().cloned())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .with_context(|| format!("start {program}"))?;
        let is_ours = kind.name == "keelson";
        Ok(Self { process, manifests, program: program.clone(), is_ours })
    }

    /// Waits until it is healthy; false if it has exited.
    pub fn until_healthy(&mut self) -> Result<bool> {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(60) {
            let is_healthy =
                get(HEALTH.into(), "/healthz").is_ok_and(|answer| answer.status == 200);
            // Our agent's socket may open later.
            if is_healthy && (!self.is_ours || UnixStream::connect(SOCKET).is_ok()) {
                return Ok(true);
            }
            if self.has_ended()? {
                return Ok(false);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        self.process.kill()?;
        bail!("{} was not healthy within a minute", self.program)
    }

    /// The log of all agents of this kind in a bed.
    pub fn log(bed: &Bed, kind: &AgentKind) -> PathBuf {
        bed.logs().join(format!("node-{}.log", kind.name))
    }

    pub fn process_id(&self) -> u32 {
        self.process.id()
    }

    /// Whether it has exited by itself.
    pub fn has_ended(&mut self) -> Result<bool> {
        Ok(self.process.try_wait()?.is_some())
    }

    /// Whether it has aborted.
    pub fn has_aborted(&mut self) -> Result<bool> {
        let ended = self.process.try_wait()?;
        let abort = rustix::process::Signal::ABORT.as_raw();
        Ok(ended.is_some_and(|status| status.signal() == Some(abort)))
    }

    /// The output of one of our verbs about its pods.
    pub fn ask(&self, arguments: &[&str]) -> Result<String> {
        let output = Command::new(&self.program).args(arguments).output()?;
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.success(), "keelson {arguments:?}: {} {words}", output.status);
        Ok(String::from_utf8(output.stdout)?)
    }

    /// The warnings that one of our verbs prints beside its output.
    pub fn warnings(&self, arguments: &[&str]) -> Result<String> {
        let output = Command::new(&self.program).args(arguments).output()?;
        ensure!(output.status.success(), "keelson {arguments:?}: {}", output.status);
        Ok(String::from_utf8(output.stderr)?)
    }

    /// Our agent's pods as a v1 List.
    pub fn pods(&self) -> Result<serde_json::Value> {
        serde_json::from_str(&self.ask(&["ps", "-o", "json"])?).context("keelson ps -o json")
    }

    /// The value of one metric of our agent, from its socket.
    pub fn metric(&self, name: &str) -> Result<f64> {
        let text = self.scrape("/metrics")?;
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        let number = line.with_context(|| format!("no {name} in:\n{text}"))?;
        number.trim().parse().with_context(|| format!("{name} {number}"))
    }

    /// The response of our agent at its socket.
    pub fn scrape(&self, path: &str) -> Result<String> {
        let mut stream = UnixStream::connect(SOCKET).context(SOCKET)?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: agent\r\n\r\n").as_bytes())?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        let (head, body) = text.split_once("\r\n\r\n").with_context(|| text.clone())?;
        ensure!(head.contains(" 200 "), "{path}: {head}");
        Ok(body.to_owned())
    }

    /// Writes a manifest into the manifest directory atomically.
    pub fn place(&self, name: &str, text: &str) -> Result<()> {
        let hidden = self.manifests.join(format!(".{name}"));
        fs::write(&hidden, text)?;
        fs::rename(&hidden, self.manifests.join(format!("{name}.yaml")))
            .context(hidden.display().to_string())
    }

    pub fn withdraw(&self, name: &str) -> Result<()> {
        let path = self.manifests.join(format!("{name}.yaml"));
        fs::remove_file(&path).with_context(|| path.display().to_string())
    }

    /// The program itself, to run another of its verbs.
    pub fn program(&self) -> &str {
        &self.program
    }

    pub fn withdraw_all(&self) -> Result<()> {
        for entry in fs::read_dir(&self.manifests)? {
            fs::remove_file(entry?.path())?;
        }
        Ok(())
    }

    pub fn memory(&self) -> Result<AgentMemory> {
        let text = fs::read_to_string(format!("/proc/{}/smaps_rollup", self.process.id()))?;
        let kib = |field: &str| -> Result<u64> {
            let line = text.lines().find_map(|line| line.strip_prefix(field));
            let number = line.and_then(|rest| rest.split_whitespace().next());
            number.context("a field of smaps_rollup")?.parse().context("a number of KiB")
        };
        Ok(AgentMemory { pss: kib("Pss:")?, private_dirty: kib("Private_Dirty:")? })
    }

    /// User and system time so far, including that of threads that have ended, in clock ticks.
    pub fn cpu_time(&self) -> Result<Duration> {
        let text = fs::read_to_string(format!("/proc/{}/stat", self.process.id()))?;
        // The name in front may have anything in it but a closing bracket after the last one.
        let (_, fields) = text.rsplit_once(')').context("a line of stat")?;
        let ticks = |at: usize| -> Result<u64> {
            let field = fields.split_whitespace().nth(at).context("a field of stat")?;
            field.parse().context("a number of ticks")
        };
        let per_second = rustix::param::clock_ticks_per_second();
        Ok(Duration::from_millis((ticks(11)? + ticks(12)?) * 1000 / per_second))
    }

    /// Kills it.
    pub fn end(mut self) -> Result<()> {
        self.process.kill()?;
        self.process.wait()?;
        Ok(())
    }
}

fn configuration(endpoint: &str, manifests: &Path) -> String {
    format!(
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n\
         authentication: {{webhook: {{enabled: false}}, anonymous: {{enabled: true}}}}\n\
         authorization: {{mode: AlwaysAllow}}\nfailCgroupV1: false\nfailSwapOn: false\n\
         maxPods: 250\nmakeIPTablesUtilChains: false\ncgroupDriver: cgroupfs\n\
         evictionHard: {{memory.available: 1Mi, nodefs.available: 1%, imagefs.available: 1%}}\n\
         containerRuntimeEndpoint: {endpoint}\nstaticPodPath: {}\n",
        manifests.display()
    )
}
