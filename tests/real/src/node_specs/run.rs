//! One run of upstream's node suite in a bed: the suite starts its own API server and the given
//! program as the kubelet; the runtime already runs.
//!
//! upstream: test/e2e_node (services, util)

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use node_testkit::bed::{Bed, NODE_ADDRESS};
use node_testkit::parts;

use super::results::Results;

/// The parts that the suite itself needs.
pub const NEEDS: &[&str] = &["e2e-node-test", "ginkgo", "kubelet"];

/// Serial and slow ones would take hours; flaky ones prove nothing.
pub const QUICK: &str = "!Flaky && !Slow && !Serial && !Disruptive && !Benchmark";

const NODE: &str = "bed-node";

const KUBELET: &str = "apiVersion: kubelet.config.k8s.io/v1beta1\n\
    kind: KubeletConfiguration\n\
    cgroupRoot: /\n\
    cgroupDriver: cgroupfs\n\
    failCgroupV1: false\n\
    failSwapOn: false\n\
    makeIPTablesUtilChains: false\n\
    evictionHard: {memory.available: 1Mi, nodefs.available: 1%, imagefs.available: 1%}\n";

/// Which specs are run, with which program as the kubelet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Suite {
    pub kubelet: PathBuf,
    /// A label filter of ginkgo.
    pub labels: String,
    /// A regular expression on the text of a spec.
    pub focus: Option<String>,
    /// How many specs run in parallel.
    pub at_once: u32,
}

/// Runs the selected specs over the runtime at this endpoint.
pub fn run(bed: &Bed, endpoint: &str, chosen: &Suite) -> Result<Results> {
    let dir = bed.create_dir("suite")?;
    // The suite writes beside its own program.
    let suite = dir.join("e2e_node.test");
    fs::copy(parts::program("e2e-node-test", "e2e_node.test")?, &suite)
        .context("copy the suite's program")?;
    let programs = dir.join("bin");
    fs::create_dir_all(&programs)?;
    std::os::unix::fs::symlink(&chosen.kubelet, programs.join("kubelet"))?;
    let configuration = dir.join("kubelet.yaml");
    fs::write(&configuration, KUBELET)?;
    forget_systemd()?;
    // The API server resolves the node's name when a client requests a log.
    let mut hosts = fs::File::options().append(true).open("/etc/hosts").context("/etc/hosts")?;
    writeln!(hosts, "{NODE_ADDRESS} {NODE}")?;
    let report = dir.join("report.json");
    let log = fs::File::create(bed.logs().join("suite.log"))?;
    let status = Command::new(parts::program("ginkgo", "ginkgo")?)
        .current_dir(&dir)
        .arg(format!("--nodes={}", chosen.at_once))
        .arg(format!("--label-filter={}", chosen.labels))
        .args(chosen.focus.iter().map(|focus| format!("--focus={focus}")))
        .args(["--no-color", "--keep-going", "--timeout=3h", "--json-report=report.json"])
        .arg(&suite)
        .arg("--")
        .arg("--prepull-images=false")
        .arg(format!("--node-name={NODE}"))
        .arg(format!("--k8s-bin-dir={}", programs.display()))
        .arg(format!("--container-runtime-endpoint={endpoint}"))
        .arg("--kubelet-flags=--fail-cgroupv1=false --fail-swap-on=false")
        .arg(format!("--kubelet-config-file={}", configuration.display()))
        .arg(format!("--report-dir={}", bed.logs().display()))
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .status()
        .context("run ginkgo")?;
    ensure!(report.exists(), "ginkgo ended ({status}) without a report: see suite.log");
    Results::from_report(&report)
}

/// The suite starts the kubelet with systemd if it finds systemd's program, and there is no systemd
/// in a bed. Only the bed's own view of the directory is changed.
fn forget_systemd() -> Result<()> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places: Vec<PathBuf> =
        std::env::split_paths(&path).map(|dir| dir.join("systemd-run")).collect();
    for place in places.iter().filter(|place| place.starts_with(Path::new("/usr"))) {
        match fs::remove_file(place) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error).with_context(|| place.display().to_string()),
        }
    }
    Ok(())
}
