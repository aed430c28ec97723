//! The CRI configurations of the pods in these tests, and the runs that their containers record.
//!
//! A container writes `begin` when its program starts, and `end` right before it exits by itself;
//! the runtime's responses are compared with these records.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use cri_wire::v1;
use node_testkit::images;

/// The directory of the files that containers write to.
pub(crate) const RUNS: &str = "/run/bed/runs";
pub(crate) const LOGS: &str = "/run/bed/logs-of-pods";

const SLOT: &str = "slot";
const ROUND: &str = "round";
const CONTAINER: &str = "container";

/// One pod: its slot in the test, and how many pods were created in that slot before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TestPod {
    pub(crate) slot: usize,
    pub(crate) round: u32,
}

impl TestPod {
    pub(crate) fn labels(self) -> BTreeMap<String, String> {
        [(SLOT, self.slot.to_string()), (ROUND, self.round.to_string())]
            .map(|(name, value)| (name.to_owned(), value))
            .into()
    }

    /// Every fourth slot uses the host network, every even one a host port; in every fifth the
    /// containers share one PID namespace.
    pub(crate) fn config(self) -> v1::PodSandboxConfig {
        let Self { slot, round } = self;
        let (node, pod) = (v1::NamespaceMode::Node, v1::NamespaceMode::Pod);
        let host_network = slot % 4 == 3;
        let mapping = v1::PortMapping {
            protocol: v1::Protocol::Tcp.into(),
            container_port: 80,
            host_port: 18_000 + i32::try_from(slot).unwrap_or_default(),
            host_ip: String::new(),
        };
        v1::PodSandboxConfig {
            metadata: Some(v1::PodSandboxMetadata {
                name: format!("pod-{slot}"),
                uid: format!("uid-{slot}-{round}"),
                namespace: "default".to_owned(),
                attempt: 0,
            }),
            hostname: if host_network { String::new() } else { format!("pod-{slot}") },
            log_directory: LOGS.to_owned(),
            labels: self.labels(),
            port_mappings: if host_network || slot % 2 == 1 { Vec::new() } else { vec![mapping] },
            linux: Some(v1::LinuxPodSandboxConfig {
                // The caller creates and removes the parent cgroup, as a kubelet does; all pods
                // share it.
                cgroup_parent: "/kills".to_owned(),
                security_context: Some(v1::LinuxSandboxSecurityContext {
                    namespace_options: Some(v1::NamespaceOption {
                        network: if host_network { node } else { pod }.into(),
                        pid: self.pid_mode().into(),
                        ..Default::default()
                    }),
                    ..Default::default()
                }),
                ..Default::default()
            }),
            ..Default::default()
        }
    }

    fn pid_mode(self) -> v1::NamespaceMode {
        if self.slot % 5 == 2 { v1::NamespaceMode::Pod } else { v1::NamespaceMode::Container }
    }

    /// A name that is unique in the test.
    pub(crate) fn whole_name(self, container: &str) -> String {
        format!("{}-{}-{container}", self.slot, self.round)
    }

    pub(crate) fn container(self, name: &str, script: &str) -> v1::ContainerConfig {
        let unique_name = self.whole_name(name);
        let script = format!("echo begin >> {RUNS}/{unique_name}; {script}");
        let mut labels = self.labels();
        labels.insert(CONTAINER.to_owned(), name.to_owned());
        v1::ContainerConfig {
            metadata: Some(v1::ContainerMetadata { name: name.to_owned(), attempt: 0 }),
            image: Some(v1::ImageSpec { image: images::BUSYBOX.to_owned(), ..Default::default() }),
            command: ["sh", "-c", &script].map(str::to_owned).into(),
            log_path: format!("{unique_name}.log"),
            labels,
            mounts: vec![v1::Mount {
                container_path: RUNS.to_owned(),
                host_path: RUNS.to_owned(),
                ..Default::default()
            }],
            linux: Some(v1::LinuxContainerConfig {
                security_context: Some(v1::LinuxContainerSecurityContext {
                    namespace_options: Some(v1::NamespaceOption {
                        pid: self.pid_mode().into(),
                        ..Default::default()
                    }),
                    ..Default::default()
                }),
                ..Default::default()
            }),
            ..Default::default()
        }
    }

    /// Runs until it is stopped.
    pub(crate) fn steady(self) -> v1::ContainerConfig {
        self.container("steady", "exec sleep 100000")
    }

    /// Exits by itself after a short time.
    pub(crate) fn brief(self, name: &str, code: i32, microseconds: u64) -> v1::ContainerConfig {
        let file = format!("{RUNS}/{}", self.whole_name(name));
        self.container(name, &format!("usleep {microseconds}; echo end >> {file}; exit {code}"))
    }

    /// The labels that select this container.
    pub(crate) fn of_container(self, name: &str) -> BTreeMap<String, String> {
        let mut labels = self.labels();
        labels.insert(CONTAINER.to_owned(), name.to_owned());
        labels
    }

    /// What a container has recorded: how often it started, and how often it exited by itself.
    pub(crate) fn truth(self, container: &str) -> Result<(usize, usize)> {
        read_begins_and_ends(&Path::new(RUNS).join(self.whole_name(container)))
    }
}

fn read_begins_and_ends(path: &Path) -> Result<(usize, usize)> {
    let text = match std::fs::read_to_string(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        outcome => outcome.with_context(|| path.display().to_string())?,
    };
    let count = |word: &str| text.lines().filter(|line| *line == word).count();
    Ok((count("begin"), count("end")))
}
