//! SELinux labels of containers on a real kernel: the cgroup v2 machine in its SELinux variant.
//!
//! Rule: by verb only (`cargo xtask machine --selinux`), because it builds and boots a machine of
//! its own; the default machine has AppArmor. Every fact that the script prints must equal the
//! value here; the policy is permissive, so denials are printed and not checked. The reference
//! kubelet runs the pods over containerd too, with the same facts.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};
use node_testkit::machine::{self, MachineVariant, Payload, fact};
use node_testkit::{images, parts, programs};

const SCRIPT: &str = include_str!("../selinux_machine.sh");
/// The script's exit status if it ran to its end.
const STATUS: i32 = 7;

const FILE: &str = "system_u:object_r:container_file_t yes";
const FACTS: &[(&str, &str)] = &[
    ("confinement", "SELinux (no AppArmor), permissive"),
    ("its type", "system_u:system_r:container_t"),
    ("its categories", "sN:cN,cN"),
    ("label of /", FILE),
    ("label of /bin/busybox", FILE),
    ("label of /file", FILE),
    ("label of /dev", FILE),
    ("label of /dev/null", FILE),
    ("label of /dev/pts", FILE),
    ("label of /dev/shm", FILE),
    ("label of /etc/hosts", FILE),
    ("label of /etc/resolv.conf", FILE),
    ("label of /image", FILE),
    ("an exec", "yes"),
    ("beside it", "yes"),
    ("after a restart of the server", "yes"),
    ("in another pod", "another"),
    ("asked process", "system_u:system_r:container_t:s0:c1,c2"),
    ("asked root", "system_u:object_r:container_file_t:s0:c1,c2"),
    ("volume", "system_u:object_r:container_file_t:s0:c1,c2"),
    ("behind its link", "yes"),
    ("a folder of the machine", "1"),
    ("an unknown type", "1"),
    ("privileged process", "yes"),
    ("privileged root", "system_u:object_r:container_file_t"),
    ("in a user namespace", "system_u:system_r:container_t system_u:object_r:container_file_t"),
    ("mounts left", "0"),
];

const LABELLED_FILE: &str = "system_u:object_r:container_file_t:s0:c3,c4";
/// Facts of static pods over containerd, the same for both agents.
const FACTS_OF_PODS: &[(&str, &str)] = &[
    ("labelled inherits", "system_u:system_r:container_t:s0:c3,c4"),
    ("labelled own", "system_u:system_r:container_t:s0:c5,c6"),
    ("plain", "system_u:system_r:container_t:sN:cN,cN"),
    ("plain beside it", "yes"),
    ("empty", LABELLED_FILE),
    ("hosts", LABELLED_FILE),
    ("termination message", LABELLED_FILE),
    ("path of the host", "yes"),
];
/// Facts that depend on more than the manifest: only that both agents give the same.
const ALIKE: &[&str] = &["labelled privileged"];

fn main() -> Result<()> {
    let machine = machine::ensure_variant(MachineVariant::Selinux)?;
    let sandbox = images::pause()?.named(images::CONTAINERD_PAUSE);
    let files = [
        ("bin/keelson", programs::build("keelson", "keelson")?),
        ("bin/keelson-pod", programs::build("pod-supervisor", "keelson-pod")?),
        ("bin/containerd", parts::program("containerd", "containerd")?),
        ("bin/containerd-shim-runc-v2", parts::program("containerd", "containerd-shim-runc-v2")?),
        ("bin/ctr", parts::program("containerd", "ctr")?),
        ("bin/runc", parts::program("runc", "runc")?),
        ("bin/kubelet", parts::program("kubelet", "kubelet")?),
        ("images/busybox.tar", images::busybox()?.oci_archive()?),
        ("images/pause.tar", sandbox.oci_archive()?),
    ];
    let busybox = images::BUSYBOX;
    let payload = Payload {
        files: files.map(|(name, path)| (PathBuf::from(name), path)).into(),
        script: Some(SCRIPT.replace("BUSYBOX=$1", &format!("BUSYBOX={busybox}"))),
        deadline: Duration::from_secs(900),
        ..Payload::default()
    };
    let outcome = machine.run_into(&payload, &mut std::io::stdout())?;
    let output = &outcome.output;
    ensure!(outcome.status == STATUS, "status {}", outcome.status);
    for (name, expected) in FACTS {
        same(name, fact(output, name)?, expected)?;
    }
    for agent in ["agent", "reference"] {
        for (name, expected) in FACTS_OF_PODS {
            let name = format!("{agent} {name}");
            same(&name, fact(output, &name)?, expected)?;
        }
    }
    for name in ALIKE {
        let reference = fact(output, &format!("reference {name}"))?;
        same(name, fact(output, &format!("agent {name}"))?, reference)?;
    }
    let count = FACTS.len() + 2 * FACTS_OF_PODS.len() + ALIKE.len();
    println!("{count} facts as expected, after {:.0} s", outcome.elapsed.as_secs_f64());
    Ok(())
}

fn same(name: &str, actual: &str, expected: &str) -> Result<()> {
    ensure!(actual == expected, "{name}: {actual:?}, not {expected:?}");
    Ok(())
}
