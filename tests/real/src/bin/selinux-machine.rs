//! Labels of containers on a real kernel with SELinux: the cgroup v2 machine with another policy.
//!
//! Rule: by verb only (`cargo xtask machine --selinux`): a machine of its own is built and booted for
//! it, and the landing's has AppArmor. Every fact that the script tells must be as it stands here; the
//! policy is permissive, so what it would refuse is shown and not judged.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use node_testkit::machine::{self, Payload, Variant};
use node_testkit::{images, programs};

const SCRIPT: &str = include_str!("../selinux_machine.sh");
/// What the script ends with when it got that far.
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

fn main() -> Result<()> {
    let machine = machine::ensure_variant(Variant::Selinux)?;
    let files = [
        ("bin/keelson", programs::build("keelson", "keelson")?),
        ("bin/keelson-pod", programs::build("pod-supervisor", "keelson-pod")?),
        ("images/busybox.tar", images::busybox()?.oci_archive()?),
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
        let line = output.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        let told = line.with_context(|| format!("no line {name:?} in the output"))?;
        ensure!(told == *expected, "{name}: {told:?}, not {expected:?}");
    }
    println!("{} facts as expected, after {:.0} s", FACTS.len(), outcome.elapsed.as_secs_f64());
    Ok(())
}
